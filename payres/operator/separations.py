"""Giving a wallet that was connected to others a sign-in of its own again."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Final, NamedTuple

from msgspec.structs import replace

from payres.accounts.notices import GATHERED, notify
from payres.accounts.store import mail
from payres.accounts.store.joins import JOIN_TABLE, JOINS_KEPT, delete_join
from payres.accounts.store.mail import ADDRESSES, AddressRecord
from payres.accounts.store.owners import OF_OWNERS, OWNERS, owner_of, wallets_of
from payres.accounts.store.sessions import end_access
from payres.core.grants import tokens
from payres.core.protocol.clock import lasts
from payres.core.protocol.errors import InvalidRequest, WrongState
from payres.core.protocol.visible import visible_url
from payres.core.store import audit
from payres.core.store.events import last_sequence
from payres.core.store.wallets import KEYS, WALLETS, WalletRecord, list_keys, require_wallet
from payres.core.store.work import Work
from payres.html.language import Language
from payres.html.sentences import limit_words
from payres.operator.declared.declarations import CommandLine, OperationForm, operation
from payres.operator.declared.inputs import Name, said
from payres.operator.grants import GRANT, spending_under
from payres.operator.wallets import LINK, WALLET, PasswordLink, Wallet, WalletName, password_link
from payres.people.store.apps import grants_in_force
from payres.people.store.standing_orders import ORDERS, change_run, orders_of, runs_of
from payres.webhooks.store.webhooks import WEBHOOKS, webhooks_of

Why = Annotated[Name, said("Both owners and the audit log get this sentence.", label="How you know whose it is")]
Keep = Annotated[bool, said("What was set up since it was connected stays.", label="Keep all", of_commands=True)]


class SetUp(NamedTuple):
    """What was set up in a wallet since it was connected: in words, when, and what ends it."""

    words: str
    at: int
    end: Callable[[], object]


def offered(work: Work, one: Wallet) -> Mapping[str, tuple[str, str]]:
    """What a form can end, by its id: in words, and since when."""
    english, found = Language("en", work.now), set_up_since(work, require_wallet(work, one.path))
    return {id: (made.words, f"Since {english.moment(made.at)}") for id, made in found.items()}


End = Annotated[
    Sequence[str] | None,
    said(
        "Marked things end now. They are not the other owner's, if the wallet is not.",
        label="What was set up since it was joined",
        metavar="ID",
        offers=offered,
    ),
]

NEWEST: Final = 1000  # of a wallet's orders, far more than go on


@operation(
    "POST /wallets/{wallet}/separations wallets:write",
    shows=LINK,
    command=CommandLine(
        "wallet separate PATH", 'pottery --why "its owner called, and knows what was paid in"', text="{url}"
    ),
    shows_secret=True,
    form=OperationForm("Separate", WALLET, is_over=lambda one: not one.other_wallets, ends=True),
    noun="wallets",
)
def separate(work: Work, wallet: WalletName, why: Why, keep: Keep = False, end: End = None) -> PasswordLink:
    """Give a wallet of several a sign-in of its own.

    The owner of the others opens it no more, at once, and is signed out. You get a password link for it: hand it to
    whoever the wallet belongs to. Money, movements and address stay. If it was connected in the last 30 days, the apps,
    keys, webhooks and standing orders that were set up since end, or those that you name, and notices go where they
    went before.
    """
    found = require_wallet(work, wallet)
    if len(wallets_of(work, found.owner_id)) == 1:
        raise WrongState(f"The wallet {found.path} has a sign-in of its own", path=found.path)
    made, joined = set_up_since(work, found), JOIN_TABLE.find(work, wallet_address_id=found.id)
    ended = made.keys() if end is None else end
    if unknown := [one for one in ended if one not in made]:
        raise InvalidRequest(f"Nothing called {unknown[0]} was set up since", field="end")
    own = OWNERS.create(work, password_hash=None, created_at=work.now)
    WALLETS.update(work, found.id, owner_id=own)
    end_access(work, OF_OWNERS, found.owner_id, forget_browsers=False)
    for kind in GATHERED:  # they would tell the owner of the others about its money
        mail.withdraw(work, f"{kind}:{found.id}")
    if joined and joined.joined_at and lasts(joined.joined_at + JOINS_KEPT, work.now, JOINS_KEPT):
        if joined.email:
            before = AddressRecord(own, joined.email, work.now, joined.language or "", joined.time_zone or "")
            ADDRESSES.insert(work, replace(before, after_event=last_sequence(work)))
        delete_join(work, found.id)
    for one in () if keep else ended:
        made[one].end()
    others = owner_of(work, wallets_of(work, found.owner_id)[0].id)
    audit.record(work, "wallet.separate", found.path, why=why, ownerOf=others.name)
    for told in (own, others.id):
        notify(work, told, "wallet_separated", wallet=found.path, other=others.name, why=why)
    return password_link(work, require_wallet(work, found.path))


def set_up_since(work: Work, wallet: WalletRecord) -> Mapping[str, SetUp]:
    """What the owner of several has set up in this wallet since it was connected, in the last 30 days."""
    joined, found = JOIN_TABLE.find(work, wallet_address_id=wallet.id), dict[str, SetUp]()
    since = joined.joined_at if joined else None
    if since is None or not lasts(since + JOINS_KEPT, work.now, JOINS_KEPT):
        return {}
    for grant in grants_in_force(work, wallet.id):
        shown = GRANT.find(work, id=grant.id)
        spending = spending_under(shown)
        may = f"may pay {limit_words(Language('en', work.now), spending)}" if spending else "may look"
        end: Callable[[], object] = partial(tokens.revoke_grant, work, grant.id)
        found[f"app:{grant.id}"] = SetUp(f"“{GRANT.name(shown)}” {may}", grant.decided_at, end)
    for key in list_keys(work, wallet.id):
        end = partial(KEYS.update, work, key.id, revoked_at=work.now)
        found[f"key:{key.id}"] = SetUp(f"The key “{key.name or key.kid}”", key.created_at, end)
    for webhook in webhooks_of(work, wallet.id):
        end = partial(WEBHOOKS.update, work, webhook.id, state="disabled")
        found[f"webhook:{webhook.id}"] = SetUp(f"Events to {webhook.url}", webhook.created_at, end)
    for order in orders_of(work, wallet.id, NEWEST):
        if not order.is_over:
            words = f"A standing order to {visible_url(order.payee).host}"
            found[f"order:{order.id}"] = SetUp(words, order.created_at, partial(_end_order, work, order.id))
    return {id: one for id, one in found.items() if one.at >= since}


def _end_order(work: Work, id: str) -> None:
    ORDERS.update(work, id, state="cancelled", problem=None, next_at=None, ended_at=work.now)
    for run in (one for one in runs_of(work, id, 1) if one.state == "waiting"):
        change_run(work, replace(run, state="missed", problem="stopped", retry_at=None))
