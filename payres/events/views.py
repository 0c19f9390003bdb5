"""Webhooks and deliveries as operators see them, in the shell and over HTTP, without secrets."""

from typing import Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from payres.clock import format_time, format_time_if_any
from payres.events.webhooks import wants
from payres.store import events, webhooks
from payres.store.events import EventRecord
from payres.store.webhooks import DeliveryRecord, WebhookRecord
from payres.store.work import Work
from payres.wire import Resource

# The states of a delivery.
STATES: Final = ("pending", "failed", "delivered")
# How many events are counted at most, so that showing a webhook stays fast.
MOST_COUNTED: Final = 1000


class EventView(Resource, frozen=True, kw_only=True):
    """An event, as it is also sent to webhooks; `timestamp` is when it happened, in RFC 3339."""

    id: str
    type: str
    timestamp: str
    sequence: int
    data: Raw


class WebhookView(Resource, frozen=True, kw_only=True):
    """`secret` is only present when it is new. `behind` counts those of the next MOST_COUNTED events that it wants."""

    id: str
    url: str
    events: list[str]
    private: bool
    state: str
    created_at: str
    behind: int
    last_attempt_at: str | None
    last_status: int | None
    last_error: str | None
    secret: str | UnsetType = UNSET


class EventDelivery(Resource, frozen=True, kw_only=True):
    """What became of an event at a webhook. `attempts` counts from the last replay on."""

    webhook: str
    state: str
    attempts: int
    next_attempt_at: str | None
    last_attempt_at: str | None
    last_status: int | None
    last_error: str | None


class DeliveryView(EventDelivery, frozen=True, kw_only=True):
    """A delivery with the event that it is of."""

    event: str
    type: str


def event_view(event: EventRecord) -> EventView:
    """Raises msgspec.DecodeError for data of another form."""
    data = msgspec.json.decode(event.data, type=Raw)
    return EventView(
        id=event.id, type=event.type, timestamp=format_time(event.created_at), sequence=event.sequence, data=data
    )


def webhook_view(work: Work, webhook: WebhookRecord, secret: str | UnsetType = UNSET) -> WebhookView:
    return WebhookView(
        id=webhook.id,
        url=webhook.url,
        events=webhook.events.split(","),
        private=bool(webhook.is_private),
        state=webhook.state,
        created_at=format_time(webhook.created_at),
        behind=sum(wants(webhook, one) for one in events.events_after(work, webhook.cursor, MOST_COUNTED)),
        last_attempt_at=format_time_if_any(webhook.last_attempt_at),
        last_status=webhook.last_status,
        last_error=webhook.last_error,
        secret=secret,
    )


def delivery_view(delivery: DeliveryRecord, event: EventRecord) -> DeliveryView:
    return DeliveryView(
        event=event.id,
        type=event.type,
        webhook=delivery.webhook_id,
        state=delivery.state,
        attempts=delivery.attempts,
        next_attempt_at=format_time_if_any(delivery.next_at),
        last_attempt_at=format_time_if_any(delivery.last_attempt_at),
        last_status=delivery.last_status,
        last_error=delivery.last_error,
    )


def list_deliveries(work: Work, webhook: WebhookRecord | None, state: str | None, most: int) -> list[DeliveryView]:
    """Newest first: of one webhook or of all, in one state or in all; at most `limit` of each."""
    found = [
        one
        for of in (webhooks.list_webhooks(work) if webhook is None else [webhook])
        for named in ((state,) if state else STATES)
        for one in webhooks.deliveries_of(work, of.id, named, most)
    ]
    newest = sorted(found, key=lambda one: (one.sequence, one.webhook_id), reverse=True)[:most]
    return [delivery_view(one, events.event_at(work, one.sequence)) for one in newest]
