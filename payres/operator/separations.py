"""Giving a wallet that was connected to others a sign-in of its own again."""

from typing import Annotated, Final

from msgspec.structs import replace

from payres.accounts.notices import GATHERED, notify
from payres.accounts.store import mail
from payres.accounts.store.joins import JOIN_TABLE, JOINS_KEPT, delete_join
from payres.accounts.store.mail import ADDRESSES, AddressRecord
from payres.accounts.store.owners import OF_OWNERS, OWNERS, owner_of, wallets_of
from payres.accounts.store.sessions import end_access
from payres.core.grants import tokens
from payres.core.protocol.clock import lasts
from payres.core.protocol.errors import WrongState
from payres.core.store import audit
from payres.core.store.events import last_sequence
from payres.core.store.wallets import KEYS, WALLETS, WalletRecord, list_keys, require_wallet
from payres.core.store.work import Work
from payres.operator.declared.declarations import CommandLine, OperationForm, operation
from payres.operator.declared.inputs import Name, said
from payres.operator.wallets import LINK, WALLET, PasswordLink, WalletName, password_link
from payres.people.store.apps import grants_in_force
from payres.people.store.standing_orders import ORDERS, change_run, orders_of, runs_of
from payres.webhooks.store.webhooks import WEBHOOKS, webhooks_of

Why = Annotated[Name, said("Both owners and the audit log get this sentence.", label="How you know whose it is")]
Keep = Annotated[
    bool,
    said("Apps, keys, webhooks and standing orders that were set up since it was connected stay.", label="Keep all"),
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
def separate(work: Work, wallet: WalletName, why: Why, keep: Keep = False) -> PasswordLink:
    """Give a wallet of several a sign-in of its own.

    The owner of the others opens it no more, at once, and is signed out. You get a password link for it: hand it to
    whoever the wallet belongs to. Money, movements and address stay. If it was connected in the last 30 days, what was
    set up since ends, and notices go where they went before.
    """
    found = require_wallet(work, wallet)
    if len(wallets_of(work, found.owner_id)) == 1:
        raise WrongState(f"The wallet {found.path} has a sign-in of its own", path=found.path)
    joined = JOIN_TABLE.find(work, wallet_address_id=found.id)
    own = OWNERS.create(work, password_hash=None, created_at=work.now)
    WALLETS.update(work, found.id, owner_id=own)
    end_access(work, OF_OWNERS, found.owner_id, forget_browsers=False)
    for kind in GATHERED:  # they would tell the owner of the others about its money
        mail.withdraw(work, f"{kind}:{found.id}")
    if joined and joined.joined_at and lasts(joined.joined_at + JOINS_KEPT, work.now, JOINS_KEPT):
        if joined.email:
            before = AddressRecord(own, joined.email, work.now, joined.language or "", joined.time_zone or "")
            ADDRESSES.insert(work, replace(before, after_event=last_sequence(work)))
        if not keep:
            _end_since(work, found, joined.joined_at)
        delete_join(work, found.id)
    others = owner_of(work, wallets_of(work, found.owner_id)[0].id)
    audit.record(work, "wallet.separate", found.path, why=why, ownerOf=others.name)
    for told in (own, others.id):
        notify(work, told, "wallet_separated", wallet=found.path, why=why)
    return password_link(work, require_wallet(work, found.path))


def _end_since(work: Work, wallet: WalletRecord, since: int) -> None:
    """Ends the apps, keys, webhooks and standing orders of a wallet that were set up since then."""
    for grant in (one for one in grants_in_force(work, wallet.id) if one.decided_at >= since):
        tokens.revoke_grant(work, grant.id)
    for key in (one for one in list_keys(work, wallet.id) if one.created_at >= since):
        KEYS.update(work, key.id, revoked_at=work.now)
    for webhook in (one for one in webhooks_of(work, wallet.id) if one.created_at >= since):
        WEBHOOKS.update(work, webhook.id, state="disabled")
    for order in orders_of(work, wallet.id, NEWEST):
        if order.created_at >= since and not order.is_over:
            ORDERS.update(work, order.id, state="cancelled", problem=None, next_at=None, ended_at=work.now)
            for run in (one for one in runs_of(work, order.id, 1) if one.state == "waiting"):
                change_run(work, replace(run, state="missed", problem="stopped", retry_at=None))
