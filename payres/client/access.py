"""Access items of grant requests: `access.quote("create", identifier=wallet.id)`."""

from collections.abc import Mapping

from msgspec import UNSET

from payres.client.checks import check_actions, given, valid
from payres.client.methods import checked
from payres.core.protocol import gnap
from payres.core.protocol.urls import pointed
from payres.core.protocol.wire import Amount


@checked
def incoming_payment(*actions: gnap.INCOMING_ACTIONS, identifier: str | None = None) -> gnap.IncomingPaymentAccess:
    """Access to incoming payments at the wallet address `identifier`, or at any of the server."""
    check_actions("incoming-payment", actions)
    item = gnap.IncomingPaymentAccess(actions=list(actions), identifier=given(pointed(identifier)))
    return valid(item, gnap.IncomingPaymentAccess)


@checked
def quote(*actions: gnap.QUOTE_ACTIONS, identifier: str | None = None) -> gnap.QuoteAccess:
    """Access to quotes for payments from the wallet address `identifier`."""
    check_actions("quote", actions)
    return valid(gnap.QuoteAccess(actions=list(actions), identifier=given(pointed(identifier))), gnap.QuoteAccess)


@checked
def outgoing_payment(
    *actions: gnap.OUTGOING_ACTIONS,
    identifier: str,
    debit_amount: Amount | Mapping[str, object] | None = None,
    receive_amount: Amount | Mapping[str, object] | None = None,
    receiver: str | None = None,
    interval: str | None = None,
) -> gnap.OutgoingPaymentAccess:
    """Access to outgoing payments from the wallet address `identifier`, within these limits."""
    check_actions("outgoing-payment", actions)
    limits = gnap.Limits(
        receiver=given(receiver),
        debit_amount=given(debit_amount),
        receive_amount=given(receive_amount),
        interval=given(interval),
    )
    item = gnap.OutgoingPaymentAccess(
        actions=list(actions),
        identifier=pointed(identifier),
        limits=UNSET if limits == gnap.Limits() else valid(limits, gnap.Limits),
    )
    return valid(item, gnap.OutgoingPaymentAccess)
