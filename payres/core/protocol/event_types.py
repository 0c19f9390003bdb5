"""The table of event types, and the structs of their data that are not shown by any endpoint."""

from collections.abc import Mapping
from typing import Final

from msgspec import UNSET, Raw, Struct, UnsetType

from payres.core.protocol.wire import Amount, IncomingPayment, OutgoingPayment, Resource

# Every type and when it occurs. A new type needs a line here and a call of `Work.emit` that writes it.
EVENT_TYPES: Final[Mapping[str, str]] = {
    "incoming_payment.created": "A client has created an incoming payment",
    "incoming_payment.partial_payment_received": "A part has arrived; at most one in 10 seconds for each payment",
    "incoming_payment.completed": "All that was asked for has arrived, or the client has completed it",
    "incoming_payment.expired": "It expired before it was completed",
    "outgoing_payment.created": "A client has created an outgoing payment",
    "outgoing_payment.completed": "All has been sent, or all that was quoted has arrived",
    "outgoing_payment.failed": "It has ended incomplete; `failure` is a sentence that says why",
    "grant.issued": "A client has got the token for a grant that a wallet's owner approved",
    "grant.denied": "A wallet's owner, or the operator, has denied a grant",
    "grant.revoked": "A grant that was approved has ended",
    "refund.completed": "The operator has sent back what an incoming payment received, or a part of it",
    "wallet.deposited": "The operator has put money into a wallet",
    "wallet.withdrawn": "The operator has taken money out of a wallet",
    "liquidity.low": "Less than a tenth of an asset's liquidity is left",
    "peer.credit_low": "Less than a tenth of a peer's credit limit is left",
    "peer.packet_unresolved": "The outcome of a packet stays unknown, and the operator must resolve it",
    "webhook.disabled": "An endpoint answered 410 and gets no more events",
    "webhook.test": "The operator tests an endpoint, which alone gets it",
}


class OutgoingPaymentEvent(OutgoingPayment, frozen=True, kw_only=True):
    """The payment as its client sees it, with the id of its grant, and the reason if it failed. `refund_of` is the
    incoming payment that it refunds: such a payment has no grant."""

    grant: str | UnsetType = UNSET
    refund_of: str | UnsetType = UNSET
    failure: str | UnsetType = UNSET


class GrantEvent(Resource, frozen=True, kw_only=True):
    """A grant with its client, named as the owner saw it, and the requested access items."""

    id: str
    client: str | None
    wallet_address: str
    access: Raw


class RefundEvent(Resource, frozen=True, kw_only=True):
    """`amount` left the receiver's wallet, `returned` has arrived, each in its own asset.

    It was returned to the payer of `outgoing_payment`, or `return_payment` sent it to `wallet_address`.
    """

    id: str
    incoming_payment: str
    outgoing_payment: str | UnsetType = UNSET
    return_payment: str | UnsetType = UNSET
    wallet_address: str | UnsetType = UNSET
    amount: Amount
    returned: Amount
    reference: str


class WalletEvent(Resource, frozen=True, kw_only=True):
    """A deposit or withdrawal, and the wallet's balance after it."""

    wallet_address: str
    amount: Amount
    balance: Amount
    reference: str | UnsetType = UNSET


class LiquidityEvent(Resource, frozen=True, kw_only=True):
    left: Amount


class PeerEvent(Resource, frozen=True, kw_only=True):
    peer: str
    left: Amount
    credit_limit: Amount


class PacketEvent(Resource, frozen=True, kw_only=True):
    """A packet of our own payment; `amount` is what we would owe the peer for it."""

    id: str
    peer: str
    outgoing_payment: str
    amount: Amount


class WebhookEvent(Resource, frozen=True, kw_only=True):
    webhook: str
    url: str


# The data of events, by the first word of their type or by all of it.
DATA: Final[Mapping[str, type[Struct]]] = {
    "incoming_payment": IncomingPayment,
    "outgoing_payment": OutgoingPaymentEvent,
    "grant": GrantEvent,
    "refund": RefundEvent,
    "wallet": WalletEvent,
    "liquidity": LiquidityEvent,
    "peer.credit_low": PeerEvent,
    "peer.packet_unresolved": PacketEvent,
    "webhook": WebhookEvent,
}
