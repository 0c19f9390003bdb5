"""The outbox of events, and waking of the tasks that wait for a change.

The database notifies `Changes` after each commit of this process, so these need no polling. `poll_events` finds the
events that `payres` commands write.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

import msgspec

from payres.core.process.worker import Worker
from payres.core.protocol.clock import CORRECTION, DAY, SECOND
from payres.core.protocol.identifiers import event_id
from payres.core.store.database import Database
from payres.core.store.rows import Table, number
from payres.core.store.work import EVENTS, Transaction, Work

# Tolerated clock steps backwards, in microseconds, when events are searched by their times.
CLOCK_STEP: Final = SECOND
KEPT: Final = 30 * DAY  # or longer, while a part needs it
AT_ONCE: Final = 64  # events that are deleted in one unit, with what parts have stored of them
# Forgets those of these old events, by sequence, that a part does not need, and returns them.
Release = Callable[[Transaction, Sequence[int]], Sequence[int]]
POLL_SECONDS: Final = 1
RETRY_SECONDS: Final = 5
PURGE_SECONDS: Final = 60  # between searches for events that are old enough to delete


class EventRecord(msgspec.Struct, frozen=True):
    """A row of `event`. data is a JSON text."""

    sequence: int
    type: str
    subject: str | None
    data: bytes
    created_at: int
    wallet_address_id: int | None = None

    @property
    def id(self) -> str:
        return event_id(self.created_at, self.sequence)


OUTBOX = Table(EventRecord, "event")


def events_after(tx: Transaction, sequence: int, limit: int) -> Sequence[EventRecord]:
    """The next events after a sequence, in order."""
    return OUTBOX.list(tx, "WHERE sequence > ? ORDER BY sequence LIMIT ?", sequence, limit)


def last_sequence(tx: Transaction) -> int:
    """The sequence of the latest event ever written; 0 if none."""
    return number(tx, "SELECT seq FROM sqlite_sequence WHERE name = 'event'")


def has_old_events(tx: Transaction, now: int) -> bool:
    """Whether an event is old enough to be purged, or may be, behind one of a clock that was ahead."""
    oldest = tx.execute("SELECT created_at FROM event ORDER BY sequence LIMIT 1").fetchone()
    return oldest is not None and not _is_kept(oldest[0], now)


def _is_kept(time: int, now: int) -> bool:
    """Whether an event of this time is kept, and those after it too."""
    return now - KEPT <= time <= now + CORRECTION


def delete_old_events(tx: Transaction, now: int, releases: Iterable[Release], after: int = 0) -> int | None:
    """Deletes those of a batch of old events, the next after this sequence, that no part needs. Returns the last of the
    batch; None if there are no more old ones."""
    batch = "SELECT sequence, created_at FROM event WHERE sequence > ? ORDER BY sequence LIMIT ?"
    found = tx.execute(batch, (after, AT_ONCE)).fetchall()
    gone: Sequence[int] = [sequence for sequence, time in found if time < now - KEPT]
    for release in releases:
        gone = release(tx, gone)
    tx.executemany("DELETE FROM event WHERE sequence = ?", [(sequence,) for sequence in gone])
    is_last = len(found) < AT_ONCE or all(_is_kept(time, now) for _, time in found)
    return None if is_last else found[-1][0]


class Changes:
    """Wakes the watchers of a key: the id of a payment, or `EVENTS`. For one event loop."""

    def __init__(self) -> None:
        self._watchers: dict[str, dict[asyncio.Event, None]] = {}  # they wake in order
        self.count = 0  # of notifications; data read after one includes its changes

    def notify(self, changed: Collection[str]) -> None:
        """Wakes the watchers of these keys, which have changed or may have."""
        self.count += 1
        for key in changed:
            for watcher in self._watchers.get(key, ()):
                watcher.set()

    def is_watched(self, key: str) -> bool:
        return key in self._watchers

    @contextmanager
    def watch(self, key: str, watcher: asyncio.Event | None = None) -> Iterator[asyncio.Event]:
        """An asyncio event (`watcher` if given) that each change sets. To miss none, clear it before reading."""
        watcher = watcher or asyncio.Event()
        self._watchers.setdefault(key, {})[watcher] = None
        try:
            yield watcher
        finally:
            watchers = self._watchers[key]
            watchers.pop(watcher, None)
            if not watchers:
                del self._watchers[key]


async def poll_events(database: Database, changes: Changes) -> None:
    """Looks for new events once a second while they are watched, until the database is in fail-stop."""
    seen = 0

    async def poll() -> int:
        nonlocal seen
        if changes.is_watched(EVENTS):
            last = await database.read(last_sequence)
            if last != seen:
                seen = last
                changes.notify((EVENTS,))
        return POLL_SECONDS

    await Worker("the search for new events", database, poll, RETRY_SECONDS).run()


async def purge_events(database: Database, releases: Sequence[Release]) -> None:
    """Deletes events after 30 days, except those that a part needs, until the database is in fail-stop."""

    def delete_batch(work: Work, after: int) -> int | None:
        return delete_old_events(work, work.now, releases, after)

    async def purge() -> int:
        after = 0 if await database.read(lambda work: has_old_events(work, work.now)) else None
        while after is not None:
            after = await database.write(partial(delete_batch, after=after))
        return PURGE_SECONDS

    await Worker("the purge of events", database, purge, PURGE_SECONDS).run()
