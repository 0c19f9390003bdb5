"""A bounded number of exchanges at a time, so that one slow server cannot use up all the others' turns."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from payres.federation.failures import FetchFailed

# For every exchange under way so many may wait; whoever comes after them is told at once.
_WAITING_PER_PLACE = 3


class _Host:
    """The places at one host. `users` counts who holds one and who waits for one."""

    def __init__(self, places: int) -> None:
        self.places = asyncio.Semaphore(places)
        self.users = 0


class Places:
    """Lets `in_all` exchanges run at a time, `per_host` with one host; the others wait up to `patience` seconds."""

    def __init__(self, per_host: int, in_all: int, patience: float) -> None:
        self._per_host = per_host
        self._in_all = in_all
        self._patience = patience
        self._places = asyncio.Semaphore(in_all)
        self._users = 0
        self._hosts: dict[str, _Host] = {}

    @asynccontextmanager
    async def place(self, name: str) -> AsyncIterator[None]:
        """Hold a place at a host for the length of the block. Raises FetchFailed `busy` when there is none in time."""
        host = self._hosts.get(name) or _Host(self._per_host)
        if self._is_full(host):
            raise _busy(name)
        self._hosts[name] = host
        host.users += 1
        self._users += 1
        try:
            async with AsyncExitStack() as held:
                await self._take(held, host, name)
                yield
        finally:
            self._users -= 1
            host.users -= 1
            if host.users == 0:
                del self._hosts[name]

    def _is_full(self, host: _Host) -> bool:
        queue = 1 + _WAITING_PER_PLACE
        return host.users >= self._per_host * queue or self._users >= self._in_all * queue

    async def _take(self, held: AsyncExitStack, host: _Host, name: str) -> None:
        try:
            async with asyncio.timeout(self._patience):
                # The host's place first: who waits for a slow host must not hold a place that others could use.
                await held.enter_async_context(host.places)
                await held.enter_async_context(self._places)
        except TimeoutError as error:
            raise _busy(name) from error


def _busy(name: str) -> FetchFailed:
    return FetchFailed("busy", f"Too many requests to {name} are under way; try again in a few seconds")
