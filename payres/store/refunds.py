"""SQL of refunds."""

from collections.abc import Sequence

import msgspec

from payres.store.rows import Table
from payres.store.work import Transaction


class RefundRecord(msgspec.Struct, frozen=True):
    """A row of `refund`: amount is in the receiver's asset, returned in the payer's."""

    id: str
    incoming_payment_id: str
    outgoing_payment_id: str
    amount: int
    returned: int
    reference: str
    created_at: int


REFUNDS = Table(RefundRecord, "refund")


def insert_refund(tx: Transaction, refund: RefundRecord) -> None:
    REFUNDS.insert(tx, refund)


def refunds_of_incoming(tx: Transaction, payment_id: str) -> Sequence[RefundRecord]:
    """What of an incoming payment was sent back, oldest first."""
    found = REFUNDS.list(tx, "WHERE incoming_payment_id = ?", payment_id)
    return sorted(found, key=lambda refund: refund.id)


def refunds_of_outgoing(tx: Transaction, payment_id: str) -> Sequence[RefundRecord]:
    """What came back to the payer of an outgoing payment, oldest first."""
    found = REFUNDS.list(tx, "WHERE outgoing_payment_id = ?", payment_id)
    return sorted(found, key=lambda refund: refund.id)
