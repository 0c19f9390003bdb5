"""Which changes by operators are told to the owner whose wallet they are about."""

from collections.abc import Callable, Mapping
from typing import Final, get_args

import pytest

from payres.accounts.notices import NoticeKind
from payres.accounts.store import mail
from payres.accounts.store.mail import ADDRESSES, MAILS, AddressRecord
from payres.core.store.wallets import require_wallet
from payres.core.store.work import Work
from payres.operator import keys, wallets
from payres.operator.declared.declarations import declared
from tests.helpers import new_jwk

# No owner has any of what these operations change: by the first part of their ids.
NOBODYS: Final = {"assets", "peers", "unresolved_packets", "webhooks", "api_keys", "mail", "backups", "operators"}
# The kind of notice that tells of each other operation; else why there is none, in a sentence.
TOLD: Final[Mapping[str, str]] = {
    "wallets.open_wallet": "It is new and empty, and gives nobody anything.",
    "wallets.change_wallet": "wallet_renamed wallet_closed wallet_opened",
    "wallets.rename": "wallet_renamed",
    "wallets.deactivate": "wallet_closed",
    "wallets.activate": "wallet_opened",
    "wallets.deposit": "money",
    "wallets.withdraw": "The owner asked for the money, and has it.",
    "movements.undo": "It takes back a mistake, and stands in the activity.",
    "wallets.set_password": "password",
    "wallets.make_password_link": "password_link",
    "wallets.remove_wallet_factors": "remove_factors",
    "wallets.keep_wallet_factors": "keep_factors",
    "wallets.unlock": "Whoever signs in still needs the password.",
    "wallets.sign_out": "It only takes away, and the next sign-in shows it.",
    "wallets.separate": "wallet_separated",
    "payments.refund": "refund_out",
    "grants.decide": "grant_by_operator",
    "grants.approve": "grant_by_operator",
    "grants.deny": "It gives nothing.",
    "grants.revoke": "It only takes away.",
    "clients.freeze": "It only takes away, from all who allowed the app.",
    "clients.unfreeze": "The owner had allowed the app.",
    "keys.add_key": "key_added",
    "keys.generate_key": "key_added",
    "keys.revoke_key": "It only takes away.",
    "due.retry": "It would be tried in any case.",
    "due.give_up": "order_failed",
}
GATHERED: Final = ("money", "failed")
DONE: Final[Mapping[str, Callable[[Work], object]]] = {
    "wallets.rename": lambda work: wallets.rename(work, "alice", "Alice Miller"),
    "wallets.deactivate": lambda work: wallets.deactivate(work, "alice"),
    "wallets.activate": lambda work: (wallets.deactivate(work, "alice"), wallets.activate(work, "alice")),
    "wallets.change_wallet": lambda work: [
        wallets.change_wallet(work, "alice", public_name="Alice Miller", state=state)
        for state in ("inactive", "active")
    ],
    "wallets.make_password_link": lambda work: wallets.make_password_link(work, "alice"),
    "keys.add_key": lambda work: keys.add_key(work, "alice", new_jwk("laptop")),
}


def test_every_change_by_operators_is_told_to_the_owner_or_says_why_not() -> None:
    concerned = {one.id for one in declared() if one.changes and one.id.partition(".")[0] not in NOBODYS}
    assert concerned == TOLD.keys()
    kinds = {*GATHERED, *(kind for one in get_args(NoticeKind) for kind in (get_args(one) or (one,)))}
    for name, told in TOLD.items():
        assert told.endswith(".") or {*told.split()} <= kinds, name


@pytest.mark.parametrize("name", DONE)
def test_owner_is_told_by_mail(tx: Work, name: str) -> None:
    wallets.create_wallet(tx, "alice", "USD", 2, "Alice", None)
    owner_id = require_wallet(tx, "alice").owner_id
    mail.turn(tx, on=True)
    ADDRESSES.insert(tx, AddressRecord(owner_id, "alice@mail.example", tx.now, "en", "Europe/Berlin"))
    tx.actor = "page:ann"
    DONE[name](tx)
    told = [(one.kind, one.data["by"]) for one in MAILS.list(tx, "ORDER BY id")]
    assert {kind for kind, _ in told} - {"wallet_closed"} == {*TOLD[name].split()} - {"wallet_closed"}
    assert {by for _, by in told} == {"operator"}
    if name in {"wallets.rename", "wallets.activate"}:
        count = len(told)
        wallets.rename(tx, "alice", require_wallet(tx, "alice").public_name)
        wallets.activate(tx, "alice")
        assert len(MAILS.list(tx)) == count, "nothing was changed"
