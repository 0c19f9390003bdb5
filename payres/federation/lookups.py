"""Looks up names in threads of their own, so that a name server that never answers holds up only those who wait for it.

The system's lookup, which knows the operator's network, cannot be cancelled: its thread stays until the system gives
up, long after those who asked have gone. So a lookup holds a slot until its thread ends.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Thread
from time import monotonic
from typing import NamedTuple

from payres.federation.failed_names import FailedNames
from payres.federation.failures import FetchFailed
from payres.limits import (
    FAILED_LOOKUP_SECONDS,
    MAX_LOOKUPS,
    MAX_LOOKUPS_OF_CLIENT,
    MAX_LOOKUPS_OF_KEY,
    MAX_LOOKUPS_OF_REQUESTS,
    SLOW_LOOKUP_SECONDS,
)
from payres.requester import Requester, requested_by
from payres.slots import Slots

# Looks up a host and port and blocks meanwhile: IP addresses, best first. Raises OSError or ValueError.
Find = Callable[[str, int], Sequence[str]]


def find_addresses(host: str, port: int) -> Sequence[str]:
    """The addresses of a host as the operating system knows them."""
    return _addresses(host, port)


def _addresses(host: str, port: int, flags: int = 0) -> Sequence[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return [str(address[0]) for *_, address in found]


class Lookups:
    """The lookups of one client; all who ask for the same name while it is looked up get the same answer.

    With `limits_requests`, what requests ask for may take a part of the threads only, one client a few of them, and
    names that have just failed or hang are not waited for. `clock` gives seconds that only grow.
    """

    def __init__(
        self, limits_requests: bool = True, find: Find | None = None, clock: Callable[[], float] = monotonic
    ) -> None:
        self._limits_requests = limits_requests
        self._find = find or find_addresses
        self._clock = clock
        self._slots = Slots(MAX_LOOKUPS, MAX_LOOKUPS_OF_REQUESTS, MAX_LOOKUPS_OF_CLIENT, MAX_LOOKUPS_OF_KEY)
        self._in_flight: dict[str, _Lookup] = {}
        self._failed = FailedNames(FAILED_LOOKUP_SECONDS, clock)

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """The addresses of a host. Raises FetchFailed `busy` or `timeout` at once, OSError and ValueError."""
        with suppress(socket.gaierror):  # an address, in any spelling that the system takes, needs no name server
            return _addresses(host, port, socket.AI_NUMERICHOST)
        name = host.lower()  # without the port: it changes no address, and would make many names of one
        requester = requested_by.get() if self._limits_requests else None
        if requester is not None:
            self._require_answering(name)
        lookup = self._in_flight.get(name) or self._begin(name, port, requester)
        return await asyncio.shield(lookup.addresses)  # because others may wait for the same answer

    def _require_answering(self, name: str) -> None:
        lookup = self._in_flight.get(name)
        if lookup is not None and self._clock() >= lookup.begun_at + SLOW_LOOKUP_SECONDS:
            raise FetchFailed("timeout", f"The name servers for {name} do not answer; try again in a few seconds")
        if name in self._failed:
            raise OSError("the name could not be looked up a moment ago")

    def _begin(self, name: str, port: int, requester: Requester | None) -> "_Lookup":
        key = () if requester is None else ("request", *requester)
        if not self._slots.try_take(*key):
            raise _busy(name)
        loop = asyncio.get_running_loop()
        lookup = _Lookup(name, key, self._clock(), loop.create_future())
        try:
            # No executor: the interpreter waits at its exit for the threads of those, and here for nobody.
            Thread(target=self._run, args=(lookup, port, loop), name="lookup", daemon=True).start()
        except RuntimeError as error:
            self._slots.release(*key)
            raise _busy(name) from error
        self._in_flight[name] = lookup
        return lookup

    def _run(self, lookup: "_Lookup", port: int, loop: asyncio.AbstractEventLoop) -> None:
        """What the thread does."""
        try:
            found: Sequence[str] | Exception = self._find(lookup.name, port)
        except Exception as error:  # it is for those who wait
            found = error
        with suppress(RuntimeError):  # the loop has been closed, and nobody waits any more
            loop.call_soon_threadsafe(self._end, lookup, found)

    def _end(self, lookup: "_Lookup", found: Sequence[str] | Exception) -> None:
        del self._in_flight[lookup.name]
        self._slots.release(*lookup.key)
        self._failed.discard(lookup.name)
        if not isinstance(found, Exception):
            lookup.addresses.set_result(found)
            return
        lookup.addresses.set_exception(found)
        lookup.addresses.exception()  # so that asyncio logs nothing where nobody waits any more
        self._failed.add(lookup.name)


class _Lookup(NamedTuple):
    """One in flight, with the key of its slot."""

    name: str
    key: tuple[str, ...]
    begun_at: float
    addresses: "asyncio.Future[Sequence[str]]"


def _busy(name: str) -> FetchFailed:
    sentence = f"The name {name} is not looked up while so many others are; try again in a few seconds"
    return FetchFailed("busy", sentence)
