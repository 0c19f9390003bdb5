"""Movements of money between outside (the external account) and an account here.

A movement may have a reference, the operator's own name for it. An account has only one movement for a reference,
however often it is requested.
"""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec
from msgspec import UNSET

from payres.core.payments import ledger
from payres.core.payments.idempotency import check_reference
from payres.core.protocol.amounts import describe_amount, format_decimal
from payres.core.protocol.errors import InsufficientFunds, WrongState
from payres.core.protocol.event_types import WalletEvent
from payres.core.protocol.wire import Resource, require_amount
from payres.core.store import representations, server
from payres.core.store.accounts import ACCOUNTS, ASSETS, AssetRecord
from payres.core.store.wallets import find_wallet
from payres.core.store.work import Work
from payres.interledger.settlement import warn_of_low
from payres.operator.shapes import Column, Shape, Time, represent
from payres.operator.store import entries
from payres.operator.store.entries import MOVEMENTS, MovementRecord

MovementKind = Literal["deposit", "withdrawal"]

ACTIONS: Final[Mapping[MovementKind, str]] = {"deposit": "deposit", "withdrawal": "withdraw"}
EVENTS: Final[Mapping[MovementKind, str]] = {"deposit": "wallet.deposited", "withdrawal": "wallet.withdrawn"}


class Movement(Resource, frozen=True, kw_only=True):
    """A deposit from outside, or a withdrawal."""

    id: str
    kind: str
    amount: str
    asset_code: str
    asset_scale: int
    reference: str | None
    created_at: Time


def movement(work: Work, record: MovementRecord) -> Movement:
    asset = ASSETS.by_id(work, ACCOUNTS.by_id(work, record.account_id).asset_id).asset
    return represent(
        Movement, record, amount=format_decimal(record.amount, asset), asset_code=asset.code, asset_scale=asset.scale
    )


MOVEMENT: Final = Shape(
    movement,
    Column("Time (UTC)", "created_at", "time"),
    Column("What", "kind"),
    Column("Amount", "amount", "number"),
    Column("Asset", "asset_code", listed="in files"),
    Column("Reference", "reference", "long"),
)


class NamedAccount(msgspec.Struct, frozen=True):
    """An account that money moves into or out of. `name` is its name in the audit log, `holder` its name in
    sentences."""

    id: int
    asset: AssetRecord
    kind: str
    name: str
    holder: str


def move(
    work: Work, account: NamedAccount, kind: MovementKind, text: str, reference: str | None = None
) -> MovementRecord:
    """Moves an amount such as "100.00" from outside to the account, or from the account to outside.

    Raises InvalidAmount, InvalidRequest for a reference, WrongState for one that another movement has;
    InsufficientFunds for a withdrawal, whose reason is the kind of the account.
    """
    amount, asset = require_amount(text, account.asset.asset), account.asset
    found = _find(work, account, kind, amount, reference)
    if found is not None:
        return found
    external = ledger.operator_account(work, asset.id, "external")
    sides = (external, account.id) if kind == "deposit" else (account.id, external)
    try:
        moved = ledger.transfer(work, *sides, amount, kind)
        warn_of_low(work, moved.low)
    except ledger.NotEnough as lack:
        free, needed = (format_decimal(figure, asset.asset) for figure in (lack.free, amount))
        raise InsufficientFunds(
            f"{account.holder} has {asset.code} {free} free, less than {asset.code} {needed}",
            reason=account.kind,
            free=free,
        ) from lack
    return _record(work, account, moved.id, kind, amount, reference)


def _find(
    work: Work, account: NamedAccount, kind: MovementKind, amount: int, reference: str | None
) -> MovementRecord | None:
    """The movement with this reference, if there is one."""
    if reference is None:
        return None
    check_reference(reference)
    found = entries.find_movement(work, account.id, reference)
    if found is not None and (found.kind, found.amount) != (kind, amount):
        was = describe_amount(found.amount, account.asset.asset)
        raise WrongState(
            f"The reference {reference!r} is that of a {found.kind} of {was}; give each movement one of its own",
            reference=reference,
        )
    return found


def _record(
    work: Work, account: NamedAccount, transfer_id: int, kind: MovementKind, amount: int, reference: str | None
) -> MovementRecord:
    movement_id = work.new_id()
    MOVEMENTS.create(
        work, id=movement_id, account_id=account.id, transfer_id=transfer_id, reference=reference, created_at=work.now
    )
    shown = f"{format_decimal(amount, account.asset.asset)} {account.asset.code}"
    server.record(work, f"{account.kind}.{ACTIONS[kind]}", account.name, amount=shown, reference=reference)
    if account.kind == "wallet":
        _emit(work, account, kind, amount, reference)
    elif account.kind == "liquidity":
        ledger.watch(work, account.id)
    return MOVEMENTS.by_id(work, movement_id)


def _emit(work: Work, account: NamedAccount, kind: MovementKind, amount: int, reference: str | None) -> None:
    balance, asset = ACCOUNTS.by_id(work, account.id).balance, account.asset.asset
    data = WalletEvent(
        wallet_address=work.urls.wallet(account.name),
        amount=representations.amount(amount, asset),
        balance=representations.amount(balance, asset),
        reference=UNSET if reference is None else reference,
    )
    wallet = find_wallet(work, account.name)
    work.emit(EVENTS[kind], None, data, None if wallet is None else wallet.id)
