"""Slots for exchanges with other servers: requests share them fairly, and payments have their own.

After a server has failed, requests do not ask it again at once, so that requests that name it delay nothing.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Final

from payres.federation.bounds import Bounds
from payres.federation.failed_names import FailedNames
from payres.federation.failures import FetchFailed
from payres.limits import FAILED_SERVER_SECONDS, MAX_EXCHANGES_OF_CLIENT, MAX_EXCHANGES_OF_KEY
from payres.rate_limiter import RateLimiter, too_many
from payres.requester import Requester, requested_by
from payres.slots import Key, Slots, SlotsBusy

# How many exchanges may wait for each one in flight; more fail at once.
WAITING_FOR_SLOT: Final = 3


class ExchangeSlots:
    """The exchanges of an HTTP client: as many as its bounds permit for requests, and as many for all else.

    Without `untrusted_hosts`, requesters are not distinguished. `failed_reads` bounds how many failed requests to other
    servers one client may cause: those servers would take them for guesses by this server.
    """

    def __init__(self, bounds: Bounds, failed_reads: RateLimiter | None = None) -> None:
        self._bounds: Final = bounds
        self._failed_reads: Final = failed_reads
        # One requester may have half of a host's slots. That slot is taken first, so that waiting for it holds no other
        # slot.
        per_host = bounds.per_host
        self._of_hosts: Final = Slots(None, None, per_host, max(per_host // 2, 1), queue=WAITING_FOR_SLOT)
        shares = (bounds.in_all, MAX_EXCHANGES_OF_CLIENT, MAX_EXCHANGES_OF_KEY)
        self._slots: Final = Slots(None, *shares, queue=WAITING_FOR_SLOT)
        self._failed: Final = FailedNames(FAILED_SERVER_SECONDS, lambda: asyncio.get_running_loop().time())

    @asynccontextmanager
    async def slot(self, host: str, server: str, is_sent: Callable[[], bool]) -> AsyncIterator[None]:
        """Holds a slot for one exchange with a host; `server` names its port too.

        `is_sent` says whether the request has begun to be sent. Raises FetchFailed: `busy` when no slot becomes free
        in time, and `timeout` for a server that has just failed; and TooManyRequests.
        """
        requester = requested_by.get() if self._bounds.untrusted_hosts else None
        self._check_failures(requester)
        if requester is not None and (server in self._failed or (server, requester) in self._failed):
            raise FetchFailed("timeout", f"{host} did not answer a moment ago; try again in a few seconds")
        of_host, share = _keys(host, requester)
        try:
            async with (
                self._of_hosts.slot(*of_host, timeout=self._bounds.queue_seconds),
                self._slots.slot(*share, timeout=self._bounds.queue_seconds),
            ):
                try:
                    yield
                except FetchFailed as error:
                    self.count_failure()
                    if requester is not None and error.reason in {"timeout", "connection_failed"}:
                        # A server that accepts connections may be slow only for what this requester asks.
                        self._failed.add((server, requester) if is_sent() else server)
                    raise
                self._failed.discard(server)
        except SlotsBusy as error:
            sentence = f"{host} was not asked: too many requests to other servers are in progress; try again shortly"
            raise FetchFailed("busy", sentence) from error

    def count_failure(self) -> None:
        """Counts a failed fetch for the client of the request that is being served."""
        counted = _counted(requested_by.get())
        if self._failed_reads is not None and counted is not None:
            self._failed_reads.take(counted)

    def _check_failures(self, requester: Requester | None) -> None:
        counted = _counted(requester)
        wait = 0 if self._failed_reads is None or counted is None else self._failed_reads.wait(counted)
        if wait:
            sentence = "Too much that this client names is not to be had from other servers. Wait as Retry-After says"
            raise too_many(wait, sentence)


def _counted(requester: Requester | None) -> Hashable:
    """The key that failures are counted under; None for an unauthenticated client without an address."""
    if requester in {None, ("",)}:
        return None
    return requester if requester[0] == "" else requester[0]


def _keys(host: str, requester: Requester | None) -> tuple[Key, Key]:
    """The keys of the host's slot, and of the requester's share of it."""
    if requester is None:
        return ("own", host), ("own",)
    return ("request", host, requester[0]), ("request", *requester)
