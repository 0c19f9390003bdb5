"""Wakes those who wait for a change: requests for a payment, and whoever wants new events.

The database notifies `Changes` after each commit of this process, so nobody polls for that. `poll_events` finds
the events that `payres` commands write.
"""

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

from payres.store import events
from payres.store.database import Database
from payres.store.work import EVENTS
from payres.worker import Worker

POLL_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 5.0


class Changes:
    """Wakes those who watch a key: the id of a payment, or `EVENTS`. For one event loop."""

    def __init__(self) -> None:
        self._watchers: dict[str, set[asyncio.Event]] = {}
        self.count = 0  # of notifications: what is read after one has all that it was about

    def notify(self, changed: Collection[str]) -> None:
        """Wakes those who watch these keys: what they stand for has changed, or may have."""
        self.count += 1
        for key in changed:
            for watcher in self._watchers.get(key, ()):
                watcher.set()

    def is_watched(self, key: str) -> bool:
        return key in self._watchers

    @contextmanager
    def watch(self, key: str, watcher: asyncio.Event | None = None) -> Iterator[asyncio.Event]:
        """An event that each change in the block sets, or this one. To miss none, clear it before looking."""
        watcher = watcher or asyncio.Event()
        self._watchers.setdefault(key, set()).add(watcher)
        try:
            yield watcher
        finally:
            watchers = self._watchers[key]
            watchers.discard(watcher)
            if not watchers:
                del self._watchers[key]


async def poll_events(database: Database, changes: Changes) -> None:
    """Looks for new events once a second while somebody waits for them, until the database is in fail-stop."""
    seen = 0

    async def poll() -> float:
        nonlocal seen
        if changes.is_watched(EVENTS):
            last = await database.read(events.last_sequence)
            if last != seen:
                seen = last
                changes.notify((EVENTS,))
        return POLL_SECONDS

    await Worker("the search for new events", database, poll, RETRY_SECONDS).run()
