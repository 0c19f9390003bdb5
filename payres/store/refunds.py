"""SQL of refunds."""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from payres.store.rows import Table
from payres.store.work import Transaction

RefundState = Literal["sending", "completed", "failed"]


class RefundRecord(msgspec.Struct, frozen=True):
    """A refund, to the wallet here whose outgoing payment it undoes, or by a return payment to a wallet address.

    `amount` is what shall leave the receiver's wallet. `counted` of it counts as sent back: all while it is on its way,
    in the end what has been sent, or may have been. `returned` has arrived, in the asset of who gets it.
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


# What of refund `r` counts as sent back, by its return payment `p`, if it has one.
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


def refunds_of_incoming(tx: Transaction, payment_id: str) -> Sequence[RefundRecord]:
    """What of an incoming payment was sent back, oldest first."""
    found = REFUNDS.list(tx, "WHERE r.incoming_payment_id = ?", payment_id)
    return sorted(found, key=lambda refund: refund.id)


def refunds_of_outgoing(tx: Transaction, payment_id: str) -> Sequence[RefundRecord]:
    """What came back to the payer of an outgoing payment, oldest first."""
    found = REFUNDS.list(tx, "WHERE r.outgoing_payment_id = ?", payment_id)
    return sorted(found, key=lambda refund: refund.id)


def refund_by_return_payment(tx: Transaction, payment_id: str) -> RefundRecord | None:
    """The refund that an outgoing payment sends, if it does."""
    return REFUNDS.find(tx, "WHERE r.return_payment_id = ?", payment_id)
