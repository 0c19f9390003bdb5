"""Deliveries: sends every event to every webhook that wants it, at least once.

A webhook that fails delays no other. A webhook's cursor is the last event up to which each was attempted once, or is
not wanted. An event that it did not accept has a row with the time of the next attempt. So a restart continues from the
rows, and a payment costs the same for any number of webhooks. A crash between an answer and its row sends the event
again, with the same id.
"""

import asyncio
import logging
import math
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from secrets import SystemRandom
from typing import Final

import msgspec

from payres.clock import HOUR, MINUTE, SECOND
from payres.events.changes import Changes
from payres.events.sender import GONE, Attempt, Sender, Target, target_of
from payres.events.webhooks import disable, note_attempt, wants
from payres.limits import MAX_DELIVERIES_OF_WEBHOOK
from payres.store import events, webhooks
from payres.store.database import Database
from payres.store.events import EventRecord
from payres.store.webhooks import DELIVERIES, WEBHOOKS, DeliveryRecord, WebhookRecord
from payres.store.work import EVENTS, Work
from payres.worker import Worker, cancel_all, retry

# Pauses between the attempts; after the last attempt the delivery has failed.
RETRY_PAUSES: Final = (
    *(5 * SECOND, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 5 * HOUR),
    *(10 * HOUR, 14 * HOUR, 20 * HOUR, 24 * HOUR),
)
# The random part of a pause, so that deliveries that failed together are not repeated together.
JITTER: Final = 0.1
CHANCE: Final = SystemRandom()
# Events read at a time for a webhook, which may want few of them; and how many unwanted ones a search passes over, and
# its cursor with them: under load a second has few searches and thousands of events.
READ_AT_ONCE: Final = 16
PASSED_OVER: Final = 256
# How many deliveries in flight to a webhook may be repetitions: they must not delay events that were never sent.
AGAIN_AT_ONCE: Final = MAX_DELIVERIES_OF_WEBHOOK // 2
# Seconds between searches for events of other processes and for retries that are due.
LOOK_SECONDS: Final = 1.0
# Seconds between any two searches, because under load each commit has events.
PAUSE_SECONDS: Final = 0.02
RETRY_SECONDS: Final = 5.0
PURGE_SECONDS: Final = 60.0  # between searches for events that are old enough to delete
# The event loop is busy when its timers are this many seconds late. Then each search and attempt is followed by a pause
# of so many times the lateness, up to a longest one: payments go first.
BUSY_LATENESS: Final = 0.005
PROBE_SECONDS: Final = 0.005
PAUSE_FACTOR: Final = 20
LONGEST_PAUSE_SECONDS: Final = 1.0
LONGEST_SEARCH_PAUSE_SECONDS: Final = 0.2  # for which all slots of a webhook may wait

log = logging.getLogger("payres.events")


class ToSend(msgspec.Struct, frozen=True):
    """An event to send to a webhook, for the first time unless it has a delivery."""

    event: EventRecord
    delivery: DeliveryRecord | None = None


class Found(msgspec.Struct, frozen=True):
    """What to send to a webhook next, the last event that was read, and whether there may be more."""

    to_send: Sequence[ToSend]
    target: Target | None
    read_up_to: int
    has_more: bool


class _InFlight:
    """The events in flight to a webhook, by sequence: those sent for the first time, and repetitions.

    `read_up_to` is the last event that was read for it, `last_ended` the last one of which an attempt has ended.
    """

    def __init__(self, cursor: int) -> None:
        self.read_up_to = cursor
        self.last_ended = cursor
        self.new: set[int] = set()
        self.again: set[int] = set()

    def cursor_without(self, sequence: int) -> int:
        """The cursor once the attempt at this event is stored."""
        return min(self.new - {sequence}, default=self.read_up_to + 1) - 1


class Deliveries:
    """Sends events to webhooks. `run` until cancelled."""

    def __init__(self, database: Database, changes: Changes, sender: Sender) -> None:
        self._database = database
        self._changes = changes
        self._sender = sender
        self._in_flight: dict[str, _InFlight] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Ends when the database is in fail-stop."""
        try:
            with self._changes.watch(EVENTS) as news:
                while not self._database.stopped:
                    await _give_way(PAUSE_SECONDS, PROBE_SECONDS, longest=LONGEST_SEARCH_PAUSE_SECONDS)
                    news.clear()
                    if await retry("the search for events to send", self._database, self._look, RETRY_SECONDS):
                        with suppress(TimeoutError):
                            async with asyncio.timeout(LOOK_SECONDS):
                                await news.wait()
                    else:
                        await asyncio.sleep(LOOK_SECONDS)
        finally:
            await cancel_all(self._tasks)

    async def _look(self) -> bool:
        """Begins to send to each webhook as many events as it has slots for; whether any webhook is active."""
        active = [webhook for webhook in await self._database.read(webhooks.list_webhooks) if webhook.active]
        # The rows have everything about a webhook that is disabled.
        self._in_flight = {one.id: self._in_flight.get(one.id) or _InFlight(one.cursor) for one in active}
        for webhook in active:
            in_flight = self._in_flight[webhook.id]
            if len(in_flight.new) + len(in_flight.again) < MAX_DELIVERIES_OF_WEBHOOK:
                found = await self._database.read(partial(_find_next, webhook=webhook, in_flight=in_flight))
                in_flight.read_up_to = found.read_up_to
                if found.target is not None:
                    for one in found.to_send:
                        self._begin(in_flight, found.target, one)
                await self._move_cursor(webhook, in_flight)
                if found.has_more and not found.to_send:
                    self._changes.notify((EVENTS,))
        return bool(active)

    async def _move_cursor(self, webhook: WebhookRecord, in_flight: _InFlight) -> None:
        """Stores the webhook's cursor past unwanted events and past attempts that ended at the same time."""
        is_behind = webhook.cursor < in_flight.last_ended or webhook.cursor + PASSED_OVER <= in_flight.read_up_to
        if is_behind and not in_flight.new:
            await self._database.write(partial(WEBHOOKS.update, row_id=webhook.id, cursor=in_flight.read_up_to))

    def _begin(self, in_flight: _InFlight, target: Target, to_send: ToSend) -> None:
        (in_flight.new if to_send.delivery is None else in_flight.again).add(to_send.event.sequence)
        task = asyncio.create_task(self._deliver(in_flight, target, to_send))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver(self, in_flight: _InFlight, target: Target, to_send: ToSend) -> None:
        """Sends an event once, and stores what came of it."""
        sequence, webhook_id = to_send.event.sequence, target.webhook.id
        under_way = in_flight.new if to_send.delivery is None else in_flight.again
        try:
            attempt = await self._sender.send(target, to_send.event)
            chance = CHANCE.random()
            unit = partial(store_attempt, webhook_id=webhook_id, to_send=to_send, attempt=attempt, chance=chance)

            async def store() -> None:
                await self._database.write(partial(unit, cursor=in_flight.cursor_without(sequence)))

            await retry(f"webhook {webhook_id}", self._database, store, RETRY_SECONDS)
            await _give_way(PROBE_SECONDS, longest=LONGEST_PAUSE_SECONDS)
        finally:
            under_way.discard(sequence)
            in_flight.last_ended = max(in_flight.last_ended, sequence)
            self._changes.notify((EVENTS,))  # a slot is free


async def purge_events(database: Database) -> None:
    """Deletes events after 30 days, except those still to be sent, until the database is in fail-stop."""

    async def purge() -> float:
        has_more = await database.read(lambda work: webhooks.has_old_events(work, work.now))
        while has_more:
            has_more = await database.write(lambda work: webhooks.purge_events(work, work.now))
        return PURGE_SECONDS

    await Worker("the purge of events", database, purge, PURGE_SECONDS).run()


def _find_next(work: Work, webhook: WebhookRecord, in_flight: _InFlight) -> Found:
    """What to send to the webhook besides what is in flight."""
    again, after = in_flight.again, in_flight.read_up_to
    room = MAX_DELIVERIES_OF_WEBHOOK - len(in_flight.new) - len(again)
    to_send: list[ToSend] = []
    for delivery, event in webhooks.due_deliveries(work, webhook.id, work.now, MAX_DELIVERIES_OF_WEBHOOK):
        if event.sequence not in again and len(again) + len(to_send) < AGAIN_AT_ONCE:
            to_send.append(ToSend(event, delivery))
    for _ in range(PASSED_OVER // READ_AT_ONCE):
        following = events.events_after(work, after, READ_AT_ONCE)
        for event in following:
            if len(to_send) >= room:
                break
            after = event.sequence
            if wants(webhook, event):
                to_send.append(ToSend(event))
        if len(to_send) >= room or len(following) < READ_AT_ONCE:
            break
    target = target_of(work, webhook) if to_send else None
    return Found(to_send, target, after, has_more=len(following) == READ_AT_ONCE)


def store_attempt(work: Work, webhook_id: str, to_send: ToSend, attempt: Attempt, cursor: int, chance: float) -> None:
    """Stores the result of an attempt, and the cursor; nothing for a webhook that was removed.

    `chance` is from 0 to 1, and lengthens the pause.
    """
    webhook = WEBHOOKS.get(work, webhook_id)
    if webhook is None:
        return
    before, failed = to_send.delivery, attempt.error is not None
    made = 1 if before is None else before.attempts + 1
    if failed or before is not None:
        state, next_at = "delivered", None
        if failed:
            is_last = made > len(RETRY_PAUSES) or attempt.status == GONE
            state, next_at = ("failed", None) if is_last else ("pending", _next_attempt(attempt, made, chance))
        sequence, status, error = to_send.event.sequence, attempt.status, attempt.error
        delivery = DeliveryRecord(sequence, webhook_id, state, made, next_at, attempt.at, status, error)
        DELIVERIES.replace(work, delivery)
    note_attempt(work, webhook_id, attempt)
    if cursor > webhook.cursor:
        WEBHOOKS.update(work, webhook_id, cursor=cursor)
    if webhook.active and attempt.status == GONE:
        log.warning("webhook %s is gone, as it answers, and is disabled", webhook_id)
        disable(work, webhook)


def _next_attempt(attempt: Attempt, made: int, chance: float) -> int:
    pause = round(RETRY_PAUSES[made - 1] * (1 + JITTER * chance))
    return attempt.at + max(pause, attempt.retry_after)


async def _give_way(*pauses: float, longest: float) -> None:
    """Pauses for the first of these seconds; and for all, and longer, while the event loop is late each time.

    On a server with little to do a timer is late now and then, and searches are not to wait for that.
    """
    lateness = math.inf
    for pause in pauses:
        lateness = min(lateness, await _lateness(pause))
        if lateness <= BUSY_LATENESS:
            return
    await asyncio.sleep(min(PAUSE_FACTOR * lateness, longest))


async def _lateness(seconds: float) -> float:
    """How many seconds late the event loop's timer for so many seconds is."""
    loop = asyncio.get_running_loop()
    due = loop.time() + seconds
    await asyncio.sleep(seconds)
    return loop.time() - due
