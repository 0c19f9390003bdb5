"""What events tell of refunds. Operators make them: `payres.operator.refunds`."""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from payres.core.protocol.amounts import Asset
from payres.core.protocol.event_types import OutgoingPaymentEvent, RefundEvent
from payres.core.store.outgoing_payments import OutgoingRecord
from payres.core.store.representations import amount
from payres.core.store.wallets import WalletRecord
from payres.core.store.work import Work
from payres.people.store.refunds import REFUNDS, RefundRecord


def emit_return_payment(
    work: Work, wallet: WalletRecord, payment: OutgoingRecord, event: OutgoingPaymentEvent, names: Sequence[str]
) -> None:
    """Writes the events of a payment without a grant. If it sends a refund, they name what is refunded, and one more
    follows when it has arrived. Fills the port `Environment.emit_ungranted`."""
    refund = REFUNDS.find(work, return_payment_id=payment.id)
    if refund is not None:
        refunded = work.urls.resource("incoming-payments", refund.incoming_payment_id)
        event = msgspec.structs.replace(event, refund_of=refunded)
    work.emit(names, payment.id, event, wallet.id)
    if refund is not None and payment.state == "completed":
        emit_refund(work, wallet, refund, payment.terms.asset)


def emit_refund(work: Work, wallet: WalletRecord, refund: RefundRecord, returned: Asset) -> None:
    """Writes the event of a refund that has arrived: `wallet` sent it, `returned` is the refunded payer's asset."""

    def payment(payment_id: str | None) -> str | UnsetType:
        return UNSET if payment_id is None else work.urls.resource("outgoing-payments", payment_id)

    event = RefundEvent(
        id=refund.id,
        incoming_payment=work.urls.resource("incoming-payments", refund.incoming_payment_id),
        outgoing_payment=payment(refund.outgoing_payment_id),
        return_payment=payment(refund.return_payment_id),
        wallet_address=refund.wallet_address or UNSET,
        amount=amount(refund.counted, wallet.asset),
        returned=amount(refund.returned, returned),
        reference=refund.reference,
    )
    work.emit("refund.completed", refund.id, event, wallet.id)
