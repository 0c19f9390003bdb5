"""Deliveries: sends every event to every webhook that wants it, at least once.

A webhook gets its events in rounds: a few are sent at a time, and when all have been answered, their results are stored
together with the webhook's cursor. So a slow webhook delays no other, and a restart continues from the rows. The cursor
is the last event up to which each was attempted once, or was not wanted. An event that was not accepted has a row with
the time of the next attempt. After a crash, the events of a round are sent again, with the same ids.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from secrets import SystemRandom
from typing import Final

import msgspec

from payres.clock import HOUR, MINUTE, SECOND
from payres.event_types import WebhookEvent
from payres.events.changes import Changes
from payres.events.sender import GONE, Attempt, Sender, Target, target_of
from payres.limits import MAX_DELIVERIES_OF_WEBHOOK
from payres.store import events, retention
from payres.store.database import Database
from payres.store.events import DELIVERIES, WEBHOOKS, DeliveryRecord, EventRecord, WebhookRecord
from payres.store.work import ACTIVE_WEBHOOK, EVENTS, Work
from payres.worker import Worker, cancel_all, retry

# Pauses between attempts; after the last attempt the delivery has failed.
RETRY_PAUSES: Final = (
    *(5 * SECOND, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 5 * HOUR),
    *(10 * HOUR, 14 * HOUR, 20 * HOUR, 24 * HOUR),
)
# The random part of a pause, so that deliveries that failed together are not retried together.
JITTER: Final = 0.1
CHANCE: Final = SystemRandom()
# Events examined per round. A cursor so far behind is stored even if no event was wanted.
READ_AT_ONCE: Final = 64
# Maximum number of retries in a round: they must not delay new events.
AGAIN_AT_ONCE: Final = MAX_DELIVERIES_OF_WEBHOOK // 2
# Seconds between searches for webhooks and events of other processes, and for due retries.
LOOK_SECONDS: Final = 1.0
# Minimum seconds between searches for events, because under load every commit has some.
PAUSE_SECONDS: Final = 0.02
RETRY_SECONDS: Final = 5.0
PURGE_SECONDS: Final = 60.0  # between searches for events that are old enough to delete
# After a round a webhook pauses for this multiple of the event loop's lateness: payments have priority.
REST_FACTOR: Final = 20
LONGEST_REST_SECONDS: Final = 1.0
ALL: Final = "*"
TEST: Final = "webhook.test"  # sent only to its webhook, on creation

log = logging.getLogger("payres.events")


class ToSend(msgspec.Struct, frozen=True):
    """An event to send to a webhook; with a delivery, it is a retry."""

    event: EventRecord
    delivery: DeliveryRecord | None = None


class Round(msgspec.Struct, frozen=True):
    """The next events to send to a webhook. `cursor` is the last event examined."""

    target: Target
    to_send: Sequence[ToSend]
    cursor: int

    @property
    def is_worth_storing(self) -> bool:
        return bool(self.to_send) or self.cursor >= self.target.webhook.cursor + READ_AT_ONCE


class Deliveries:
    """Sends events to webhooks. `run` until cancelled."""

    def __init__(self, database: Database, changes: Changes, sender: Sender) -> None:
        self._database = database
        self._changes = changes
        self._sender = sender
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by webhook

    async def run(self) -> None:
        """Runs until cancelled, or the database is in fail-stop."""
        search = Worker("the search for webhooks", self._database, self._begin, RETRY_SECONDS)
        try:
            with self._changes.watch(ACTIVE_WEBHOOK, search.woken):
                await search.run()
        finally:
            await cancel_all(self._tasks.values())

    async def _begin(self) -> float:
        """Starts tasks for webhooks that have become active."""
        found = await self._database.read(events.list_webhooks)
        self._tasks = {webhook_id: task for webhook_id, task in self._tasks.items() if not task.done()}
        for webhook in found:
            if webhook.active and webhook.id not in self._tasks:
                self._tasks[webhook.id] = asyncio.create_task(self._serve(webhook.id))
        return LOOK_SECONDS

    async def _serve(self, webhook_id: str) -> None:
        """Sends a webhook its events round by round, until it is no longer active."""
        name, cursor = f"webhook {webhook_id}", 0
        with self._changes.watch(EVENTS) as news:
            while True:
                await asyncio.sleep(PAUSE_SECONDS)
                news.clear()
                search = partial(self._database.read, partial(find_round, webhook_id=webhook_id, after=cursor))
                found = await retry(name, self._database, search, RETRY_SECONDS)
                if found is None:
                    return
                cursor = found.cursor
                if found.is_worth_storing:
                    attempts = await asyncio.gather(
                        *(self._sender.send(found.target, one.event) for one in found.to_send)
                    )
                    unit = partial(store_round, found=found, attempts=attempts)
                    await retry(name, self._database, partial(self._database.write, unit), RETRY_SECONDS)
                    await _rest()
                else:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_SECONDS):
                            await news.wait()


async def purge_events(database: Database) -> None:
    """Deletes events after 30 days, except those still to be sent, until the database is in fail-stop."""

    async def purge() -> float:
        has_more = await database.read(lambda work: retention.has_old_events(work, work.now))
        while has_more:
            has_more = await database.write(lambda work: retention.purge_events(work, work.now))
        return PURGE_SECONDS

    await Worker("the purge of events", database, purge, PURGE_SECONDS).run()


def find_round(work: Work, webhook_id: str, after: int) -> Round | None:
    """The next events to send to a webhook, after its cursor and `after`; None unless it is active."""
    webhook = WEBHOOKS.get(work, webhook_id)
    if webhook is None or not webhook.active:
        return None
    due = events.due_deliveries(work, webhook_id, work.now, AGAIN_AT_ONCE)
    to_send = [ToSend(event, delivery) for delivery, event in due]
    cursor = max(webhook.cursor, after)
    for event in events.events_after(work, cursor, READ_AT_ONCE):
        if len(to_send) == MAX_DELIVERIES_OF_WEBHOOK:
            break
        cursor = event.sequence
        if wants(webhook, event):
            to_send.append(ToSend(event))
    target = target_of(work, webhook) if to_send else Target(webhook, ())
    return Round(target, to_send, cursor)


def is_all_sent(work: Work) -> bool:
    """Whether no active webhook has an event or retry to be sent now."""
    found = (find_round(work, webhook.id, 0) for webhook in events.list_webhooks(work))
    return not any(one is not None and one.is_worth_storing for one in found)


def store_round(work: Work, found: Round, attempts: Sequence[Attempt]) -> None:
    """Stores the results of a round, and the cursor; nothing if the webhook was removed."""
    webhook = WEBHOOKS.get(work, found.target.webhook.id)
    if webhook is None:
        return
    WEBHOOKS.update(work, webhook.id, cursor=found.cursor)
    for sent, attempt in zip(found.to_send, attempts, strict=True):
        note_attempt(work, webhook.id, attempt)
        if sent.delivery is not None or attempt.error is not None:
            DELIVERIES.replace(work, _delivery(webhook.id, sent, attempt))
    if webhook.active and any(attempt.status == GONE for attempt in attempts):
        log.warning("webhook %s answered 410 Gone and is disabled", webhook.id)
        WEBHOOKS.update(work, webhook.id, state="disabled")  # until a test succeeds
        work.emit("webhook.disabled", webhook.id, WebhookEvent(webhook=webhook.id, url=webhook.url))


def note_attempt(work: Work, webhook_id: str, attempt: Attempt) -> None:
    """Stores the result of the latest attempt."""
    columns = {"last_attempt_at": attempt.at, "last_status": attempt.status, "last_error": attempt.error}
    WEBHOOKS.update(work, webhook_id, **columns)


def wants(webhook: WebhookRecord, event: EventRecord) -> bool:
    """Whether the webhook gets events of this type. Tests go only to the tested webhook."""
    return event.type != TEST and any(matches(pattern, event.type) for pattern in webhook.events.split(","))


def matches(pattern: str, name: str) -> bool:
    """Whether a pattern such as `incoming_payment.*` matches the type of an event."""
    return name.startswith(pattern[:-1]) if pattern.endswith(ALL) else name == pattern


def _delivery(webhook_id: str, sent: ToSend, attempt: Attempt) -> DeliveryRecord:
    """The row of an event after an attempt that failed or was a retry."""
    made = 1 if sent.delivery is None else sent.delivery.attempts + 1
    if attempt.error is None:
        state, next_at = "delivered", None
    elif made > len(RETRY_PAUSES) or attempt.status == GONE:
        state, next_at = "failed", None
    else:
        pause = round(RETRY_PAUSES[made - 1] * (1 + JITTER * CHANCE.random()))
        state, next_at = "pending", attempt.at + max(pause, attempt.retry_after)
    return DeliveryRecord(
        sequence=sent.event.sequence,
        webhook_id=webhook_id,
        state=state,
        attempts=made,
        next_at=next_at,
        last_attempt_at=attempt.at,
        last_status=attempt.status,
        last_error=attempt.error,
    )


async def _rest() -> None:
    """Pauses in proportion to the event loop's lateness."""
    loop = asyncio.get_running_loop()
    due = loop.time() + PAUSE_SECONDS
    await asyncio.sleep(PAUSE_SECONDS)
    await asyncio.sleep(min(REST_FACTOR * (loop.time() - due), LONGEST_REST_SECONDS))
