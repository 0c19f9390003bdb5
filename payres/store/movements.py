"""SQL of what operators moved between accounts and the world outside."""

from collections.abc import Sequence

import msgspec

from payres.store.pages import PageBounds, PageQuery, select_page
from payres.store.rows import Table
from payres.store.work import Transaction


class MovementRecord(msgspec.Struct, frozen=True):
    """A row of `movement`, with the kind and the amount of its transfer; kind is `deposit` or `withdrawal`."""

    id: str
    account_id: int
    transfer_id: int
    reference: str | None
    created_at: int
    kind: str
    amount: int


MOVEMENTS = Table(
    MovementRecord, "movement m JOIN transfer t ON t.id = m.transfer_id", prefix="m.", kind="t.kind", amount="t.amount"
)


def find_movement(tx: Transaction, account_id: int, reference: str) -> MovementRecord | None:
    return MOVEMENTS.find(tx, "WHERE m.account_id = ? AND m.reference = ?", account_id, reference)


def page_of_movements(
    tx: Transaction, account_id: int, query: PageQuery
) -> tuple[Sequence[MovementRecord], PageBounds]:
    """A page of those of one account, newest first."""
    return select_page(tx, MOVEMENTS, query, {"m.account_id = ?": account_id})
