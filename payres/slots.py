"""Concurrency slots: limits how many hold one at a time, in all and under each key; others wait, or fail.

For one event loop; not thread-safe.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from contextlib import ExitStack
from typing import Final

import msgspec

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
        self._parts: Final = len(limits)
        # The widest first, each with the number of the key's parts.
        self._limits: Final = [(length, limit) for length, limit in enumerate(limits) if limit is not None]
        self._queue: Final = queue
        self._levels: dict[Key, _Level] = {}

    # Every request and packet passes these two, so an uncontended slot costs one call to take and one to release.

    def try_take(self, *key: Hashable) -> bool:
        """Takes a slot if there is one now, never one that others wait for. `release` the same key afterwards."""
        assert len(key) < self._parts, "every part of a key has its limit"
        levels, found = self._levels, []
        for length, limit in self._limits:
            if length <= len(key):
                part = key[:length]
                level = levels.get(part)
                if level is not None and level.held >= limit:
                    return False
                found.append((part, level))
        for part, level in found:
            if level is None:
                level = levels[part] = _Level()
            level.held += 1
            level.users += 1
        return True

    def release(self, *key: Hashable) -> None:
        """Gives back a slot that `try_take` took under this key; the first waiter gets it."""
        for length, _ in self._limits:
            if length <= len(key):
                part = key[:length]
                level = self._levels[part]
                if level.waiting:
                    level.release()
                else:
                    level.held -= 1
                level.users -= 1
                if not level.users:  # unused keys are not stored, because clients can make up any number of keys
                    del self._levels[part]

    def slot(self, *key: Hashable, timeout: float | None = None) -> "_Slot":
        """Holds a slot for the length of the block, after up to `timeout` seconds of waiting. Raises SlotsBusy."""
        return _Slot(self, key, timeout)

    async def wait(self, key: Key, seconds: float | None) -> None:
        """Takes a slot, after up to so many seconds. Raises SlotsBusy."""
        with ExitStack() as undo:
            levels = [(self._join(key[:length]), limit) for length, limit in self._limits if length <= len(key)]
            undo.callback(self._leave, key)
            if self._queue is not None and any(level.users > limit * (1 + self._queue) for level, limit in levels):
                raise SlotsBusy
            try:
                async with asyncio.timeout(seconds):
                    # The narrowest level first: a waiter for its key's slot must not hold a slot that others could use.
                    for level, limit in reversed(levels):
                        await level.take(limit)
                        undo.callback(level.release)
            except TimeoutError as error:
                raise SlotsBusy from error
            undo.pop_all()

    def _join(self, part: Key) -> "_Level":
        level = self._levels.setdefault(part, _Level())
        level.users += 1
        return level

    def _leave(self, key: Key) -> None:
        for length, _ in self._limits:
            if length <= len(key):
                level = self._levels[key[:length]]
                level.users -= 1
                if not level.users:
                    del self._levels[key[:length]]


class _Slot:
    """What `Slots.slot` gives to `async with`; a class, because a generator costs ten times as much as the slot."""

    __slots__ = ("_key", "_seconds", "_slots")

    def __init__(self, slots: Slots, key: Key, seconds: float | None) -> None:
        self._slots = slots
        self._key = key
        self._seconds = seconds

    async def __aenter__(self) -> None:
        if not self._slots.try_take(*self._key):
            await self._slots.wait(self._key, self._seconds)

    async def __aexit__(self, *_: object) -> None:
        self._slots.release(*self._key)


class _Level(msgspec.Struct):
    """The slots under one key or part of a key. `users` hold one, wait for one, or wait for one of a narrower level."""

    held: int = 0
    users: int = 0
    waiting: OrderedDict[asyncio.Future[None], None] | None = None  # made when the first has to wait

    async def take(self, limit: int) -> None:
        if self.held < limit:
            self.held += 1
            return
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.waiting is None:
            self.waiting = OrderedDict()
        self.waiting[slot] = None
        try:
            await slot
        except BaseException:
            if slot.done() and not slot.cancelled():  # it came at the very moment of the cancellation
                self.release()
            self.waiting.pop(slot, None)
            raise

    def release(self) -> None:
        """Hands the slot to the first in the queue, so that nobody can overtake it."""
        while self.waiting:
            slot, _ = self.waiting.popitem(last=False)
            if not slot.done():
                slot.set_result(None)
                return
        self.held -= 1
