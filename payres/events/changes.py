"""Who waits for a change here: requests for a payment, and whoever wants new events. Nobody polls for what this process
does: the database tells after each commit."""

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager


class Changes:
    """Wakes those who watch a key: the id of a payment, or `payres.store.work.EVENTS`. For one event loop."""

    def __init__(self) -> None:
        self._watchers: dict[str, set[asyncio.Event]] = {}

    def tell(self, changed: Collection[str]) -> None:
        """What has these keys has changed, or may have."""
        for key in changed:
            for watcher in self._watchers.get(key, ()):
                watcher.set()

    def is_watched(self, key: str) -> bool:
        return key in self._watchers

    @contextmanager
    def watch(self, key: str) -> Iterator[asyncio.Event]:
        """An event that each change in the block sets. To miss none, clear it before looking."""
        watcher = asyncio.Event()
        self._watchers.setdefault(key, set()).add(watcher)
        try:
            yield watcher
        finally:
            watchers = self._watchers[key]
            watchers.discard(watcher)
            if not watchers:
                del self._watchers[key]
