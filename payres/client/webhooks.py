"""Webhooks: `webhooks.verify(body, headers, secret)` gives the event (Standard Webhooks 1.0)."""

import base64
import hmac
from collections.abc import Iterable, Mapping
from typing import Any, Final, Generic, Literal, TypeVar, get_args

import msgspec
from msgspec import UNSET, UnsetType

from payres.client.errors import ConfigurationError, WebhookRejected
from payres.client.methods import checked
from payres.client.resources import IncomingPayment, OutgoingPayment, Time, decode
from payres.core.protocol import event_types
from payres.core.protocol.clock import SECOND, Clock, SystemClock
from payres.core.protocol.event_types import LiquidityEvent as LiquidityEvent  # for apps
from payres.core.protocol.event_types import PacketEvent as PacketEvent
from payres.core.protocol.event_types import PeerEvent as PeerEvent
from payres.core.protocol.event_types import RefundEvent as RefundEvent
from payres.core.protocol.event_types import WalletEvent as WalletEvent
from payres.core.protocol.event_types import WebhookEvent as WebhookEvent

Kind = TypeVar("Kind", bound=str)
Data = TypeVar("Data")
PREFIX: Final = "whsec_"
SIGNED: Final = ("webhook-id", "webhook-timestamp", "webhook-signature")
SYSTEM_CLOCK: Final = SystemClock()
Headers = Mapping[str, str] | Iterable[tuple[str | bytes, str | bytes]]


class OutgoingPaymentEvent(OutgoingPayment, frozen=True, kw_only=True):
    """The payment with the id of its `grant`, or with `refund_of`, the incoming payment that it refunds; and the reason
    if it failed."""

    grant: str | UnsetType = UNSET
    refund_of: str | UnsetType = UNSET
    failure: str | UnsetType = UNSET


class GrantEvent(event_types.GrantEvent, frozen=True, kw_only=True):
    """A grant with its client, named as the owner saw it, and the requested access items."""

    access: list[dict[str, Any]]  # type: ignore[assignment]


class Event(msgspec.Struct, Generic[Kind, Data], frozen=True, kw_only=True):
    """An event that has happened at `timestamp`. The same `id` may come more than once; `sequence` gives the order.

    `data` is a struct of its type, such as an IncomingPayment; of types that this version does not know, a dict.
    """

    id: str
    type: Kind
    timestamp: Time
    sequence: int
    data: Data


# An event whose `type` tells type checkers its `data`: after `event.type == "wallet.deposited"` a WalletEvent.
AnyEvent = (
    Event[
        Literal[
            "incoming_payment.created",
            "incoming_payment.partial_payment_received",
            "incoming_payment.completed",
            "incoming_payment.expired",
        ],
        IncomingPayment,
    ]
    | Event[
        Literal["outgoing_payment.created", "outgoing_payment.completed", "outgoing_payment.failed"],
        OutgoingPaymentEvent,
    ]
    | Event[Literal["grant.issued", "grant.denied", "grant.revoked"], GrantEvent]
    | Event[Literal["refund.completed"], RefundEvent]
    | Event[Literal["wallet.deposited", "wallet.withdrawn"], WalletEvent]
    | Event[Literal["liquidity.low"], LiquidityEvent]
    | Event[Literal["peer.credit_low"], PeerEvent]
    | Event[Literal["peer.packet_unresolved"], PacketEvent]
    | Event[Literal["webhook.disabled", "webhook.test"], WebhookEvent]
    | Event[Literal["unknown"], dict[str, Any]]  # its type is any other: as a str, it would end the telling
)
# The struct of `data`, by type.
DATA: Final[Mapping[str, Any]] = {
    name: data for names, data in map(get_args, get_args(AnyEvent)[:-1]) for name in get_args(names)
}


@checked
def verify(
    body: bytes | bytearray | memoryview,
    headers: Headers,
    secret: str,
    *,
    tolerance: float = 300,
    clock: Clock = SYSTEM_CLOCK,
) -> AnyEvent:
    """The event of a webhook, given the bytes of its body as they came, its headers, and the endpoint's secret.

    `headers` are a mapping or pairs, of text or bytes, also with the names of WSGI (`HTTP_WEBHOOK_ID`).

    Raises WebhookRejected if none of its signatures is made with the secret, or if it was sent more than `tolerance`
    seconds ago or ahead, so that nobody can repeat it later.
    """
    if not tolerance >= 0:
        raise ConfigurationError(f"tolerance is a number of seconds, and not {tolerance!r}")
    body, named = bytes(body), _signed(headers)
    missing = [name for name in SIGNED if name not in named]
    if missing:
        raise WebhookRejected(f"The request has no header {' and no '.join(missing)}: it is no webhook of payres")
    identifier, moment, signatures = (named[name] for name in SIGNED)
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except ValueError:
        key = b""
    if not key:
        raise ConfigurationError("The secret is not one that `payres webhook add` printed: whsec_...")
    signature = hmac.digest(key, b".".join((identifier, moment, body)), "sha256")
    expected = b"v1," + base64.b64encode(signature)
    # All are compared, in constant time.
    matches = [hmac.compare_digest(expected, one) for one in signatures.split(b" ")]
    if not identifier or not any(matches):
        raise WebhookRejected("No signature of this webhook is made with the secret, over the body as it came")
    is_moment = moment.isdigit() and len(moment) < 12
    if not is_moment or abs(clock.now() / SECOND - int(moment)) > tolerance:
        raise WebhookRejected(f"The webhook was not sent in the last {tolerance:g} seconds: check this machine's clock")
    try:
        event: Event[Any, Any] = decode(body, Event[str, Any])
        kind = DATA.get(event.type)
        return event if kind is None else msgspec.structs.replace(event, data=msgspec.convert(event.data, kind))
    except (ValueError, RecursionError) as error:
        raise WebhookRejected(f"The body is not an event: {error}") from error


def _signed(headers: Any) -> dict[str, bytes]:
    """The headers of webhooks by name. Raises ConfigurationError if they are no headers."""
    found = {}
    try:
        for given, value in getattr(headers, "items", lambda: headers)():
            text = given.decode("latin-1") if isinstance(given, bytes) else given
            name = text.lower().replace("_", "-").removeprefix("http-")
            if name in SIGNED:
                found[name] = value if isinstance(value, bytes) else value.encode("utf-8", "replace")
    except (AttributeError, TypeError, ValueError):
        raise ConfigurationError("headers are a mapping, or pairs, of names and values") from None
    return found
