"""SQL of deposits and withdrawals, and of accounts by their names."""

from collections.abc import Sequence

import msgspec

from payres.core.protocol.amounts import Asset
from payres.core.protocol.clock import CORRECTION
from payres.core.protocol.identifiers import first_identifier
from payres.core.store.rows import Embedded, PageBounds, PageQuery, Table, lasting, select_page
from payres.core.store.work import Transaction
from payres.people.store.transfers import holder


class NamedAccount(msgspec.Struct, frozen=True):
    """An account that money moves into or out of. `name` is its name in the audit log: `alice`, or `USD 2`."""

    id: int
    kind: str
    asset_id: int
    asset_code: str
    asset_scale: int
    name: str

    @property
    def asset(self) -> Asset:
        return Asset(self.asset_code, self.asset_scale)


class MovementRecord(msgspec.Struct, frozen=True):
    """A row of `movement` with its account, and the kind and amount of its transfer; kind is `deposit` or `withdrawal`.
    undone_by is the movement that undoes it."""

    id: str
    account: NamedAccount
    transfer_id: int
    reference: str | None
    created_at: int
    undoes: str | None
    undone_by: str | None
    kind: str
    amount: int


NAMED_ACCOUNTS = Table(
    NamedAccount,
    "account a JOIN asset s ON s.id = a.asset_id",
    prefix="a.",
    asset_code="s.code",
    asset_scale="s.scale",
    name=holder("a"),
)


MOVEMENTS = Table(
    MovementRecord,
    "movement m JOIN transfer t ON t.id = m.transfer_id"
    " JOIN account a ON a.id = m.account_id JOIN asset s ON s.id = a.asset_id",
    prefix="m.",
    account=Embedded(
        ["a.id", "a.kind", "a.asset_id", "s.code", "s.scale", holder("a")],
        lambda row: NamedAccount(*row),
        msgspec.structs.astuple,
    ),
    undone_by="(SELECT id FROM movement WHERE undoes = m.id)",
    kind="t.kind",
    amount="t.amount",
)


def equal_movement(
    tx: Transaction, account_id: int, kind: str, amount: int, now: int, lifetime: int
) -> MovementRecord | None:
    """The newest movement of the same amount in the last `lifetime`, unless it was undone."""
    recent, times = lasting("m.created_at", now - lifetime, lifetime)
    stands = "m.undoes IS NULL AND NOT EXISTS (SELECT 1 FROM movement WHERE undoes = m.id)"
    where = f"WHERE m.account_id = ? AND m.id >= ? AND t.kind = ? AND t.amount = ? AND {recent} AND {stands}"
    values = (account_id, first_identifier(now - lifetime - CORRECTION), kind, amount, *times)
    return MOVEMENTS.find(tx, f"{where} ORDER BY m.id DESC LIMIT 1", *values)


def movement_of_reference(tx: Transaction, kind: str, reference: str) -> MovementRecord | None:
    """The newest movement of a kind with the reference, of any account."""
    return MOVEMENTS.find(tx, "WHERE m.reference = ? AND t.kind = ? ORDER BY m.id DESC LIMIT 1", reference, kind)


def page_of_movements(tx: Transaction, account_id: int, page: PageQuery) -> tuple[Sequence[MovementRecord], PageBounds]:
    """A page of an account's movements, newest first."""
    return select_page(tx, MOVEMENTS, page, {"m.account_id = ?": account_id})
