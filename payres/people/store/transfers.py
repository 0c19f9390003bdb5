"""SQL of the transfers of the ledger, with the names of both accounts."""

from collections.abc import Sequence
from typing import Final

import msgspec

from payres.core.protocol.amounts import Asset
from payres.core.store.rows import Table
from payres.core.store.work import Transaction


def account_name(account: str) -> str:
    """SQL for the name of an account, given its alias; the alias of its asset is `s`."""
    return f"{account}.kind || ' ' || {holder(account)}"


def holder(account: str) -> str:
    """SQL for whose account it is, or the asset of the operator's."""
    return (
        f"CASE {account}.kind"
        f" WHEN 'wallet' THEN (SELECT path FROM wallet_address WHERE account_id = {account}.id)"
        f" WHEN 'peer' THEN (SELECT name FROM peer WHERE account_id = {account}.id)"
        " ELSE s.code || ' ' || s.scale END"
    )


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
