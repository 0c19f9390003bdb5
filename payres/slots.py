"""Concurrency slots: limits how many hold one at a time, in all and under each key; others wait, or fail.

For one event loop; not thread-safe.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Final

Key = tuple[Hashable, ...]


class SlotsBusy(Exception):
    """No slot became free in time, or too many wait for one already."""


class Slots:
    """Slots with a limit for each level of a key.

    `limits[0]` is how many slots are held at a time in all, `limits[1]` how many under each first part of a key,
    `limits[2]` under each first two parts, and so on; None is no limit. A key may have fewer parts than there are
    limits: then only the first limits hold for it. So `Slots(32, 4)` with the host as key is 32 exchanges, 4 with one
    host, and `Slots(None, 64, 24)` with `(peer, wallet)` is 64 packets to each peer, 24 from one wallet.

    Slots are given in order, first among the waiters of the same key, then among all: a waiter for its key's slot holds
    no slot that another key could use. `queue` bounds how many may wait for each slot.
    """

    def __init__(self, *limits: int | None, queue: int | None = None) -> None:
        # The widest first, each with the number of the key's parts.
        self._limits: Final = [(length, limit) for length, limit in enumerate(limits) if limit is not None]
        self._queue: Final = queue
        self._levels: dict[Key, _Level] = {}

    def try_take(self, *key: Hashable) -> bool:
        """Takes a slot if there is one now, never one that others wait for. `release` the same key afterwards."""
        levels = self._join(key)
        for level in levels:
            if level.held >= level.limit:
                self._leave(key)
                return False
        for level in levels:
            level.held += 1
        return True

    def release(self, *key: Hashable) -> None:
        """Gives back a slot that `try_take` took under this key; the first waiter gets it."""
        for length, _ in self._limits:
            if length <= len(key):
                self._levels[key[:length]].release()
        self._leave(key)

    @asynccontextmanager
    async def slot(self, *key: Hashable, seconds: float | None = None) -> AsyncIterator[None]:
        """Holds a slot for the length of the block, after waiting for up to `seconds`. Raises SlotsBusy."""
        if not self.try_take(*key):
            await self._wait(key, seconds)
        try:
            yield
        finally:
            self.release(*key)

    async def _wait(self, key: Key, seconds: float | None) -> None:
        levels, taken = self._join(key), list[_Level]()
        try:
            if self._queue is not None and any(level.users > level.limit * (1 + self._queue) for level in levels):
                raise SlotsBusy
            async with asyncio.timeout(seconds):
                # The narrowest level first: a waiter for its key's slot must not hold a slot that others could use.
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

    def _join(self, key: Key) -> "list[_Level]":
        """The levels of a key, the widest first. Those that nobody uses are not stored, because clients can make up any
        number of keys."""
        joined = []
        for length, limit in self._limits:
            if length <= len(key):
                level = self._levels.get(key[:length])
                if level is None:
                    level = self._levels[key[:length]] = _Level(limit)
                level.users += 1
                joined.append(level)
        return joined

    def _leave(self, key: Key) -> None:
        for length, _ in self._limits:
            if length <= len(key):
                level = self._levels[key[:length]]
                level.users -= 1
                if not level.users:
                    del self._levels[key[:length]]


class _Level:
    """The slots under one part of a key. `users` hold one, wait for one, or wait for one of a narrower level."""

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
            if slot.done() and not slot.cancelled():  # it came at the very moment of the cancellation
                self.release()
            raise

    def release(self) -> None:
        """Hands the slot to the first in the queue, so that nobody can overtake it."""
        while self._waiting:
            slot, _ = self._waiting.popitem(last=False)
            if not slot.done():
                slot.set_result(None)
                return
        self.held -= 1
