"""Webhooks as a part: events sent to them in turn, until each has taken its own.

A webhook gets its events in rounds: a few are sent at a time, and when all have been answered, their results are stored
together with the webhook's cursor. So a slow webhook delays no other, and a restart continues from the rows. The cursor
is the last event up to which each was attempted once, or was not wanted. Wallets take turns, so that the events of one
delay no other's; one that is ahead of the webhook's cursor has a cursor of its own. An event that was not accepted has
a row with the time of the next attempt. After a crash, the events of a round are sent again, with the same ids.
"""

import asyncio
import logging
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from heapq import heappop, heappush
from itertools import zip_longest
from secrets import SystemRandom
from typing import Final, NamedTuple

import msgspec

from payres.agenda.store.agenda import Agenda
from payres.core.http.context import Context
from payres.core.http.serving import Background, Opening, Part
from payres.core.process.worker import Worker, cancel_all, retry
from payres.core.protocol.clock import HOUR, MINUTE, SECOND
from payres.core.protocol.event_types import WebhookEvent
from payres.core.store.database import Database
from payres.core.store.events import OUTBOX, Changes, EventRecord
from payres.core.store.work import EVENTS as NEWS
from payres.core.store.work import Work
from payres.webhooks.limits import MAX_DELIVERIES_OF_WEBHOOK, MAX_EVENTS_IN_TURNS
from payres.webhooks.sender import GONE, Attempt, Sender, WebhookTarget, target_of
from payres.webhooks.store import webhooks
from payres.webhooks.store.webhooks import (
    ACTIVE_WEBHOOK,
    DELIVERIES,
    WEBHOOKS,
    AttemptRecord,
    DeliveryRecord,
    Due,
    OfWallet,
    Waiting,
    WebhookRecord,
    due_deliveries,
    find_delivery,
    unattempted,
)


class Turn(NamedTuple):
    """An event that is next, by its sequence. `wallet_id` is 0 for an event of no wallet."""

    sequence: int
    wallet_id: int


NONE: Final = (0,)  # no event has this sequence


class Turns:
    """Events that wait, by wallet. A storm of one wallet's events delays those of others by one event each."""

    def __init__(self) -> None:
        # The wallet whose turn is next comes first. Arrays, because a hundred thousand events take a megabyte of them.
        self._waiting: OrderedDict[int, array[int]] = OrderedDict()
        self._count = 0
        self._firsts: list[Turn] = []  # a heap with the first event of each wallet, and some that were taken

    def __len__(self) -> int:
        return self._count

    def add(self, turn: Turn) -> None:
        """Adds the wallet's last event."""
        if turn.wallet_id not in self._waiting:
            self._note_first(turn)
        self._waiting.setdefault(turn.wallet_id, array("q")).append(turn.sequence)
        self._count += 1

    def take(self, most: int) -> list[Turn]:
        """Takes up to so many events, one of each wallet in turn."""
        taken: list[Turn] = []
        while self._waiting and len(taken) < most:
            wallet_id, sequences = self._waiting.popitem(last=False)
            taken.append(Turn(sequences.pop(0), wallet_id))
            if sequences:
                self._waiting[wallet_id] = sequences
                self._note_first(Turn(sequences[0], wallet_id))
        self._count -= len(taken)
        return taken

    def put_back(self, taken: Sequence[Turn]) -> None:
        """Makes these, which were taken together, the next ones again."""
        for turn in reversed(taken):
            self._waiting.setdefault(turn.wallet_id, array("q")).insert(0, turn.sequence)
            self._waiting.move_to_end(turn.wallet_id, last=False)
            self._note_first(turn)
        self._count += len(taken)

    def first(self) -> int | None:
        """The lowest sequence that waits."""
        while self._firsts and self._waiting.get(self._firsts[0].wallet_id, NONE)[0] != self._firsts[0].sequence:
            heappop(self._firsts)
        return self._firsts[0].sequence if self._firsts else None

    def _note_first(self, turn: Turn) -> None:
        if len(self._firsts) > 2 * len(self._waiting) + READ_AT_ONCE:
            self._firsts = sorted(Turn(sequences[0], one) for one, sequences in self._waiting.items())
        heappush(self._firsts, turn)


# Pauses between attempts; after the last attempt the delivery has failed.
RETRY_PAUSES: Final = (
    *(5 * SECOND, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 5 * HOUR),
    *(10 * HOUR, 14 * HOUR, 20 * HOUR, 24 * HOUR),
)
# The random part of a pause, so that deliveries that failed together are not retried together.
JITTER: Final = 0.1
CHANCE: Final = SystemRandom()
# Events examined at a time. A cursor so far behind is stored even if no event was wanted.
READ_AT_ONCE: Final = 256
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
FIRST_DUE: Final = Due(0, 0, 0)
ALL: Final = "*"
TEST: Final = "webhook.test"  # sent only to its webhook, on creation
# What the webhook of a wallet gets. Other events of a wallet, such as an unresolved packet, are the operator's.
OF_WALLETS: Final = ("incoming_payment.*", "outgoing_payment.*", "grant.*", "refund.*", "wallet.*")

log = logging.getLogger("payres.events")


class ToSend(msgspec.Struct, frozen=True):
    """An event to send to a webhook; with a delivery, it is a retry."""

    event: EventRecord
    delivery: DeliveryRecord | None = None

    @property
    def attempt(self) -> int:
        """Which attempt to send the event this is."""
        return 1 if self.delivery is None else self.delivery.attempts + 1

    @property
    def turn(self) -> Turn:
        return Turn(self.event.sequence, self.event.wallet_address_id or 0)


class Round(msgspec.Struct, frozen=True):
    """Events to send to a webhook, one after another."""

    target: WebhookTarget
    to_send: Sequence[ToSend]


class Found(msgspec.Struct, frozen=True):
    """What waits for a webhook besides what is known: the wanted ones of the next events up to `seen`, and `due`."""

    webhook: WebhookRecord
    wanted: Sequence[Waiting]
    seen: int
    due: Sequence[Due]


class Queue:
    """What waits for one webhook. It is lost in a crash, and found again from the rows."""

    def __init__(self) -> None:
        self.seen = 0  # the last event examined
        self.due_after = FIRST_DUE
        self._new = Turns()
        self._again = Turns()
        self._retried: set[int] = set()  # the sequences in `_again`

    def __len__(self) -> int:
        return len(self._new) + len(self._again)

    @property
    def room(self) -> int:
        """How many more events may be examined."""
        return max(min(READ_AT_ONCE, MAX_EVENTS_IN_TURNS - len(self)), 0)

    @property
    def cursor(self) -> int:
        """The last event up to which none waits."""
        first = self._new.first()
        return self.seen if first is None else first - 1

    def add(self, found: Found) -> None:
        self.seen = found.seen
        for one in found.wanted:
            self._new.add(Turn(one.sequence, one.wallet_id))
        for due in found.due:
            if due.sequence not in self._retried:
                self._retried.add(due.sequence)
                self._again.add(Turn(due.sequence, due.wallet_id))
        # From the start again after the last, for those that became due meanwhile.
        self.due_after = found.due[-1] if len(found.due) >= READ_AT_ONCE else FIRST_DUE

    def take(self, most: int) -> Sequence[Turn]:
        """Takes the next events. At most every other is a retry: retries must not delay new events."""
        again = self._again.take(most // 2)
        self._retried.difference_update(one.sequence for one in again)
        new = self._new.take(most - len(again))
        return [one for pair in zip_longest(again, new) for one in pair if one is not None]

    def put_back(self, unsent: Sequence[ToSend]) -> None:
        """Makes events that were taken together the next ones again."""
        self._new.put_back([one.turn for one in unsent if one.delivery is None])
        self._again.put_back([one.turn for one in unsent if one.delivery is not None])
        self._retried.update(one.event.sequence for one in unsent if one.delivery is not None)


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


def find(work: Work, webhook_id: str, queue: Queue) -> Found | None:
    """What waits for a webhook and is not in its queue; None unless it is active."""
    webhook = WEBHOOKS.get(work, webhook_id)
    if webhook is None or not webhook.active:
        return None
    found, seen = unattempted(work, webhook, max(webhook.cursor, queue.seen), queue.room)
    wanted = [one for one in found if wants(webhook, one.type)]
    next_at, sequence, _ = queue.due_after
    return Found(webhook, wanted, seen, due_deliveries(work, webhook_id, work.now, next_at, sequence, queue.room))


def find_round(work: Work, webhook: WebhookRecord, taken: Sequence[Turn]) -> Round:
    """These events, each once, with their deliveries if they were sent before, or are replayed before their turn."""
    to_send = []
    for turn in dict.fromkeys(taken):
        event, delivery = OUTBOX.get(work, turn.sequence), find_delivery(work, turn.sequence, webhook.id)
        if event is not None and (delivery is None or delivery.next_at is not None):
            to_send.append(ToSend(event, delivery))
    return Round(target_of(work, webhook), to_send)


def is_all_sent(work: Work) -> bool:
    """Whether no active webhook has an event or retry to be sent now."""
    if webhooks.events_of_wallets(work, 0, READ_AT_ONCE)[0]:
        return False
    queues = [(one, find(work, one.id, Queue())) for one in webhooks.list_webhooks(work)]
    return not any(
        found is not None and (found.wanted or found.due or found.seen >= webhook.cursor + READ_AT_ONCE)
        for webhook, found in queues
    )


def store_round(work: Work, found: Round, attempts: Sequence[Attempt], cursor: int) -> None:
    """Stores the results of a round, and the cursors; nothing if the webhook was removed."""
    webhook, sent = WEBHOOKS.get(work, found.target.webhook.id), found.to_send[: len(attempts)]
    if webhook is None:
        return
    first_attempts = [one.turn for one in sent if one.delivery is None]
    ahead = {turn.wallet_id: turn.sequence for turn in first_attempts if turn.sequence > cursor}
    webhooks.advance(work, webhook.id, cursor, ahead, READ_AT_ONCE)
    kept = webhooks.kept_events(work, [one.event.sequence for one in sent])
    for one, attempt in zip(sent, attempts, strict=True):
        if one.event.sequence in kept and (one.delivery is not None or attempt.error is not None):
            DELIVERIES.replace(work, _delivery(webhook.id, one, attempt))
    webhooks.note_due(work, webhook.id, work.now)
    if attempts:
        note_attempts(work, webhook.id, list(zip(sent, attempts, strict=True)))
    if webhook.active and any(attempt.status == GONE for attempt in attempts):
        log.warning("webhook %s answered 410 Gone and is disabled", webhook.id)
        WEBHOOKS.update(work, webhook.id, state="disabled")  # until a test succeeds
        work.emit("webhook.disabled", webhook.id, WebhookEvent(webhook=webhook.id, url=webhook.url))


def note_attempts(work: Work, webhook_id: str, made: Sequence[tuple[ToSend, Attempt]]) -> None:
    """Stores the results of attempts, in their order."""
    webhooks.add_attempts(work, webhook_id, [_kept(webhook_id, *one) for one in made])
    _, latest = made[-1]
    columns = {"last_attempt_at": latest.at, "last_status": latest.status, "last_error": latest.error}
    WEBHOOKS.update(work, webhook_id, **columns)


def _kept(webhook_id: str, sent: ToSend, made: Attempt) -> AttemptRecord:
    """The row of an attempt, before it has its number."""
    event, result = sent.event, (made.at, made.milliseconds, made.status, made.error, made.answer)
    return AttemptRecord(webhook_id, 0, event.id, event.type, sent.attempt, *result)


def wants(webhook: WebhookRecord, name: str) -> bool:
    """Whether the webhook gets events of this type. Tests go only to the tested webhook."""
    patterns = webhook.events.split(",")
    if webhook.wallet_address_id is not None and not any(matches(pattern, name) for pattern in OF_WALLETS):
        return False
    return name != TEST and any(matches(pattern, name) for pattern in patterns)


def concerns(webhook: WebhookRecord, event: EventRecord) -> bool:
    """Whether the webhook may get this event: that of a wallet gets no other's, and none that is the operator's."""
    return webhook.wallet_address_id is None or (
        webhook.wallet_address_id == event.wallet_address_id and wants(webhook, event.type)
    )


def matches(pattern: str, name: str) -> bool:
    """Whether a pattern such as `incoming_payment.*` matches the type of an event."""
    return name.startswith(pattern[:-1]) if pattern.endswith(ALL) else name == pattern


def _delivery(webhook_id: str, sent: ToSend, attempt: Attempt) -> DeliveryRecord:
    """The row of an event after an attempt that failed or was a retry."""
    made = sent.attempt
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
