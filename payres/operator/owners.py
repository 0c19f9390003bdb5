"""The owners of wallets as operators see them: what signs in to which wallets, and where somebody is signed in."""

from collections.abc import Sequence
from typing import Final

from payres.accounts.second_factors import factors_of
from payres.accounts.store.owners import OF_OWNERS, OwnerRecord, owner_of, wallets_of
from payres.accounts.store.sessions import open_sessions
from payres.core.protocol.clock import format_time_if_any
from payres.core.protocol.wire import Resource
from payres.core.store.wallets import require_wallet
from payres.core.store.work import Work
from payres.operator.declared.shapes import Column, Shape, Time, fact, represent

DIGITS: Final = 16  # of what names a session: it signs nobody in


class OwnersBrowser(Resource, frozen=True, kw_only=True):
    """A browser in which the owner is signed in; `id` names it in requests that sign it out."""

    id: str
    browser: str | None
    address: str | None
    created_at: Time


class Owner(Resource, frozen=True, kw_only=True):
    """`name` is the path of the first of the `wallets`. All second steps end at `removalDueAt`, if that is set.

    The sign-in was closed at `closedAt`, by the link of a mail or a separation; null if it is open, or there was no
    password yet.
    """

    name: str
    wallets: Sequence[str]
    can_sign_in: bool
    closed_at: Time | None
    second_step: Sequence[str]
    removal_due_at: Time | None
    signed_in: Sequence[OwnersBrowser]


def owner(work: Work, record: OwnerRecord) -> Owner:
    factors = factors_of(work, OF_OWNERS, record.id)
    return represent(
        Owner,
        record,
        wallets=[one.path for one in wallets_of(work, record.id)],
        can_sign_in=(can_sign_in := record.password_hash is not None),
        closed_at=None if can_sign_in else format_time_if_any(record.closed_until),
        second_step=[one.name for one in factors.asked],
        removal_due_at=factors.due_at,
        signed_in=[
            represent(OwnersBrowser, one, id=one.id_hash.hex()[:DIGITS])
            for one in open_sessions(work, OF_OWNERS, record.id, work.now)
        ],
    )


def require_owner(work: Work, wallet: str) -> OwnerRecord:
    """The owner of the wallet. Raises NotFound."""
    return owner_of(work, require_wallet(work, wallet).id)


WALLET_OWNER: Final = Shape(
    owner,
    Column("Signs in as", "name", "long"),
    fact("Wallets", "wallets", "long"),
    fact("Password", lambda one: "set" if one.can_sign_in else "ended" if one.closed_at else "none yet"),
    fact("Sign-in closed (UTC)", "closed_at", "time"),
    fact("Second step", lambda one: ", ".join(one.second_step)),
    fact("It is removed (UTC)", "removal_due_at", "time"),
    fact("Signed in", lambda one: ", ".join(found.browser or found.id for found in one.signed_in), "long"),
    read=require_owner,
    page="/wallets/{wallet}/owner",
    name=lambda one: f"Owner {one.name}",
    moving={"signed_in", "removal_due_at"},
    secrets=lambda _, one: (one.password_hash,),
    member="name",
)
