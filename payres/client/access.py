"""Access items of grant requests: `access.quote("create", identifier=wallet.id)`."""

from collections.abc import Mapping

from msgspec import UNSET

from payres.client.checks import check_actions, given, valid
from payres.client.sending import checked
from payres.core.protocol.gnap import (
    INCOMING_ACTIONS,
    OUTGOING_ACTIONS,
    QUOTE_ACTIONS,
    IncomingPaymentAccess,
    Limits,
    OutgoingPaymentAccess,
    QuoteAccess,
)
from payres.core.protocol.urls import pointed
from payres.core.protocol.wire import Amount


@checked
def incoming_payment(*actions: INCOMING_ACTIONS, identifier: str | None = None) -> IncomingPaymentAccess:
    """Access to incoming payments at the wallet address `identifier`, or at any of the server."""
    check_actions("incoming-payment", actions)
    item = IncomingPaymentAccess(actions=list(actions), identifier=given(pointed(identifier)))
    return valid(item, IncomingPaymentAccess)


@checked
def quote(*actions: QUOTE_ACTIONS, identifier: str | None = None) -> QuoteAccess:
    """Access to quotes for payments from the wallet address `identifier`."""
    check_actions("quote", actions)
    return valid(QuoteAccess(actions=list(actions), identifier=given(pointed(identifier))), QuoteAccess)


@checked
def outgoing_payment(
    *actions: OUTGOING_ACTIONS,
    identifier: str,
    debit_amount: Amount | Mapping[str, object] | None = None,
    receive_amount: Amount | Mapping[str, object] | None = None,
    receiver: str | None = None,
    interval: str | None = None,
) -> OutgoingPaymentAccess:
    """Access to outgoing payments from the wallet address `identifier`, within these limits."""
    check_actions("outgoing-payment", actions)
    limits = Limits(
        receiver=given(receiver),
        debit_amount=given(debit_amount),
        receive_amount=given(receive_amount),
        interval=given(interval),
    )
    item = OutgoingPaymentAccess(
        actions=list(actions),
        identifier=pointed(identifier),
        limits=UNSET if limits == Limits() else valid(limits, Limits),
    )
    return valid(item, OutgoingPaymentAccess)
