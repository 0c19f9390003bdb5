"""What was sent to webhooks: their last attempts, the deliveries that failed at first, and replays."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Final, Literal, get_args

from msgspec import UNSET, UnsetType

from payres.core.protocol.errors import InvalidRequest, NotFound, WrongState
from payres.core.protocol.identifiers import sequence_of
from payres.core.protocol.limits import MAX_PAGE
from payres.core.protocol.wire import Resource
from payres.core.store import audit
from payres.core.store.events import OUTBOX, EventRecord
from payres.core.store.work import EVENTS, ROWS_AT_ONCE, Units, Work
from payres.operator.declared.declarations import CommandLine, Listing, OperationForm, operation
from payres.operator.declared.inputs import Name, TimeText, require_time, said
from payres.operator.declared.shapes import Column, Shape, Time, represent
from payres.operator.store.events import find_event
from payres.operator.webhooks import LAST_ATTEMPT, WEBHOOK
from payres.webhooks.patterns import TEST, concerns, wants
from payres.webhooks.rules import require_webhook
from payres.webhooks.store import webhooks as stored
from payres.webhooks.store.webhooks import DELIVERIES, WEBHOOKS, AttemptRecord, DeliveryRecord, WebhookRecord

DeliveryState = Literal["pending", "failed", "delivered"]
DeliveryStateFilter = Annotated[DeliveryState | UnsetType, said("Only those in this state.")]
# The most deliveries of a webhook that one call replays.
MOST_REPLAYED: Final = 10_000


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


class WebhookAttempt(Resource, frozen=True, kw_only=True):
    """`attempt` counts those to send the same event, from the last replay on; `answer` is the beginning of the body."""

    event: str
    type: str
    sequence: int
    attempt: int
    at: Time
    milliseconds: int
    status: int | None
    error: str | None
    answer: str


class Replayed(Resource, frozen=True, kw_only=True):
    """How many deliveries will be repeated."""

    deliveries: int


def webhook_attempt(_: Work, record: AttemptRecord) -> WebhookAttempt:
    return represent(WebhookAttempt, record, sequence=sequence_of(record.event), answer=record.shown_answer)


def delivery(work: Work, record: DeliveryRecord) -> Delivery:
    event = OUTBOX.by_id(work, record.sequence)
    return represent(Delivery, record, event, event=event.id, next_attempt_at=record.next_at)


ATTEMPTS: Final = Shape(
    webhook_attempt,
    Column("At (UTC)", "at", "second"),
    Column("Event", "event", "code"),
    Column("Type", "type"),
    Column("Attempt", "attempt", "number"),
    Column("Milliseconds", "milliseconds", "number"),
    Column("Status", "status", "number"),
    Column("Error", "error", "long"),
    Column("Answer", "answer", "long"),
)
DELIVERY: Final = Shape(
    delivery,
    Column("Event", "event", "code"),
    Column("Type", "type"),
    Column("Webhook", "webhook", "code", section="webhooks"),
    Column("State", "state", "state"),
    Column("Attempts", "attempts", "number"),
    *LAST_ATTEMPT,
    Column("Next attempt (UTC)", "next_attempt_at", "time"),
)


@operation(
    "GET /webhooks/{id}/attempts webhooks:read",
    ATTEMPTS,
    command=CommandLine("webhook attempts ID"),
    listing=Listing("attempts", "Nothing was sent yet"),
    noun="webhooks",
)
def list_attempts(work: Work, id: str) -> Sequence[AttemptRecord]:
    """List the last attempts to send events, and the answers.

    Of each webhook 20 are kept, tests among them.
    """
    return stored.list_attempts(work, require_webhook(work, id).id)


@operation(
    "GET /deliveries webhooks:read",
    DELIVERY,
    command=CommandLine("webhook deliveries [ID]", "--state failed"),
    listing=Listing(
        *("deliveries", "There are no such deliveries", "Deliveries"),
        page="/webhooks/deliveries",
        about="Events that a webhook did not accept at once, or gets again; a hundred at most.",
    ),
    noun="webhooks",
)
def list_deliveries(
    work: Work, webhook: Name | UnsetType = UNSET, state: DeliveryStateFilter = UNSET, limit: int = MAX_PAGE
) -> Sequence[DeliveryRecord]:
    """List deliveries that failed at first, or are repeated.

    Events that were accepted at the first attempt are not listed.
    """
    found = [
        one
        for of in ([require_webhook(work, webhook)] if webhook else WEBHOOKS.list(work))
        for named in ((state,) if state else get_args(DeliveryState))
        for one in stored.deliveries_of(work, of.id, named, limit)
    ]
    return sorted(found, key=lambda one: (one.sequence, one.webhook_id), reverse=True)[:limit]


@operation(
    "POST /replays webhooks:write events:read",
    command=CommandLine(
        "webhook replay [EVENT]",
        "evt_0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11\n--failed --since 2026-11-20T00:00:00Z",
        text="To be sent again: {deliveries}. The server sends them within seconds",
    ),
    noun="webhooks",
)
async def replay(
    call: Units,
    event: Name | None = None,
    webhook: Annotated[Name | None, said("To this webhook only.", metavar="ID")] = None,
    failed: Annotated[bool, said("All deliveries that have failed for good.")] = False,
    since: Annotated[TimeText | None, said("Those last attempted at this time or later.", metavar="TIME")] = None,
) -> Replayed:
    """Send an event again, or all failed ones.

    EVENT is its id, evt_... It goes to each webhook that wants it, also if it was accepted before.
    """
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
    active = [one for one in _active_webhooks(work, webhook) if concerns(one, found)]
    if webhook and not active:
        raise WrongState("The event is not one of the wallet's whose webhook this is")
    due = [one.id for one in active if webhook or wants(one, found.type)]
    audit.record(work, "webhook.replay", event, webhooks=len(due))
    for webhook_id in due:
        DELIVERIES.replace(work, DeliveryRecord(found.sequence, webhook_id, "pending", 0, work.now, None, None, None))
        stored.note_due(work, webhook_id, work.now)
    work.changed += (EVENTS, stored.DUE.changed)
    return Replayed(deliveries=len(due))


def _failed(work: Work, webhook: str | None, since: int) -> Sequence[tuple[int, str]]:
    found = _active_webhooks(work, webhook)
    return [key for one in found for key in stored.failed_deliveries(work, one.id, since, MOST_REPLAYED)]


def _replay_failed(work: Work, due: Sequence[tuple[int, str]], first: int) -> int:
    """Replays a batch, beginning at an index; the audit log has all batches as one change."""
    if first == 0:
        audit.record(work, "webhook.replay", "failed", deliveries=len(due))
    work.changed += (EVENTS, stored.DUE.changed)
    return stored.repeat_failed(work, due[first : first + ROWS_AT_ONCE], work.now)


@operation(
    form=OperationForm(
        "Send again",
        WEBHOOK,
        "{deliveries} will be sent again within seconds",
        title="Send what failed again",
        is_over=lambda one: one.state != "active" or not one.failed,
        presses=True,
        unasked="the webhook is to have these events in any case",
    ),
    noun="webhooks",
    scope="webhooks:write",
    audits="webhook.replay",
)
async def replay_failed(call: Units, id: str, event: Name | None = None) -> Replayed:
    """Send again all events that have failed for a webhook, or the one with this id."""
    return await replay(call, event, id, failed=event is None)


def deliveries_of(work: Work, event: EventRecord) -> Sequence[EventDelivery]:
    """The delivery of an event to each of its webhooks; one that has not been sent is `pending`, without attempts."""
    found = {one.webhook_id: one for one in DELIVERIES.list(work, sequence=event.sequence)}
    records = [
        found.get(webhook.id) or _unstored(work, webhook, event)
        for wallet_id in {None, event.wallet_address_id}
        for webhook in stored.webhooks_of(work, wallet_id)
        if webhook.id in found
        or (concerns(webhook, event) and wants(webhook, event.type) and webhook.created_at <= event.created_at)
    ]
    return [represent(EventDelivery, one, next_attempt_at=one.next_at) for one in records]


def _unstored(work: Work, webhook: WebhookRecord, event: EventRecord) -> DeliveryRecord:
    """The delivery of an event that the webhook accepted at the first attempt, or has not reached."""
    state, attempts = ("delivered", 1) if stored.is_attempted(work, webhook, event) else ("pending", 0)
    return DeliveryRecord(event.sequence, webhook.id, state, attempts, None, None, None, None)


def _active_webhooks(work: Work, webhook: str | None) -> Sequence[WebhookRecord]:
    """The webhook of this id, or all that are active. Raises NotFound, and WrongState for one that is not active."""
    if webhook is None:
        return [one for one in WEBHOOKS.list(work) if one.active]
    found = require_webhook(work, webhook)
    if found.state == "paused":
        raise WrongState("The webhook is paused and gets nothing", advice=f"`payres webhook resume {webhook}` goes on")
    if not found.active:
        sentence = "The webhook is disabled, because its endpoint answered 410; a test that it accepts enables it"
        raise WrongState(sentence, advice=f"`payres webhook test {webhook}` sends one")
    return [found]
