"""Webhooks: which events are sent where, secrets, tests and replays, and the deliveries that failed at first."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Annotated, Final, Literal, get_args

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import asdict

from payres.core.http.requests import ActorRequest
from payres.core.protocol.clock import HOUR, format_time_if_any
from payres.core.protocol.errors import InvalidRequest, NotFound, WrongState, require
from payres.core.protocol.event_types import EVENT_TYPES, WebhookEvent
from payres.core.protocol.limits import MAX_PAGE, MAX_WEBHOOKS, ROTATION_HOURS
from payres.core.protocol.urls import is_http_url
from payres.core.protocol.wire import Resource, Text
from payres.core.remote.ip_addresses import names_private_host
from payres.core.store import server
from payres.core.store.events import OUTBOX, EventRecord, events_after, find_event, last_sequence
from payres.core.store.work import EVENTS as NEWS
from payres.core.store.work import Units, Work
from payres.operator.api_keys import key_of_actor, require_scopes
from payres.operator.declarations import (
    ROWS_AT_ONCE,
    CommandLine,
    Listing,
    Name,
    OperationForm,
    TimeText,
    operation,
    require_time,
    said,
)
from payres.operator.shapes import Column, Shape, Time, fact, represent
from payres.webhooks.deliveries import ALL, TEST, matches, note_attempt, wants
from payres.webhooks.sender import Attempt, Sender, WebhookTarget, new_webhook_secret, target_of
from payres.webhooks.store import webhooks as stored
from payres.webhooks.store.webhooks import ACTIVE_WEBHOOK, DELIVERIES, WEBHOOKS, DeliveryRecord, WebhookRecord

DeliveryState = Literal["pending", "failed", "delivered"]
Patterns = Annotated[
    Annotated[tuple[Text, ...], Meta(max_length=100)],
    said("Only these, such as 'incoming_payment.*'.", option="--events", metavar="NAMES"),
]
Private = Annotated[bool, said("It is on this machine or in your network; http will do.")]
DeliveryStateFilter = Annotated[DeliveryState | UnsetType, said("Only those in this state.")]
# The most events that are counted, so that showing a webhook stays fast.
MOST_COUNTED: Final = 1000
# The most deliveries of a webhook that one call replays.
MOST_REPLAYED: Final = 10_000


class Added(msgspec.Struct, frozen=True):
    """A webhook with its new secret, which is shown once."""

    webhook: WebhookRecord
    secret: str


class Webhook(Resource, frozen=True, kw_only=True):
    """`secret` is only present when it is new. `behind` counts the matching ones of the next thousand events."""

    id: str
    url: str
    events: list[str]
    private: bool
    state: str
    created_at: Time
    behind: int
    last_attempt_at: Time | None
    last_status: int | None
    last_error: str | None
    secret: str | UnsetType = UNSET


class EventDelivery(Resource, frozen=True, kw_only=True):
    """The delivery of an event to a webhook. `attempts` counts from the last replay on."""

    webhook: str
    state: str
    attempts: int
    next_attempt_at: Time | None
    last_attempt_at: Time | None
    last_status: int | None
    last_error: str | None


class Delivery(EventDelivery, frozen=True, kw_only=True):
    """A delivery with its event."""

    event: str
    type: str


class WebhookTest(Resource, frozen=True, kw_only=True):
    """`status` is the status of the endpoint's answer, `error` why that is a failure; null on success."""

    event: str
    webhook: str
    status: int | None
    error: str | None


class Replayed(Resource, frozen=True, kw_only=True):
    """How many deliveries will be repeated."""

    deliveries: int


def webhook(work: Work, found: WebhookRecord | Added) -> Webhook:
    record, secret = (found.webhook, found.secret) if isinstance(found, Added) else (found, UNSET)
    unattempted, _ = stored.unattempted(work, record.id, record.cursor, MOST_COUNTED)
    return represent(
        Webhook,
        record,
        events=record.events.split(","),
        private=bool(record.is_private),
        behind=sum(wants(record, one.type) for one in unattempted),
        secret=secret,
    )


def event_delivery(record: DeliveryRecord) -> EventDelivery:
    return represent(
        EventDelivery, record, webhook=record.webhook_id, next_attempt_at=format_time_if_any(record.next_at)
    )


def delivery(work: Work, record: DeliveryRecord) -> Delivery:
    event = OUTBOX.by_id(work, record.sequence)
    return Delivery(**asdict(event_delivery(record)), event=event.id, type=event.type)


def require_webhook(work: Work, id: str) -> WebhookRecord:
    """Raises NotFound."""
    return require(WEBHOOKS.get(work, id), f"There is no webhook {id!r}", "`payres webhook list` shows all")


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
    fact("Secret (shown once)", lambda one: one.secret or None, "secret"),
    read=require_webhook,
    page="/webhooks/{id}",
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


@operation(
    "GET /webhooks webhooks:read",
    WEBHOOK,
    command=CommandLine("webhook list"),
    listing=Listing(
        "webhooks",
        "There are no webhooks",
        "Webhooks",
        also=("Deliveries that failed at first", "/admin/webhooks/deliveries"),
        advice="`payres webhook add` adds one",
    ),
)
def list_webhooks(work: Work) -> Sequence[WebhookRecord]:
    """List webhooks, each with its latest attempt."""
    return stored.list_webhooks(work)


@operation(
    "POST /webhooks webhooks:write events:read",
    WEBHOOK,
    command=CommandLine("webhook add URL", "https://shop.example/payres --events 'incoming_payment.*'"),
    form=OperationForm("Add the webhook", title="New webhook", path="/new-webhook", lists="/webhooks"),
    shows_secret=True,
)
def add(work: Work, url: Text, events: Patterns = (), private: Private = False) -> Added:
    """Send events from now on to a URL. The secret for verifying signatures is shown only once.

    Events are types, or prefixes followed by *. Only keys with the scope webhooks:private may add a `private` one.
    """
    key = key_of_actor(work)
    if private and key is not None:
        require_scopes(key, ["webhooks:private"])
    _check_url(url, is_public=not (private or work.settings.allow_private_hosts))
    if len(stored.list_webhooks(work)) >= MAX_WEBHOOKS:
        raise WrongState(f"There are {MAX_WEBHOOKS} webhooks already; remove one first")
    secret = new_webhook_secret(work)
    webhook = WebhookRecord(
        id=work.new_id(),
        url=url,
        events=_checked_patterns(events),
        is_private=int(private),
        state="active",
        secret=server.encrypt(work, stored.WEBHOOK_SECRETS, secret),
        previous_secret=None,
        previous_until=None,
        cursor=last_sequence(work),
        created_at=work.now,
    )
    WEBHOOKS.insert(work, webhook)
    server.record(work, "webhook.add", webhook.id, url=url, events=webhook.events)
    work.changed.append(ACTIVE_WEBHOOK)
    return Added(webhook, secret)


@operation("GET /webhooks/{id} webhooks:read", WEBHOOK)
def show(work: Work, id: str) -> WebhookRecord:
    """Read a webhook with its latest attempt."""
    return require_webhook(work, id)


@operation(
    "DELETE /webhooks/{id} webhooks:write",
    command=CommandLine(
        "webhook remove ID",
        "0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11",
        text=lambda removed: f"The webhook to {removed.url} is removed",
    ),
    form=OperationForm(
        "Remove",
        WEBHOOK,
        done="The webhook to {url} is removed",
        title="Remove this webhook",
        back="/webhooks",
        ends=True,
    ),
)
async def remove(call: Units, id: str) -> Webhook:
    """Remove a webhook and its deliveries. Nothing is sent there any more."""
    removed = await call.write(partial(_begin_removal, id=id))
    while not await call.write(partial(stored.delete_webhook, webhook_id=id, rows=ROWS_AT_ONCE)):
        pass
    return removed


def _begin_removal(work: Work, id: str) -> Webhook:
    """The webhook before its removal. It is disabled from now on, also if a crash interrupts the removal."""
    removed: Webhook = WEBHOOK.find(work, id=id)
    WEBHOOKS.update(work, id, state="disabled")
    server.record(work, "webhook.remove", id, url=removed.url)
    return removed


@operation(
    "POST /webhooks/{id}/secrets webhooks:write",
    WEBHOOK,
    command=CommandLine("webhook rotate ID", "0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11"),
    shows_secret=True,
    form=OperationForm("Make a new secret", WEBHOOK, title="New secret", path="/webhooks/{id}/secret"),
)
def rotate(work: Work, id: str) -> Added:
    """Make a new secret, which is shown once. For 24 hours, deliveries are signed with the old one too.

    A secret that an earlier rotation replaced is no longer used.
    """
    webhook = require_webhook(work, id)
    secret = new_webhook_secret(work)
    encrypted, ends_at = server.encrypt(work, stored.WEBHOOK_SECRETS, secret), work.now + ROTATION_HOURS * HOUR
    WEBHOOKS.update(work, id, secret=encrypted, previous_secret=webhook.secret, previous_until=ends_at)
    server.record(work, "webhook.rotate", id)
    return Added(require_webhook(work, id), secret)


@operation(
    "GET /deliveries webhooks:read",
    DELIVERY,
    command=CommandLine("webhook deliveries [ID]", "--state failed"),
    listing=Listing(
        "deliveries",
        "There are no such deliveries",
        "Deliveries",
        page="/webhooks/deliveries",
        about="Events that a webhook did not accept at once, or gets again; a hundred at most.",
    ),
)
def list_deliveries(
    work: Work, webhook: Name | UnsetType = UNSET, state: DeliveryStateFilter = UNSET, limit: int = MAX_PAGE
) -> Sequence[DeliveryRecord]:
    """List deliveries that failed at first, or are repeated.

    Events that were accepted at the first attempt are not listed.
    """
    found = [
        one
        for of in ([require_webhook(work, webhook)] if webhook else stored.list_webhooks(work))
        for named in ((state,) if state else get_args(DeliveryState))
        for one in stored.deliveries_of(work, of.id, named, limit)
    ]
    return sorted(found, key=lambda one: (one.sequence, one.webhook_id), reverse=True)[:limit]


@operation("POST /replays webhooks:write events:read")
async def replay(
    call: Units,
    event: Name | None = None,
    webhook: Name | None = None,
    failed: bool = False,
    since: TimeText | None = None,
) -> Replayed:
    """Send an event again, or all failed ones; with `since`, those last attempted at that time or later."""
    if bool(event) == failed or (since and not failed):
        raise InvalidRequest("Name either an event, or failed; since is for failed only", field="event")
    if event:
        return await call.write(partial(_replay_event, event=event, webhook=webhook))
    begins = require_time(since, "since") if since else 0
    due = await call.read(partial(_failed, webhook=webhook, since=begins))
    count = 0
    for first in range(0, max(len(due), 1), ROWS_AT_ONCE):
        count += await call.write(partial(_replay_failed, due=due, first=first))
    return Replayed(deliveries=count)


def _replay_event(work: Work, event: str, webhook: str | None) -> Replayed:
    found = find_event(work, event)
    if found is None or found.type == TEST:
        raise NotFound(f"There is no event {event!r}; events are kept for 30 days")
    due = [one.id for one in _active_webhooks(work, webhook) if webhook or wants(one, found.type)]
    server.record(work, "webhook.replay", event, webhooks=len(due))
    for webhook_id in due:
        DELIVERIES.replace(work, DeliveryRecord(found.sequence, webhook_id, "pending", 0, work.now, None, None, None))
    work.changed.append(NEWS)
    return Replayed(deliveries=len(due))


def _failed(work: Work, webhook: str | None, since: int) -> Sequence[tuple[int, str]]:
    """The keys of the deliveries to replay."""
    found = _active_webhooks(work, webhook)
    return [key for one in found for key in stored.failed_deliveries(work, one.id, since, MOST_REPLAYED)]


def _replay_failed(work: Work, due: Sequence[tuple[int, str]], first: int) -> int:
    """Replays a batch, beginning at an index; the audit log has all batches as one change."""
    if first == 0:
        server.record(work, "webhook.replay", "failed", deliveries=len(due))
    work.changed.append(NEWS)
    return stored.repeat_failed(work, due[first : first + ROWS_AT_ONCE], work.now)


@operation(form=OperationForm("Send again", WEBHOOK, done="{deliveries} events will be sent again", presses=True))
async def replay_failed(call: Units, id: str) -> Replayed:
    """Send again all events that have failed for a webhook."""
    return await replay(call, webhook=id, failed=True)


@operation(
    "POST /webhooks/{id}/tests webhooks:write",
    form=OperationForm(
        "Send a test",
        WEBHOOK,
        done="A test was sent, and the answer was {status} {error}",
        path="/webhooks/{id}/test",
        presses=True,
    ),
)
async def test(call: ActorRequest, id: str) -> WebhookTest:
    """Send the event webhook.test now, and return the answer of the endpoint."""
    event, target = await call.write(partial(make_test, id=id))
    made = await call.context.part(Sender).send(target, event)
    await call.write(partial(record_test, id=id, attempt=made))
    return WebhookTest(event=event.id, webhook=id, status=made.status, error=made.error)


def make_test(work: Work, id: str) -> tuple[EventRecord, WebhookTarget]:
    """The event that tests a webhook, and its target; the caller sends it. Raises NotFound."""
    webhook = require_webhook(work, id)
    server.record(work, "webhook.test", id)
    work.emit(TEST, id, WebhookEvent(webhook=id, url=webhook.url))
    [event] = events_after(work, last_sequence(work) - 1, 1)
    return event, target_of(work, webhook)


def record_test(work: Work, id: str, attempt: Attempt) -> None:
    """Stores the result of a test. After a success, a disabled webhook is active again, and continues where it
    stopped."""
    note_attempt(work, id, attempt)
    if attempt.error is None:
        WEBHOOKS.update(work, id, state="active")
        work.changed.append(ACTIVE_WEBHOOK)


def deliveries_of(work: Work, event: EventRecord) -> Sequence[DeliveryRecord]:
    """The delivery of an event to each of its webhooks; one that has not been sent is `pending`, without attempts."""
    found = {one.webhook_id: one for one in stored.deliveries_of_event(work, event.sequence)}
    return [
        found.get(webhook.id) or _unstored(work, webhook, event)
        for webhook in stored.list_webhooks(work)
        if webhook.id in found or (wants(webhook, event.type) and webhook.created_at <= event.created_at)
    ]


def _unstored(work: Work, webhook: WebhookRecord, event: EventRecord) -> DeliveryRecord:
    """The delivery of an event that the webhook accepted at the first attempt, or has not reached."""
    state, attempts = ("delivered", 1) if stored.is_attempted(work, webhook, event) else ("pending", 0)
    return DeliveryRecord(event.sequence, webhook.id, state, attempts, None, None, None, None)


def _active_webhooks(work: Work, webhook: str | None) -> Sequence[WebhookRecord]:
    """The webhook of this id, or all. Raises NotFound, and WrongState for a disabled one."""
    if webhook is None:
        return [one for one in stored.list_webhooks(work) if one.active]
    found = require_webhook(work, webhook)
    if not found.active:
        raise WrongState(
            "The webhook is disabled, because its endpoint answered 410; a test that it accepts enables it",
            advice=f"`payres webhook test {webhook}` sends one",
        )
    return [found]


def _check_url(url: str, is_public: bool) -> None:
    """Raises InvalidRequest for an invalid URL, and for a private address or http unless the webhook is private."""
    if not is_http_url(url) or not url.isascii() or "#" in url:
        raise InvalidRequest(
            "The URL must be an absolute http or https URL, without spaces, user information and fragment", field="url"
        )
    if is_public and not url.lower().startswith("https://"):
        raise InvalidRequest(
            "The URL must start with https://; for an endpoint on this machine or in your network, say that it is"
            " private (--private)",
            field="url",
        )
    if is_public and names_private_host(url):
        raise InvalidRequest(
            "The host is on this machine or in your network: say that the webhook is private (--private)", field="url"
        )


def _checked_patterns(patterns: Iterable[str]) -> str:
    """Names and patterns such as `incoming_payment.*`, each once; all events if there are none."""
    named = [name.strip() for text in patterns for name in text.split(",")]
    for name in named:
        if not any(matches(name, known) for known in EVENT_TYPES) or ALL in name[:-1]:
            raise InvalidRequest(
                f"{name!r} is neither an event nor a prefix of events followed by *; the events are: "
                f"{', '.join(EVENT_TYPES)}",
                field="events",
            )
    return ",".join(dict.fromkeys(named)) or ALL
