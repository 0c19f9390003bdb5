"""What may arrive beyond an incomingAmount over Interledger."""

from payres.core.store.incoming_payments import IncomingRecord
from payres.interledger.limits import OVERPAY_TOLERANCE


def fits_with_tolerance(payment: IncomingRecord, amount: int, minimum: int) -> bool:
    """Whether an Interledger packet keeps the total within the incomingAmount, or exceeds it only by the rounding of
    senders: by the overpay tolerance, or by more if the sender's `minimum` is exactly the missing amount.

    One unit of the sender's asset may be worth many of the receiver's.
    """
    if payment.incoming_value is None:
        return True
    wanted = int(payment.incoming_value)
    missing = wanted - payment.received
    return amount <= missing + overpay_tolerance(wanted) or minimum == missing > 0


def overpay_tolerance(wanted: int) -> int:
    """The permitted excess of an incoming payment over Interledger: one unit, or 0.5 % rounded down."""
    return max(1, wanted // OVERPAY_TOLERANCE)
