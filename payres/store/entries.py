"""SQL of what the ledger has recorded, as operators read it."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from payres.amounts import Asset
from payres.store.pages import PageBounds, PageQuery, select_page
from payres.store.payments import PaymentRecord
from payres.store.rows import Table
from payres.store.work import Transaction


class EntryRecord(msgspec.Struct, frozen=True):
    """A row of `transfer` with the names of its two accounts, such as `wallet alice` and `liquidity USD 2`, and the
    refund that it belongs to, also by a payment that sends one."""

    id: int
    kind: str
    amount: int
    asset_code: str
    asset_scale: int
    debit: str
    credit: str
    outgoing_payment_id: str | None
    incoming_payment_id: str | None
    packet_id: str | None
    refund_id: str | None
    created_at: int

    @property
    def asset(self) -> Asset:
        return Asset(self.asset_code, self.asset_scale)


def account_name(account: str) -> str:
    """SQL: the name of an account, whose alias this is, beside its asset `s`."""
    return (
        f"{account}.kind || ' ' || CASE {account}.kind"
        f" WHEN 'wallet' THEN (SELECT path FROM wallet_address WHERE account_id = {account}.id)"
        f" WHEN 'peer' THEN (SELECT name FROM peer WHERE account_id = {account}.id)"
        " ELSE s.code || ' ' || s.scale END"
    )


# SQL: the refund that transfer `t` belongs to, also by a payment that sends one.
REFUND_OF_TRANSFER: Final = (
    "coalesce(t.refund_id, (SELECT id FROM refund WHERE return_payment_id = t.outgoing_payment_id))"
)
ENTRIES = Table(
    EntryRecord,
    "transfer t JOIN account d ON d.id = t.debit_account_id JOIN account c ON c.id = t.credit_account_id"
    " JOIN asset s ON s.id = d.asset_id",
    prefix="t.",
    asset_code="s.code",
    asset_scale="s.scale",
    debit=account_name("d"),
    credit=account_name("c"),
    refund_id=REFUND_OF_TRANSFER,
)


def page_of_entries(
    tx: Transaction, query: PageQuery, *, account_id: int | None = None, payment: PaymentRecord | None = None
) -> tuple[Sequence[EntryRecord], PageBounds]:
    """A page, newest first; of one account, of one payment.

    No index leads to those of an account: it would make each payment a tenth slower.
    """
    conditions: dict[str, Any] = {}
    if payment is not None:
        conditions[f"t.{payment.direction}_payment_id = ?"] = payment.id
    if account_id is not None:
        conditions["? IN (t.debit_account_id, t.credit_account_id)"] = account_id
    return select_page(tx, ENTRIES, query, conditions)
