"""Looks up names in threads of their own, so that a name server that never answers delays only those who wait for it.

The system's lookup cannot be cancelled: its thread stays until the system gives up, long after those who asked have
gone. So a lookup holds a slot until its thread ends.
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

# A blocking lookup of a host and port: IP addresses, best first. Raises OSError or ValueError.
Find = Callable[[str, int], Sequence[str]]


def find_addresses(host: str, port: int) -> Sequence[str]:
    """The addresses of a host, from the operating system."""
    return _addresses(host, port)


def _addresses(host: str, port: int, flags: int = 0) -> Sequence[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return [str(address[0]) for *_, address in found]


class Lookups:
    """The lookups of one HTTP client.

    All who ask for a name while it is looked up share the answer. With `untrusted_hosts`, requests may use only a part
    of the threads, and one client a few of them; names that have just failed or hang are not waited for. `clock` is
    monotonic, in seconds.
    """

    def __init__(
        self, untrusted_hosts: bool = True, find: Find | None = None, clock: Callable[[], float] = monotonic
    ) -> None:
        self._untrusted_hosts = untrusted_hosts
        self._find = find or find_addresses
        self._clock = clock
        self._slots = Slots(MAX_LOOKUPS, MAX_LOOKUPS_OF_REQUESTS, MAX_LOOKUPS_OF_CLIENT, MAX_LOOKUPS_OF_KEY)
        self._in_flight: dict[str, _Lookup] = {}
        self._failed = FailedNames(FAILED_LOOKUP_SECONDS, clock)

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """The addresses of a host. Raises FetchFailed `busy` or `timeout` at once, OSError and ValueError."""
        with suppress(socket.gaierror):  # an address, in any spelling that the system accepts, needs no name server
            return _addresses(host, port, socket.AI_NUMERICHOST)
        name = host.lower()  # without the port, which does not change the addresses
        requester = requested_by.get() if self._untrusted_hosts else None
        if requester is not None:
            self._require_answering(name)
        lookup = self._in_flight.get(name) or self._begin(name, port, requester)
        return await asyncio.shield(lookup.addresses)  # others may wait for the same answer

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
            # No executor: the interpreter would wait at its exit for the executor's threads.
            Thread(target=self._run, args=(lookup, port, loop), name="lookup", daemon=True).start()
        except RuntimeError as error:
            self._slots.release(*key)
            raise _busy(name) from error
        self._in_flight[name] = lookup
        return lookup

    def _run(self, lookup: "_Lookup", port: int, loop: asyncio.AbstractEventLoop) -> None:
        """Runs in the thread."""
        try:
            found: Sequence[str] | Exception = self._find(lookup.name, port)
        except Exception as error:  # those who wait get it
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
