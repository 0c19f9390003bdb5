"""SQL of the ledger's records as operators read them: pages and exports of transfers, manual deposits and withdrawals,
and daily sums of wallets.

Exports read a batch of ids at a time, to keep transactions short.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from payres.core.protocol.amounts import Asset
from payres.core.protocol.clock import CORRECTION, DAY, lasting
from payres.core.protocol.identifiers import first_identifier
from payres.core.store.rows import PageBounds, PageQuery, Table, select_page
from payres.core.store.work import Transaction
from payres.operator.store.all_payments import PaymentRecord


class EntryRecord(msgspec.Struct, frozen=True):
    """A row of `transfer` with the names of its two accounts, such as `wallet alice` and `liquidity USD 2`, and its
    refund, if it belongs to one directly or through the return payment."""

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
    """An entry with its credited account, and the receiver and wallet path of its outgoing payment. Transfers of a
    refund have the kind `refund`, and the ids of the two payments of the refund."""

    credit_account_id: int
    receiver: str | None
    payer: str | None


def account_name(account: str) -> str:
    """SQL for the name of an account, given its alias; the alias of its asset is `s`."""
    return f"{account}.kind || ' ' || {_holder(account)}"


def _holder(account: str) -> str:
    return (
        f"CASE {account}.kind"
        f" WHEN 'wallet' THEN (SELECT path FROM wallet_address WHERE account_id = {account}.id)"
        f" WHEN 'peer' THEN (SELECT name FROM peer WHERE account_id = {account}.id)"
        " ELSE s.code || ' ' || s.scale END"
    )


# SQL for the refund of transfer `t`, directly or through the return payment.
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
    """A page of transfers, newest first; all, or those of one account or payment. Those of an account are found among
    all, because its two sides are not in one order."""
    conditions: dict[str, Any] = {}
    if payment is not None:
        conditions[f"t.{payment.direction}_payment_id = ?"] = payment.id
    if account_id is not None:
        conditions["? IN (t.debit_account_id, t.credit_account_id)"] = account_id
    return select_page(tx, ENTRIES, query, conditions)


def transfers(
    tx: Transaction, first: int, last: int, since: int, until: int, account_id: int | None = None
) -> Sequence[TransferLine]:
    """The transfers in a range of ids and of times, of one account if given; oldest first."""
    where = "WHERE t.id BETWEEN ? AND ? AND t.created_at >= ? AND t.created_at < ?"
    if account_id is None:
        return LINES.list(tx, f"{where} ORDER BY t.id", first, last, since, until)
    of_account = "AND ? IN (t.debit_account_id, t.credit_account_id)"
    return LINES.list(tx, f"{where} {of_account} ORDER BY t.id", first, last, since, until, account_id)


def net_change(tx: Transaction, account_id: int, first: int, last: int, until: int) -> int:
    """Credits minus debits of an account, over the transfers with these ids before `until`, in the minor unit."""
    rows = tx.execute(
        "SELECT CASE WHEN credit_account_id = :account THEN amount ELSE -amount END FROM transfer"
        " WHERE id BETWEEN :first AND :last AND created_at < :until"
        " AND :account IN (debit_account_id, credit_account_id)",
        {"account": account_id, "first": first, "last": last, "until": until},
    )
    return sum(amount for (amount,) in rows)  # may exceed SQLite's integers


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
    """A row of `movement` with the kind and amount of its transfer; kind is `deposit` or `withdrawal`. undone_by is the
    movement that undoes it."""

    id: str
    account_id: int
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
    name=_holder("a"),
)
MOVEMENTS = Table(
    MovementRecord,
    "movement m JOIN transfer t ON t.id = m.transfer_id",
    prefix="m.",
    undone_by="(SELECT id FROM movement WHERE undoes = m.id)",
    kind="t.kind",
    amount="t.amount",
)


def find_movement(tx: Transaction, account_id: int, reference: str) -> MovementRecord | None:
    return MOVEMENTS.find(tx, "WHERE m.account_id = ? AND m.reference = ?", account_id, reference)


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


_HALF = 1 << 32  # SQLite cannot sum beyond 2^63, so the upper and lower halves are summed separately


class DailyFlow(NamedTuple):
    """Transfers of one day (its number since 1970) and asset, into wallets (`received`) or out of them."""

    day: int
    asset: Asset
    received: bool


def sums_by_day(tx: Transaction, first: int, last: int) -> Counter[DailyFlow]:
    """The sums of payments into and out of wallets, over the transfers with these ids; refunds are excluded."""
    found = Counter[DailyFlow]()
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
            found[DailyFlow(day, Asset(code, scale), received)] = upper * _HALF + lower
    return found
