"""Concurrency slots: so many holders at a time in all, and so many of them under each key; others wait, or may not.

For one event loop; nothing here is shared between threads.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Hashable, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Final


class SlotsBusy(Exception):
    """No slot became free in time, or too many wait for one already."""


class Slots:
    """Slots with a limit for each level of a key.

    `limits[0]` is how many slots are held at a time in all, `limits[1]` how many under each first part of a key,
    `limits[2]` under each first two parts, and so on; None is no limit. A key may have fewer parts than there are
    limits: then only the first limits hold for it. So `Slots(32, 4)` with the host as key is 32 exchanges, 4 with one
    host, and `Slots(None, 64, 24)` with `(peer, wallet)` is 64 packets to each peer, 24 from one wallet.

    Waiters take turns in the order in which they came, first among those of the same key, then among all: who waits for
    the share of one key holds no slot that another key could use. `queue` bounds how many may wait for each slot.
    """

    def __init__(self, *limits: int | None, queue: int | None = None) -> None:
        self._parts: Final = len(limits)
        self._limits: Final = [(length, limit) for length, limit in enumerate(limits) if limit is not None]
        self._queue: Final = queue
        self._levels: dict[tuple[Hashable, ...], _Level] = {}

    def try_take(self, *key: Hashable) -> bool:
        """Takes a slot if there is one now, never one that others wait for. `release` the same key afterwards."""
        levels = self._join(key)
        for level in levels:
            if level.held >= level.limit:
                self._leave(levels)
                return False
        for level in levels:
            level.held += 1
        return True

    def release(self, *key: Hashable) -> None:
        """Gives back a slot that `try_take` took under this key; the first who waits for it has it then."""
        levels = [self._levels[key[:length]] for length, _ in self._limits_of(key)]
        for level in levels:
            level.release()
        self._leave(levels)

    @asynccontextmanager
    async def slot(self, *key: Hashable, timeout: float | None = None) -> AsyncIterator[None]:  # noqa: ASYNC109 - bounds the wait, not the block
        """Holds a slot for the length of the block, after up to `timeout` seconds of waiting. Raises SlotsBusy."""
        if not self.try_take(*key):
            await self._wait(key, timeout)
        try:
            yield
        finally:
            self.release(*key)

    async def _wait(self, key: tuple[Hashable, ...], seconds: float | None) -> None:
        with ExitStack() as undo:
            levels = self._join(key)
            undo.callback(self._leave, levels)
            if self._queue is not None and any(level.users > level.limit * (1 + self._queue) for level in levels):
                raise SlotsBusy
            try:
                async with asyncio.timeout(seconds):
                    # The narrowest level first: who waits for its share must not hold what others could use.
                    for level in reversed(levels):
                        await level.take()
                        undo.callback(level.release)
            except TimeoutError as error:
                raise SlotsBusy from error
            undo.pop_all()

    def _limits_of(self, key: tuple[Hashable, ...]) -> Sequence[tuple[int, int]]:
        """The limits that hold for a key, the widest first, each with the length of the part that it is for."""
        assert len(key) < self._parts, "every part of a key has its limit"
        return [limit for limit in self._limits if limit[0] <= len(key)]

    def _join(self, key: tuple[Hashable, ...]) -> "list[_Level]":
        levels = []
        for length, limit in self._limits_of(key):
            part = key[:length]
            level = self._levels.get(part)
            if level is None:
                level = self._levels[part] = _Level(part, limit)
            level.users += 1
            levels.append(level)
        return levels

    def _leave(self, levels: "list[_Level]") -> None:
        """Drops what nobody uses any more, because there is no end to the keys that clients make up."""
        for level in levels:
            level.users -= 1
            if not level.users:
                del self._levels[level.key]


class _Level:
    """The slots under one key or part of a key. `users` hold one, wait for one, or wait for one of a narrower level."""

    __slots__ = ("_waiting", "held", "key", "limit", "users")

    def __init__(self, key: tuple[Hashable, ...], limit: int) -> None:
        self.key = key
        self.limit = limit
        self.held = 0
        self.users = 0
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
            if slot.done() and not slot.cancelled():  # it came at the very moment of the cancellation
                self.release()
            self._waiting.pop(slot, None)
            raise

    def release(self) -> None:
        """Hands the slot to the first in the queue, so that nobody who comes just then is faster."""
        while self._waiting:
            slot, _ = self._waiting.popitem(last=False)
            if not slot.done():
                slot.set_result(None)
                return
        self.held -= 1
