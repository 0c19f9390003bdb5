"""SQL of exports of the ledger: all its transfers, a batch of ids at a time, so that no transaction is long."""

from collections.abc import Sequence

import msgspec

from payres.amounts import Asset
from payres.store.entries import ENTRIES, REFUND_OF_TRANSFER, account_name
from payres.store.rows import Table, number
from payres.store.work import Transaction


class TransferLine(msgspec.Struct, frozen=True):
    """A posted transfer with the names of both accounts, as entries have them.

    `receiver` and `payer` are the receiver and the wallet path of the outgoing payment behind it.
    """

    id: int
    created_at: int
    kind: str
    amount: int
    asset_code: str
    asset_scale: int
    credit_account_id: int
    debit: str
    credit: str
    outgoing_payment_id: str | None
    incoming_payment_id: str | None
    receiver: str | None
    payer: str | None

    @property
    def asset(self) -> Asset:
        return Asset(self.asset_code, self.asset_scale)


LINES = Table(
    TransferLine,
    f"{ENTRIES.source} LEFT JOIN refund r ON r.id = {REFUND_OF_TRANSFER}"
    " LEFT JOIN outgoing_payment o ON o.id = t.outgoing_payment_id"
    " LEFT JOIN wallet_address ow ON ow.id = o.wallet_address_id",
    prefix="t.",
    kind="CASE WHEN r.id IS NULL THEN t.kind ELSE 'refund' END",
    asset_code="s.code",
    asset_scale="s.scale",
    debit=account_name("d"),
    credit=account_name("c"),
    outgoing_payment_id="coalesce(t.outgoing_payment_id, r.outgoing_payment_id)",
    incoming_payment_id="coalesce(t.incoming_payment_id, r.incoming_payment_id)",
    receiver="o.receiver",
    payer="ow.path",
)


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
