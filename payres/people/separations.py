"""Giving a wallet that was joined to others a sign-in of its own again: by an operator, or by the link of a mail."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from payres.accounts.notices import GATHERED, notify
from payres.accounts.second_factors import delete_factors
from payres.accounts.store import mail
from payres.accounts.store.joined_wallets import JOIN_TABLE, kept_join
from payres.accounts.store.mail import ADDRESSES, AddressRecord
from payres.accounts.store.owners import OF_OWNERS, OWNERS, take_over, wallets_of
from payres.accounts.store.sessions import end_access
from payres.core.grants import tokens
from payres.core.grants.spending_limits import spending_of
from payres.core.protocol.visible import visible_name, visible_url
from payres.core.store import audit
from payres.core.store.events import last_sequence
from payres.core.store.wallets import KEYS, WALLETS, WalletRecord, list_keys
from payres.core.store.work import Work
from payres.html.language import Language
from payres.html.sentences import limit_words
from payres.people import standing_orders
from payres.people.store.apps import grants_in_force
from payres.people.store.standing_orders import orders_of
from payres.webhooks.store.webhooks import WEBHOOKS, webhooks_of

NEWEST: Final = 1000  # of a wallet's orders, far more than go on


class SetUp(NamedTuple):
    """What was set up in a wallet since it was joined: in English words, when, and what ends it."""

    words: str
    at: int
    end: Callable[[], object]


def take_out(work: Work, wallet: WalletRecord, ended: Sequence[SetUp], **said: Any) -> None:
    """Gives a wallet an owner of its own, whom nobody signs in as before an operator makes a link. The owner of the
    others is signed out, and ends if there are none. `said` is why, or how, in the mails to both."""
    own = OWNERS.create(work, password_hash=None, created_at=work.now, closed_until=work.now)
    others = [one.path for one in wallets_of(work, wallet.owner_id) if one.id != wallet.id]
    end_access(work, OF_OWNERS, wallet.owner_id, forget_browsers=not others)
    for kind in GATHERED:  # they would tell the owner of the others about its money
        mail.withdraw(work, f"{kind}:{wallet.id}")
    joined = kept_join(work, wallet.id, work.now)
    if joined is not None:
        if joined.email:
            before = AddressRecord(own, joined.email, work.now, joined.language or "", joined.time_zone or "")
            ADDRESSES.insert(work, replace(before, after_event=last_sequence(work)))
        JOIN_TABLE.delete(work, wallet_address_id=wallet.id)
    for one in ended:
        one.end()
    audit.record(work, "wallet.separate", wallet.path, ownerOf=others[0] if others else None, **said)
    data = {"wallet": wallet.path, **said} | ({"other": others[0]} if others else {})
    notify(work, wallet.owner_id, "wallet_separated", **data)
    WALLETS.update(work, wallet.id, owner_id=own)
    notify(work, own, "wallet_separated", **data)
    if not others:
        delete_factors(work, OF_OWNERS, wallet.owner_id)
        take_over(work, own, wallet.owner_id)


def set_up_since(work: Work, wallet: WalletRecord, joined_at: int | None = None) -> Mapping[str, SetUp]:
    """What the owner of several has set up in this wallet since it was joined, in the last 30 days: the last time, or
    at an earlier one."""
    joined, found = kept_join(work, wallet.id, work.now), dict[str, SetUp]()
    if joined is None or joined.joined_at is None:
        return {}
    since = min(joined.joined_at, joined_at or joined.joined_at)
    for grant in grants_in_force(work, wallet.id):
        spending = spending_of(grant.access)
        may = f"may pay {limit_words(Language('en', work.now), spending)}" if spending else "may look"
        name = visible_name(grant.client_name, grant.client) or visible_url(grant.client).host
        end: Callable[[], object] = partial(tokens.revoke_grant, work, grant.id)
        found[f"app:{grant.id}"] = SetUp(f"“{name}” {may}", grant.decided_at, end)
    for key in list_keys(work, wallet.id):
        end = partial(KEYS.update, work, key.id, revoked_at=work.now)
        found[f"key:{key.id}"] = SetUp(f"The key “{key.name or key.kid}”", key.created_at, end)
    for webhook in webhooks_of(work, wallet.id):
        end = partial(WEBHOOKS.update, work, webhook.id, state="disabled")
        found[f"webhook:{webhook.id}"] = SetUp(f"Events to {webhook.url}", webhook.created_at, end)
    for order in orders_of(work, wallet.id, NEWEST):
        if not order.is_over:
            words = f"A standing order to {visible_url(order.payee).host}"
            end = partial(standing_orders.end, work, wallet, order.id)
            found[f"order:{order.id}"] = SetUp(words, order.created_at, end)
    return {id: one for id, one in found.items() if one.at >= since}
