"""Webhooks, and what became of the events that they did not take at once.

The rules are in `payres.events.subscriptions`, of which the sender needs some too.
"""

from collections.abc import Sequence
from typing import Annotated, Final, Literal, get_args

from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import asdict

from payres.clock import format_time_if_any
from payres.errors import InvalidRequest
from payres.events import subscriptions
from payres.events.subscriptions import Added, require_webhook, wants
from payres.limits import MAX_PAGE
from payres.operator.inputs import Name, TimeText, require_time, said
from payres.operator.operations import command, endpoint, form, lists
from payres.operator.shapes import Column, Shape, fact, represent
from payres.store import events
from payres.store.events import EVENTS, DeliveryRecord, WebhookRecord
from payres.store.work import Work
from payres.wire import Resource, Text

DeliveryState = Literal["pending", "failed", "delivered"]
Patterns = Annotated[
    Annotated[tuple[Text, ...], Meta(max_length=100)],
    said("Only these, such as 'incoming_payment.*'.", option="--events", metavar="NAMES"),
]
Private = Annotated[bool, said("It is on this machine or in your network; http will do.")]
StateFilter = Annotated[DeliveryState | UnsetType, said("Only those in this state.")]
# How many events are counted at most, so that showing a webhook stays fast.
MOST_COUNTED: Final = 1000


class Webhook(Resource, frozen=True, kw_only=True):
    """`secret` is only present when it is new. `behind` counts those of the next thousand events that it wants."""

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


class Delivery(EventDelivery, frozen=True, kw_only=True):
    """A delivery with the event that it is of."""

    event: str
    type: str


class WebhookTest(Resource, frozen=True, kw_only=True):
    """`status` is what the endpoint answered, `error` why that is no success; null where it is one."""

    event: str
    webhook: str
    status: int | None
    error: str | None


class Replayed(Resource, frozen=True, kw_only=True):
    """How many deliveries are due again."""

    deliveries: int


def webhook(work: Work, found: WebhookRecord | Added) -> Webhook:
    record, secret = (found.webhook, found.secret) if isinstance(found, Added) else (found, UNSET)
    return represent(
        Webhook,
        record,
        events=record.events.split(","),
        private=bool(record.is_private),
        behind=sum(wants(record, one) for one in events.events_after(work, record.cursor, MOST_COUNTED)),
        secret=secret,
    )


def event_delivery(record: DeliveryRecord) -> EventDelivery:
    return represent(
        EventDelivery, record, webhook=record.webhook_id, next_attempt_at=format_time_if_any(record.next_at)
    )


def delivery(work: Work, record: DeliveryRecord) -> Delivery:
    event = EVENTS.by_id(work, record.sequence)
    return Delivery(**asdict(event_delivery(record)), event=event.id, type=event.type)


ATTEMPT: Final = (
    Column("Last attempt (UTC)", "last_attempt_at", "time"),
    Column("Status", "last_status", "number"),
    Column("Error", "last_error", "long"),
)
WEBHOOK: Final = Shape(
    webhook,
    Column("Webhook", "id", "code", section="webhooks"),
    Column("URL", "url", "long"),
    Column("Events", "events", "long"),
    Column("State", "state", "state"),
    Column("Behind", "behind", "number"),
    *ATTEMPT,
    fact("Secret (shown once)", lambda one: one.secret or None, "code"),
    read=lambda work, id: require_webhook(work, id),
)
DELIVERY: Final = Shape(
    delivery,
    Column("Event", "event", "code"),
    Column("Type", "type"),
    Column("Webhook", "webhook", "code", section="webhooks"),
    Column("State", "state", "state"),
    Column("Attempts", "attempts", "number"),
    *ATTEMPT,
    Column("Next attempt (UTC)", "next_attempt_at", "time"),
)


@endpoint("GET /webhooks", "webhooks:read", WEBHOOK)
@command("webhook list")
@lists(
    "webhooks",
    "There are no webhooks; `payres webhook add` adds one",
    "Webhooks",
    also=("Deliveries that were not taken at once", "/admin/webhooks/deliveries"),
)
def list_webhooks(work: Work) -> Sequence[WebhookRecord]:
    """List webhooks, each with its latest attempt."""
    return events.list_webhooks(work)


@endpoint("POST /webhooks", "webhooks:write", WEBHOOK, shows_secret=True)
@command("webhook add URL", "https://shop.example/payres --events 'incoming_payment.*'")
def add(work: Work, url: Text, events: Patterns = (), private: Private = False) -> Added:
    """Send events from now on to a URL. Prints the secret for verifying signatures once.

    NAMES are events, or the beginning of some with a * behind it, with commas between; the option may be repeated.
    """
    return subscriptions.add_webhook(work, url, events, private)


@endpoint("GET /webhooks/{id}", "webhooks:read", WEBHOOK)
def show(work: Work, id: str) -> WebhookRecord:
    """Read a webhook with its latest attempt."""
    return require_webhook(work, id)


@endpoint("DELETE /webhooks/{id}", "webhooks:write", WEBHOOK)
@command(
    "webhook remove ID",
    "0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11",
    text=lambda removed: f"The webhook to {removed.url} is removed",
)
def remove(work: Work, id: str) -> WebhookRecord:
    """Remove a webhook and its deliveries."""
    return subscriptions.remove_webhook(work, id)


@endpoint("POST /webhooks/{id}/secrets", "webhooks:write", WEBHOOK, shows_secret=True)
@command("webhook rotate ID", "0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11")
def rotate(work: Work, id: str) -> Added:
    """Make a new secret, and print it once. The old one signs too for 24 hours.

    A secret that an earlier rotation replaced no longer signs.
    """
    return subscriptions.rotate_secret(work, id)


@endpoint("GET /deliveries", "webhooks:read", DELIVERY)
@command("webhook deliveries [ID]", "--state failed")
@lists(
    "deliveries",
    "There are no such deliveries",
    "Deliveries",
    page="/webhooks/deliveries",
    about="Events that a webhook did not take at once, or gets again; a hundred at most.",
)
def list_deliveries(
    work: Work, webhook: Name | UnsetType = UNSET, state: StateFilter = UNSET, limit: int = MAX_PAGE
) -> Sequence[DeliveryRecord]:
    """List events that were not taken at once, or are sent again. What was taken the first time is not listed."""
    found = [
        one
        for of in ([require_webhook(work, webhook)] if webhook else events.list_webhooks(work))
        for named in ((state,) if state else get_args(DeliveryState))
        for one in events.deliveries_of(work, of.id, named, limit)
    ]
    return sorted(found, key=lambda one: (one.sequence, one.webhook_id), reverse=True)[:limit]


@endpoint("POST /replays", "webhooks:write")
def replay(
    work: Work,
    event: Name | None = None,
    webhook: Name | None = None,
    failed: bool = False,
    since: TimeText | None = None,
) -> Replayed:
    """Send an event again, or all that has failed; `since` takes what was last tried at that time or later."""
    if bool(event) == failed or (since and not failed):
        raise InvalidRequest("Name either an event, or failed, which since is for", field="event")
    if event:
        return Replayed(deliveries=len(subscriptions.replay_event(work, event, webhook)))
    begins = require_time(since, "since") if since else 0
    return Replayed(deliveries=subscriptions.replay_failed(work, webhook, begins))


@form(
    "/webhooks/{id}",
    "Webhook",
    "Send it again",
    "Each event that has failed for this webhook is sent again.",
    WEBHOOK,
)
def replay_failed(work: Work, id: str) -> Replayed:
    """Send again all that has failed for a webhook."""
    return replay(work, webhook=id, failed=True)
