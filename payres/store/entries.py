"""SQL of what the ledger has recorded, as operators read it: pages of it, and for exports all of it; what
operators moved by hand; and how much wallets paid and received a day.

Exports take a batch of ids at a time, so that no transaction is long.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from payres.amounts import Asset
from payres.clock import DAY
from payres.store.payments import PaymentRecord
from payres.store.rows import PageBounds, PageQuery, Table, number, select_page
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


class TransferLine(EntryRecord, frozen=True):
    """An entry with the account that it was credited to, and the receiver and the wallet path of the outgoing payment
    behind it. What belongs to a refund is of this kind, between the payments of the refund."""

    credit_account_id: int
    receiver: str | None
    payer: str | None


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
COLUMNS: Final = {
    "asset_code": "s.code",
    "asset_scale": "s.scale",
    "debit": account_name("d"),
    "credit": account_name("c"),
    "refund_id": REFUND_OF_TRANSFER,
}
ENTRIES = Table(
    EntryRecord,
    "transfer t JOIN account d ON d.id = t.debit_account_id JOIN account c ON c.id = t.credit_account_id"
    " JOIN asset s ON s.id = d.asset_id",
    prefix="t.",
    **COLUMNS,
)
LINES = Table(
    TransferLine,
    f"{ENTRIES.source} LEFT JOIN refund r ON r.id = {REFUND_OF_TRANSFER}"
    " LEFT JOIN outgoing_payment o ON o.id = t.outgoing_payment_id"
    " LEFT JOIN wallet_address ow ON ow.id = o.wallet_address_id",
    prefix="t.",
    **COLUMNS
    | {
        "kind": "CASE WHEN r.id IS NULL THEN t.kind ELSE 'refund' END",
        "outgoing_payment_id": "coalesce(t.outgoing_payment_id, r.outgoing_payment_id)",
        "incoming_payment_id": "coalesce(t.incoming_payment_id, r.incoming_payment_id)",
        "refund_id": "r.id",
        "receiver": "o.receiver",
        "payer": "ow.path",
    },
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


def transfers(
    tx: Transaction, first: int, last: int, since: int, until: int, account_id: int | None = None
) -> Sequence[TransferLine]:
    """The transfers with these ids, of a time, and of one account if it is given; oldest first."""
    where = "WHERE t.id BETWEEN ? AND ? AND t.created_at >= ? AND t.created_at < ?"
    if account_id is None:
        return LINES.list(tx, f"{where} ORDER BY t.id", first, last, since, until)
    of_account = "AND ? IN (t.debit_account_id, t.credit_account_id)"
    return LINES.list(tx, f"{where} {of_account} ORDER BY t.id", first, last, since, until, account_id)


def last_transfer(tx: Transaction) -> int:
    """The highest id of a transfer, 0 when there is none."""
    return number(tx, "SELECT max(id) FROM transfer")


def net_change(tx: Transaction, account_id: int, first: int, last: int, until: int) -> int:
    """Credits less debits of an account, by the transfers with these ids before a time, in the minor unit."""
    rows = tx.execute(
        "SELECT CASE WHEN credit_account_id = :account THEN amount ELSE -amount END FROM transfer"
        " WHERE id BETWEEN :first AND :last AND created_at < :until"
        " AND :account IN (debit_account_id, credit_account_id)",
        {"account": account_id, "first": first, "last": last, "until": until},
    )
    return sum(amount for (amount,) in rows)  # which may pass what SQLite adds up


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


_HALF = 1 << 32  # SQLite adds up no further than 2^63: the upper and the lower half are summed by themselves


class Flow(NamedTuple):
    """The transfers of one day (its number since 1970) and asset into wallets (`received`), or out of them."""

    day: int
    asset: Asset
    received: bool


def sums_by_day(tx: Transaction, first: int, last: int) -> Counter[Flow]:
    """What payments moved into wallets and out of them, by the transfers with these ids; refunds do not count."""
    found = Counter[Flow]()
    for side, received in (("debit", False), ("credit", True)):
        rows = tx.execute(
            "SELECT t.created_at / ?, s.code, s.scale, sum(t.amount >> 32), sum(t.amount & 4294967295)"
            f" FROM transfer t JOIN account a ON a.id = t.{side}_account_id AND a.kind = 'wallet'"
            " JOIN asset s ON s.id = a.asset_id"
            f" WHERE t.id BETWEEN ? AND ? AND t.kind IN ('payment', 'exchange') AND {REFUND_OF_TRANSFER} IS NULL"
            " GROUP BY 1, 2, 3",
            (DAY, first, last),
        )
        for day, code, scale, upper, lower in rows:
            found[Flow(day, Asset(code, scale), received)] = upper * _HALF + lower
    return found
