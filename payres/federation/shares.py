"""Whose turn it is to ask another server: requests share the exchanges fairly, and payments have their own.

A server that fails is not asked again at once for requests, so that what names it holds nothing up.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Final

from payres.federation.failed_names import FailedNames
from payres.federation.failures import FetchFailed
from payres.limits import FAILED_SERVER_SECONDS, MAX_EXCHANGES_OF_CLIENT, MAX_EXCHANGES_OF_KEY
from payres.rate_limiter import RateLimiter, too_many
from payres.requester import Requester, requested_by
from payres.slots import Key, Slots, SlotsBusy

# How many exchanges may wait for each that is in flight; more fail at once.
WAITING_FOR_SLOT: Final = 3


class Shares:
    """The exchanges of an HTTP client: `in_all` for requests, as many for all else; `per_host` of each with one host.

    Without `limits_requests`, whose request it is makes no difference. `failed_reads` bounds how often one client has
    other servers asked in vain: they would take it for guesses of this server's.
    """

    def __init__(
        self,
        per_host: int,
        in_all: int,
        queue_seconds: float,
        limits_requests: bool,
        failed_reads: RateLimiter | None = None,
    ) -> None:
        self._failed_reads: Final = failed_reads
        self._queue_seconds: Final = queue_seconds
        self._limits_requests: Final = limits_requests
        # Of one host, half is for one requester. Its slot comes first: who waits for it holds none of all.
        self._of_hosts: Final = Slots(None, None, per_host, max(per_host // 2, 1), queue=WAITING_FOR_SLOT)
        shares = (in_all, MAX_EXCHANGES_OF_CLIENT, MAX_EXCHANGES_OF_KEY)
        self._slots: Final = Slots(None, *shares, queue=WAITING_FOR_SLOT)
        self._failed: Final = FailedNames(FAILED_SERVER_SECONDS, lambda: asyncio.get_running_loop().time())

    @asynccontextmanager
    async def slot(self, host: str, server: str, has_left: Callable[[], bool]) -> AsyncIterator[None]:
        """Holds a slot for one exchange with a host; `server` names its port too.

        `has_left` says whether the request has begun to leave. Raises FetchFailed: `busy` when no slot becomes free in
        time, and `timeout` for a server that has just failed; and TooManyRequests.
        """
        requester = requested_by.get() if self._limits_requests else None
        self._check_failures(requester)
        if requester is not None and (server in self._failed or (server, requester) in self._failed):
            raise FetchFailed("timeout", f"{host} did not answer a moment ago; try again in a few seconds")
        of_host, share = _keys(host, requester)
        try:
            async with (
                self._of_hosts.slot(*of_host, timeout=self._queue_seconds),
                self._slots.slot(*share, timeout=self._queue_seconds),
            ):
                try:
                    yield
                except FetchFailed as error:
                    self.count_failure()
                    if requester is not None and error.reason in {"timeout", "connection_failed"}:
                        # A server that takes connections may be slow at what this requester asks for only.
                        self._failed.add((server, requester) if has_left() else server)
                    raise
                self._failed.discard(server)
        except SlotsBusy as error:
            sentence = f"{host} was not asked: too many requests to other servers are in progress; try again shortly"
            raise FetchFailed("busy", sentence) from error

    def count_failure(self) -> None:
        """What was asked for in the request that is served was not to be had."""
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
    """Who failures are counted for: nobody where an unknown client comes from no address, as for other rates."""
    if requester in {None, ("",)}:
        return None
    return requester if requester[0] == "" else requester[0]


def _keys(host: str, requester: Requester | None) -> tuple[Key, Key]:
    """The keys of a slot with the host, and of one in the share of whoever asks."""
    if requester is None:
        return ("own", host), ("own",)
    return ("request", host, requester[0]), ("request", *requester)
