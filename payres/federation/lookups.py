"""Looks names up in threads of its own, so that a name server that never answers holds only what waits for it.

The system's lookup, which knows the operator's network, cannot be called off: a thread stays in it until the system
gives up, long after those who asked have gone. So lookups are counted until they end, and refused when many hang.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from threading import Thread
from time import monotonic

import msgspec

from payres.federation.failures import FetchFailed
from payres.limits import (
    FAILED_LOOKUP_SECONDS,
    MAX_FAILED_NAMES,
    MAX_LOOKUPS,
    MAX_LOOKUPS_OF_ADDRESS,
    MAX_LOOKUPS_OF_REQUESTS,
    SLOW_LOOKUP_SECONDS,
)

# Looks a host and port up and blocks meanwhile: IP addresses, best first. Raises OSError or ValueError.
Find = Callable[[str, int], Sequence[str]]

# The address, as requests are counted by, of whose request is served: "" where there is none to count by, and None
# outside of requests.
requested_by: ContextVar[str | None] = ContextVar("requested_by", default=None)


def find_addresses(host: str, port: int) -> Sequence[str]:
    """The addresses of a host as the operating system knows them."""
    return _texts(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))


class Lookups:
    """The lookups of one client, each in a thread of its own; one for all who ask for the same name meanwhile.

    With `bounds_requests`, what requests ask for may take a part of the threads only, one address a few of them, and
    names that have just failed or hang are refused. `clock` gives seconds that only grow.
    """

    def __init__(
        self, bounds_requests: bool = True, find: Find | None = None, clock: Callable[[], float] = monotonic
    ) -> None:
        self._bounds_requests = bounds_requests
        self._find = find or find_addresses
        self._clock = clock
        self._under_way: dict[str, _Lookup] = {}
        self._askers: Counter[str | None] = Counter()
        self._failed_until: dict[str, float] = {}

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """The addresses of a host. Raises FetchFailed `busy` or `timeout` at once, OSError and ValueError."""
        if (spelled := _spelled(host, port)) is not None:
            return spelled
        name = host.lower()  # the port is left out: it changes no address, and would make many names of one
        asker = requested_by.get() if self._bounds_requests else None
        if asker is not None:
            self._require_answering(name)
        lookup = self._under_way.get(name) or self._begin(name, host, port, asker)
        # Shielded, because others may wait for the same answer.
        outcome = await asyncio.shield(lookup.outcome)
        if isinstance(outcome, Exception):
            raise outcome.with_traceback(None)
        return outcome

    def _require_answering(self, name: str) -> None:
        now = self._clock()
        lookup = self._under_way.get(name)
        if lookup is not None and now >= lookup.begun_at + SLOW_LOOKUP_SECONDS:
            raise FetchFailed("timeout", f"The name servers for {name} do not answer; try again in a few seconds")
        if now < self._failed_until.get(name, now):
            raise OSError("the name could not be looked up a moment ago")

    def _begin(self, name: str, host: str, port: int, asker: str | None) -> "_Lookup":
        self._require_room(name, asker)
        loop = asyncio.get_running_loop()
        lookup = _Lookup(name, asker, self._clock(), loop.create_future())

        def run() -> None:
            try:
                outcome: Sequence[str] | Exception = self._find(host, port)
            except Exception as error:  # whatever it is, it is for those who wait
                outcome = error
            with suppress(RuntimeError):  # the loop has been closed, and nobody waits any more
                loop.call_soon_threadsafe(self._end, lookup, outcome)

        try:
            # No executor: the interpreter waits at its exit for the threads of those, and here for nobody.
            Thread(target=run, name="lookup", daemon=True).start()
        except RuntimeError as error:
            raise _busy(name) from error
        self._under_way[name] = lookup
        self._askers[asker] += 1
        return lookup

    def _require_room(self, name: str, asker: str | None) -> None:
        under_way = len(self._under_way)
        if under_way >= MAX_LOOKUPS:
            raise _busy(name)
        if asker is None:
            return
        if under_way - self._askers[None] >= MAX_LOOKUPS_OF_REQUESTS:
            raise _busy(name)
        if asker and self._askers[asker] >= MAX_LOOKUPS_OF_ADDRESS:
            raise _busy(name)

    def _end(self, lookup: "_Lookup", outcome: Sequence[str] | Exception) -> None:
        del self._under_way[lookup.name]
        self._askers[lookup.asker] -= 1
        if not self._askers[lookup.asker]:
            del self._askers[lookup.asker]
        self._failed_until.pop(lookup.name, None)
        if isinstance(outcome, Exception):
            # Each counts for the same time, so that the first is always the one to forget.
            self._failed_until[lookup.name] = self._clock() + FAILED_LOOKUP_SECONDS
            if len(self._failed_until) > MAX_FAILED_NAMES:
                del self._failed_until[next(iter(self._failed_until))]
        if not lookup.outcome.done():
            lookup.outcome.set_result(outcome)


class _Lookup(msgspec.Struct, frozen=True):
    """One under way. The outcome is a value also when it is an exception, for nobody may be left to take it."""

    name: str
    asker: str | None
    begun_at: float
    outcome: "asyncio.Future[Sequence[str] | Exception]"


def _spelled(host: str, port: int) -> Sequence[str] | None:
    """The address that a host is itself, in any spelling that the system takes, for which no server is asked."""
    try:
        return _texts(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST))
    except socket.gaierror:
        return None


def _texts(found: Sequence[tuple[object, object, object, object, tuple[object, ...]]]) -> Sequence[str]:
    return [str(address[0]) for *_, address in found]


def _busy(name: str) -> FetchFailed:
    sentence = f"The name {name} is not looked up while so many others are; try again in a few seconds"
    return FetchFailed("busy", sentence)
