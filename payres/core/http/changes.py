"""Wakes tasks that wait for a change: of a payment, or new events.

The database notifies `Changes` after each commit of this process, so these need no polling. `poll_events` finds the
events that `payres` commands write.
"""

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

from payres.core.process.worker import Worker
from payres.core.store import events
from payres.core.store.database import Database
from payres.core.store.work import EVENTS

POLL_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 5.0


class Changes:
    """Wakes the watchers of a key: the id of a payment, or `EVENTS`. For one event loop."""

    def __init__(self) -> None:
        self._watchers: dict[str, set[asyncio.Event]] = {}
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
        self._watchers.setdefault(key, set()).add(watcher)
        try:
            yield watcher
        finally:
            watchers = self._watchers[key]
            watchers.discard(watcher)
            if not watchers:
                del self._watchers[key]


async def poll_events(database: Database, changes: Changes) -> None:
    """Looks for new events once a second while they are watched, until the database is in fail-stop."""
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
