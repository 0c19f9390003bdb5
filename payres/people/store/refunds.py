"""SQL of refunds: what was sent back of an incoming payment, and what can still be."""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from payres.core.store.rows import Table, number
from payres.core.store.work import Transaction

Direction = Literal["incoming", "outgoing"]
RefundState = Literal["sending", "completed", "failed"]


class RefundRecord(msgspec.Struct, frozen=True):
    """A refund, to the local wallet of the refunded outgoing payment, or by a return payment to a wallet address.

    `amount` is to leave the receiver's wallet. `counted` is the part that counts as refunded: all of it while in
    flight, in the end what was sent or possibly sent. `returned` has arrived, in the refunded payer's asset.
    """

    id: str
    incoming_payment_id: str
    outgoing_payment_id: str | None
    return_payment_id: str | None
    wallet_address: str | None
    amount: int
    counted: int
    returned: int
    reference: str
    state: RefundState
    failure: str | None
    created_at: int
    ended_at: int | None
    why: str | None


# The counted part of refund `r`, given its return payment `p`, if any.
REFUND_COUNTED: Final = (
    "CASE coalesce(p.state, '') WHEN '' THEN r.amount WHEN 'sending' THEN p.debit ELSE p.sent + p.unresolved_debit END"
)
REFUNDS: Final = Table(
    RefundRecord,
    "refund r LEFT JOIN outgoing_payment p ON p.id = r.return_payment_id",
    prefix="r.",
    counted=REFUND_COUNTED,
    returned="coalesce(r.returned, p.delivered)",
    state="coalesce(p.state, 'completed')",
    failure="p.failure",
    ended_at="iif(p.id IS NULL, r.created_at, p.ended_at)",
)
# The local outgoing payments `o` that paid an incoming payment; and the part of one not yet refunded.
_PAYERS: Final = """(
  SELECT DISTINCT outgoing_payment_id AS id FROM transfer
  WHERE incoming_payment_id = ? AND outgoing_payment_id IS NOT NULL
) payer JOIN outgoing_payment o ON o.id = payer.id"""
_OPEN_PART: Final = "o.delivered - coalesce((SELECT sum(amount) FROM refund WHERE outgoing_payment_id = o.id), 0)"


def payers_of(tx: Transaction, incoming_payment_id: str, limit: int) -> Sequence[str]:
    """The ids of the local outgoing payments that paid an incoming payment, newest first."""
    rows = tx.execute(f"SELECT o.id FROM {_PAYERS} ORDER BY o.id DESC LIMIT ?", (incoming_payment_id, limit))
    return [payment_id for (payment_id,) in rows]


def delivered_here(tx: Transaction, incoming_payment_id: str) -> int:
    """The sum that local outgoing payments delivered to an incoming payment."""
    return number(tx, f"SELECT sum(o.delivered) FROM {_PAYERS}", incoming_payment_id)


def open_parts(tx: Transaction, incoming_payment_id: str) -> Sequence[tuple[str, int]]:
    """The ids of the local outgoing payments to an incoming payment, newest first, each with its part not yet refunded;
    fully refunded ones are left out."""
    found = f"SELECT o.id, {_OPEN_PART} AS part FROM {_PAYERS} WHERE part > 0 ORDER BY o.id DESC"
    return tx.execute(found, (incoming_payment_id,)).fetchall()


def open_part(tx: Transaction, payment_id: str) -> int:
    """The part of an outgoing payment not yet refunded."""
    return number(tx, f"SELECT {_OPEN_PART} FROM outgoing_payment o WHERE o.id = ?", payment_id)


def refunds_of(tx: Transaction, direction: Direction, payment_id: str, limit: int) -> Sequence[RefundRecord]:
    """The newest refunds of an incoming or outgoing payment, oldest first."""
    newest = f"WHERE r.{direction}_payment_id = ? ORDER BY r.id DESC LIMIT ?"
    return REFUNDS.list(tx, newest, payment_id, limit)[::-1]


def sent_back(tx: Transaction, payment_id: str, remote: bool = False) -> int:
    """The counted refunds of an incoming payment; with `remote`, only those to given wallet addresses."""
    condition = " AND r.outgoing_payment_id IS NULL" if remote else ""
    where = f"WHERE r.incoming_payment_id = ?{condition}"
    return number(tx, f"SELECT sum({REFUND_COUNTED}) FROM {REFUNDS.source} {where}", payment_id)


def came_back(tx: Transaction, payment_id: str) -> int:
    """The amount refunded to the payer of an outgoing payment."""
    return number(tx, "SELECT sum(returned) FROM refund WHERE outgoing_payment_id = ?", payment_id)
