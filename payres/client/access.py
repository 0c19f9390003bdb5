"""Access items of grant requests: `access.quote("create", identifier=wallet.id)`."""

from msgspec import UNSET

from payres.gnap import (
    INCOMING_ACTIONS,
    OUTGOING_ACTIONS,
    QUOTE_ACTIONS,
    IncomingPaymentAccess,
    Limits,
    OutgoingPaymentAccess,
    QuoteAccess,
)
from payres.wire import Amount


def incoming_payment(*actions: INCOMING_ACTIONS, identifier: str | None = None) -> IncomingPaymentAccess:
    """Access to incoming payments at the wallet address `identifier`, or at any of the server."""
    return IncomingPaymentAccess(actions=list(actions), identifier=identifier or UNSET)


def quote(*actions: QUOTE_ACTIONS, identifier: str | None = None) -> QuoteAccess:
    """Access to quotes for payments from the wallet address `identifier`."""
    return QuoteAccess(actions=list(actions), identifier=identifier or UNSET)


def outgoing_payment(
    *actions: OUTGOING_ACTIONS,
    identifier: str,
    debit_amount: Amount | None = None,
    receive_amount: Amount | None = None,
    receiver: str | None = None,
    interval: str | None = None,
) -> OutgoingPaymentAccess:
    """Access to outgoing payments from the wallet address `identifier`, within these limits."""
    limits = Limits(
        receiver=receiver or UNSET,
        debit_amount=debit_amount or UNSET,
        receive_amount=receive_amount or UNSET,
        interval=interval or UNSET,
    )
    return OutgoingPaymentAccess(
        actions=list(actions), identifier=identifier, limits=UNSET if limits == Limits() else limits
    )
