"""SQL of exports: all payments and transfers, a batch of keys at a time, so that no transaction is long."""

from collections.abc import Sequence
from typing import NamedTuple

from payres.store.work import Transaction


class TransferLine(NamedTuple):
    """A posted transfer with the names of both accounts: a wallet's path, a peer's name, or None.

    `receiver` and `payer` are the receiver and the wallet path of the outgoing payment behind it.
    """

    id: int
    created_at: int
    kind: str
    amount: int
    code: str
    scale: int
    debit_account_id: int
    debit_kind: str
    debit_name: str | None
    credit_account_id: int
    credit_kind: str
    credit_name: str | None
    outgoing_payment_id: str | None
    incoming_payment_id: str | None
    receiver: str | None
    payer: str | None


class PaymentQuery(NamedTuple):
    """Which payments: with an id after one and before another, of a time, and of one wallet if it is given."""

    after: str
    before: str
    since: int
    until: int
    wallet: int | None


class PaymentLine(NamedTuple):
    """A payment of one of both directions. `amount` is the text of what was asked for, `moved` was received or sent."""

    id: str
    created_at: int
    path: str
    code: str
    scale: int
    amount: str | None
    moved: int
    state: str
    failure: str | None
    receiver: str | None
    ended_at: int | None
    metadata: str | None


_TRANSFERS = """
    SELECT t.id, t.created_at, CASE WHEN t.refund_id IS NULL THEN t.kind ELSE 'refund' END, t.amount, s.code, s.scale,
      t.debit_account_id, d.kind, coalesce(dw.path, dp.name), t.credit_account_id, c.kind, coalesce(cw.path, cp.name),
      coalesce(t.outgoing_payment_id, r.outgoing_payment_id), coalesce(t.incoming_payment_id, r.incoming_payment_id),
      o.receiver, ow.path
    FROM transfer t
    JOIN account d ON d.id = t.debit_account_id
    JOIN account c ON c.id = t.credit_account_id
    JOIN asset s ON s.id = d.asset_id
    LEFT JOIN wallet_address dw ON dw.account_id = d.id LEFT JOIN peer dp ON dp.account_id = d.id
    LEFT JOIN wallet_address cw ON cw.account_id = c.id LEFT JOIN peer cp ON cp.account_id = c.id
    LEFT JOIN refund r ON r.id = t.refund_id
    LEFT JOIN outgoing_payment o ON o.id = t.outgoing_payment_id
    LEFT JOIN wallet_address ow ON ow.id = o.wallet_address_id
    WHERE t.id BETWEEN :first AND :last AND t.created_at >= :since AND t.created_at < :until
"""
_OF_ACCOUNT = " AND :account IN (t.debit_account_id, t.credit_account_id)"


def transfers(
    tx: Transaction, first: int, last: int, since: int, until: int, account_id: int | None = None
) -> Sequence[TransferLine]:
    """The transfers with these ids, of a time, and of one account if it is given; oldest first."""
    sql = _TRANSFERS + (_OF_ACCOUNT if account_id is not None else "") + " ORDER BY t.id"
    values = {"first": first, "last": last, "since": since, "until": until, "account": account_id}
    return [TransferLine(*row) for row in tx.execute(sql, values)]


def last_transfer(tx: Transaction) -> int:
    """The highest id of a transfer, 0 when there is none."""
    figure: int = tx.execute("SELECT coalesce(max(id), 0) FROM transfer").fetchone()[0]
    return figure


def net_change(tx: Transaction, account_id: int, first: int, last: int, until: int) -> int:
    """Credits less debits of an account, by the transfers with these ids before a time, in the minor unit."""
    rows = tx.execute(
        "SELECT CASE WHEN credit_account_id = :account THEN amount ELSE -amount END FROM transfer"
        " WHERE id BETWEEN :first AND :last AND created_at < :until"
        " AND :account IN (debit_account_id, credit_account_id)",
        {"account": account_id, "first": first, "last": last, "until": until},
    )
    return sum(amount for (amount,) in rows)  # which may pass what SQLite adds up


_INCOMING = """
    SELECT p.id, p.created_at, w.path, s.code, s.scale, p.incoming_value, p.received,
      CASE WHEN p.completed_at IS NOT NULL THEN 'completed' WHEN p.expires_at <= :now THEN 'expired' ELSE 'pending' END,
      NULL, NULL, coalesce(p.completed_at, CASE WHEN p.expires_at <= :now THEN p.expires_at END), p.metadata
    FROM incoming_payment p
"""
_OUTGOING = """
    SELECT p.id, p.created_at, w.path, s.code, s.scale, CAST(p.debit AS TEXT), p.sent, p.state,
      p.failure, p.receiver, p.ended_at, p.metadata
    FROM outgoing_payment p
"""
_PAGE = """
    JOIN wallet_address w ON w.id = p.wallet_address_id JOIN asset s ON s.id = w.asset_id
    WHERE p.id > :after AND p.id < :before{of_wallet} AND p.created_at >= :since AND p.created_at < :until
    ORDER BY p.id LIMIT :rows
"""


def payments(tx: Transaction, direction: str, query: PaymentQuery, rows: int, now: int) -> Sequence[PaymentLine]:
    """The first so many `incoming` or `outgoing` payments, oldest first."""
    of_wallet = "" if query.wallet is None else " AND p.wallet_address_id = :wallet"
    sql = (_INCOMING if direction == "incoming" else _OUTGOING) + _PAGE.format(of_wallet=of_wallet)
    return [PaymentLine(*row) for row in tx.execute(sql, query._asdict() | {"rows": rows, "now": now})]
