"""Concurrency slots: limits on concurrent use, in total and per key; others wait, or fail.

For one event loop; not thread-safe.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Final

SlotKey = tuple[Hashable, ...]


class SlotsBusy(Exception):
    """No slot became free in time, or too many are waiting."""


class Slots:
    """Slots with a limit for each level of a key.

    `limits[0]` is the number of slots in total, `limits[1]` the number per first part of a key, `limits[2]` per first
    two parts, and so on; None is no limit. For a key with fewer parts only the first limits apply. So `Slots(32, 4)`
    with the host as key means 32 exchanges, 4 with one host, and `Slots(None, 64, 24)` with `(peer, wallet)` means 64
    packets to each peer, 24 from one wallet.

    Slots are assigned in order, first among the waiters of the same key, then among all: a waiter for its key's slot
    has no slot that another key could use. `queue` limits the number of waiters per slot.
    """

    def __init__(self, *limits: int | None, queue: int | None = None) -> None:
        # Widest first, each with its number of key parts.
        self._limits: Final = [(length, limit) for length, limit in enumerate(limits) if limit is not None]
        self._queue: Final = queue
        self._levels: dict[SlotKey, _Level] = {}

    def try_take(self, *key: Hashable) -> bool:
        """Takes a slot if one is free and nobody is waiting for it. `release` the same key afterwards."""
        levels = self._join(key)
        for level in levels:
            if level.held >= level.limit:
                self._leave(key)
                return False
        for level in levels:
            level.held += 1
        return True

    def release(self, *key: Hashable) -> None:
        """Releases a slot that `try_take` took with this key; the first waiter gets it."""
        for length, _ in self._limits:
            if length <= len(key):
                self._levels[key[:length]].release()
        self._leave(key)

    @asynccontextmanager
    async def slot(self, *key: Hashable, seconds: float | None = None) -> AsyncIterator[None]:
        """Takes a slot for the block, after waiting up to `seconds`. Raises SlotsBusy."""
        if not self.try_take(*key):
            await self._wait(key, seconds)
        try:
            yield
        finally:
            self.release(*key)

    async def _wait(self, key: SlotKey, seconds: float | None) -> None:
        levels, taken = self._join(key), list[_Level]()
        try:
            if self._queue is not None and any(level.users > level.limit * (1 + self._queue) for level in levels):
                raise SlotsBusy
            async with asyncio.timeout(seconds):
                # Narrowest level first: a waiter for its key's slot must not have a slot that others could use.
                for level in reversed(levels):
                    await level.take()
                    taken.append(level)
        except BaseException as error:
            for level in taken:
                level.release()
            self._leave(key)
            if isinstance(error, TimeoutError):
                raise SlotsBusy from error
            raise

    def _join(self, key: SlotKey) -> "list[_Level]":
        """The levels of a key, widest first. Unused levels are not stored: clients can make up any number of keys."""
        joined = []
        for length, limit in self._limits:
            if length <= len(key):
                level = self._levels.get(key[:length])
                if level is None:
                    level = self._levels[key[:length]] = _Level(limit)
                level.users += 1
                joined.append(level)
        return joined

    def _leave(self, key: SlotKey) -> None:
        for length, _ in self._limits:
            if length <= len(key):
                level = self._levels[key[:length]]
                level.users -= 1
                if not level.users:
                    del self._levels[key[:length]]


class _Level:
    """The slots of one part of a key. `users` have one, or wait for one here or at a narrower level."""

    def __init__(self, limit: int) -> None:
        self.limit: Final = limit
        self.held = self.users = 0
        self._waiting: OrderedDict[asyncio.Future[None], None] = OrderedDict()

    async def take(self) -> None:
        if self.held < self.limit:
            self.held += 1
            return
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[slot] = None
        try:
            await slot
        except BaseException:
            self._waiting.pop(slot, None)
            if slot.done() and not slot.cancelled():  # assigned at the moment of cancellation
                self.release()
            raise

    def release(self) -> None:
        """Passes the slot to the first waiter, so that nobody can overtake it."""
        while self._waiting:
            slot, _ = self._waiting.popitem(last=False)
            if not slot.done():
                slot.set_result(None)
                return
        self.held -= 1
