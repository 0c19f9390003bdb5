"""Webhooks as a part: events sent to them in turn, until each has taken its own.

A webhook gets its events in rounds: a few are sent at a time, and when all have been answered, their results are stored
together with the webhook's cursor. So a slow webhook delays no other, and a restart continues from the rows. The cursor
is the last event up to which each was attempted once, or was not wanted. Wallets take turns, so that the events of one
delay no other's; one that is ahead of the webhook's cursor has a cursor of its own. An event that was not accepted has
a row with the time of the next attempt. After a crash, the events of a round are sent again, with the same ids.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from payres.agenda.store.agenda import Agenda
from payres.core.http.context import Context
from payres.core.http.serving import Background, Opening, Part
from payres.core.process.worker import Worker, cancel_all, retry
from payres.core.store.database import Database
from payres.core.store.events import Changes
from payres.core.store.work import EVENTS as NEWS
from payres.core.store.work import Work
from payres.webhooks.limits import MAX_DELIVERIES_OF_WEBHOOK
from payres.webhooks.patterns import wants
from payres.webhooks.rounds import Queue, Round, find, find_round, store_round
from payres.webhooks.sender import Attempt, Sender
from payres.webhooks.store import webhooks
from payres.webhooks.store.webhooks import ACTIVE_WEBHOOK, WEBHOOKS, OfWallet, WebhookRecord
from payres.webhooks.turns import READ_AT_ONCE

# Maximum events of a round. It has as many as are in flight while requests keep the server busy, and then twice as many
# as the one before.
SENT_AT_ONCE: Final = 64
# Seconds after which a round begins to send no more events: their results are to be stored, and others have their turn.
ROUND_SECONDS: Final = 0.1
# Seconds between searches for webhooks and events of other processes, and for due retries.
LOOK_SECONDS: Final = 1.0
# Minimum seconds between searches for events when none is left, because under load every commit has some.
PAUSE_SECONDS: Final = 0.02
RETRY_SECONDS: Final = 5.0
# The event loop's turns that are timed after a round, and the seconds that one takes when requests keep it busy.
TIMED_TURNS: Final = 8
BUSY_SECONDS: Final = 0.0002
# After a round a webhook pauses for this multiple of the time of a turn: payments have priority.
REST_FACTOR: Final = 20
BUSY_REST_SECONDS: Final = 0.04  # added then: about 90 events a second, less than a twentieth of the time
LONGEST_REST_SECONDS: Final = 1.0

log = logging.getLogger("payres.events")


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
        found = await self._database.read(lambda work: webhooks.webhooks_of(work, None))
        self._tasks = {webhook_id: task for webhook_id, task in self._tasks.items() if not task.done()}
        for webhook in found:
            if webhook.active and webhook.id not in self._tasks:
                self._tasks[webhook.id] = asyncio.create_task(self._serve(webhook.id))
        return LOOK_SECONDS

    async def _serve(self, webhook_id: str) -> None:
        """Sends a webhook its events, until it is no longer active. After a fault it begins anew from the rows."""
        rounds = partial(self._send_rounds, webhook_id)
        await retry(f"webhook {webhook_id}", self._database, rounds, RETRY_SECONDS)

    async def _send_rounds(self, webhook_id: str) -> None:
        queue, most = Queue(), MAX_DELIVERIES_OF_WEBHOOK
        with self._changes.watch(NEWS) as news:
            while True:
                most = min(2 * most, SENT_AT_ONCE) if await _give_way() else MAX_DELIVERIES_OF_WEBHOOK
                news.clear()
                found = await self._database.read(partial(find, webhook_id=webhook_id, queue=queue))
                if found is None:
                    return
                is_all = found.seen == queue.seen
                queue.add(found)
                if queue or queue.cursor >= found.webhook.cursor + READ_AT_ONCE:
                    await self._send_round(found.webhook, queue, most)
                elif is_all:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_SECONDS):
                            await news.wait()
                if not queue:
                    await asyncio.sleep(PAUSE_SECONDS)

    async def send_due(self, webhook_id: str) -> float | None:
        """Sends an owner's webhook a round of what is due; then it is others' turn."""
        await _give_way()
        queue = Queue()
        found = await self._database.read(partial(find, webhook_id=webhook_id, queue=queue))
        if found is None:
            return None
        queue.add(found)
        return 0 if await self._send_round(found.webhook, queue, 2 * SENT_AT_ONCE) else None

    async def _send_round(self, webhook: WebhookRecord, queue: Queue, most: int) -> int:
        """Sends the next events, and stores the results. Returns how many were sent."""
        found = await self._database.read(partial(find_round, webhook=webhook, taken=queue.take(most)))
        attempts = await self._send(found)
        queue.put_back(found.to_send[len(attempts) :])
        await self._database.write(partial(store_round, found=found, attempts=attempts, cursor=queue.cursor))
        return len(attempts)

    async def _send(self, found: Round) -> Sequence[Attempt]:
        """The attempts to send the first events of a round: all, unless the endpoint is slow."""
        loop, left = asyncio.get_running_loop(), enumerate(found.to_send)
        attempts: dict[int, Attempt] = {}
        ends_at = loop.time() + ROUND_SECONDS

        async def send_in_turn() -> None:
            for number, one in left:
                attempts[number] = await self._sender.send(found.target, one.event)
                if loop.time() >= ends_at:
                    return

        await asyncio.gather(*(send_in_turn() for _ in range(MAX_DELIVERIES_OF_WEBHOOK)))
        return [attempts[number] for number in range(len(attempts))]


class WalletEvents:
    """Makes the events of wallets due at the webhooks of their owners. `run` until cancelled.

    New events are looked at together, however many wallets have webhooks: those of wallets that have become deliveries.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._seen = 0

    async def run(self) -> None:
        """Runs until cancelled, or the database is in fail-stop."""
        await Worker("the search for wallets' events", self._database, self._look, RETRY_SECONDS).run()

    async def _look(self) -> float:
        await _give_way()
        found, seen = await self._database.read(lambda work: webhooks.events_of_wallets(work, self._seen, READ_AT_ONCE))
        if found or seen >= self._seen + READ_AT_ONCE:
            await self._database.write(partial(make_due, found=found, cursor=seen))
        has_more, self._seen = seen >= self._seen + READ_AT_ONCE, seen
        return 0 if has_more else LOOK_SECONDS


def make_due(work: Work, found: Sequence[OfWallet], cursor: int) -> None:
    """Makes the wanted ones of these events due."""
    of = {one: WEBHOOKS.get(work, one) for one in {one.webhook_id for one in found}}
    wanted = [one for one in found if (hook := of[one.webhook_id]) is not None and wants(hook, one.type)]
    webhooks.deliver_to_wallets(work, wanted, cursor, work.now)
    work.changed.append(webhooks.DUE.changed)


async def _give_way() -> bool:
    """Pauses in proportion to the time of a turn of the event loop, and longer while requests keep it busy. Returns
    whether they do not. The loop does not tell how much waits in it, but each turn does all that was ready."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    for _ in range(TIMED_TURNS):
        await asyncio.sleep(0)
    turn = (loop.time() - began) / TIMED_TURNS
    is_busy = turn >= BUSY_SECONDS
    await asyncio.sleep(min(REST_FACTOR * turn + is_busy * BUSY_REST_SECONDS, LONGEST_REST_SECONDS))
    return not is_busy


async def _open(opening: Opening) -> None:
    environment = opening.environment
    sender = Sender(environment.clock, environment.settings.allow_private_hosts)
    opening.stack.push_async_callback(sender.aclose)
    opening.parts[Sender] = sender


def _workers(context: Context, _: Opening) -> Iterator[Background]:
    deliveries = Deliveries(context.database, context.changes, context.part(Sender))
    yield deliveries.run()
    yield WalletEvents(context.database).run()
    yield Agenda(webhooks.DUE, context.database, context.changes, deliveries.send_due).run()


WEBHOOKS_PART: Final = Part("webhooks", open=_open, workers=_workers, release=webhooks.release_events)
