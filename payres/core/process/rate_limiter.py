"""Rate limiters for clients, addresses and peers; and the requester that a request counts for.

Each limiter is a token bucket, stored as one number: the time at which it will be full.

Limiters and slots count a request for the same requester, so that nobody can use up the share of others. A known client
is counted on its own, from any address. New clients are counted together with all others of their address, and so are
clients known only by their key, because anyone can make any number of keys.
"""

import ipaddress
from collections.abc import Hashable
from contextvars import ContextVar
from functools import lru_cache
from typing import Final

from starlette.types import Scope

from payres.core.process.bounded_mapping import Newest
from payres.core.protocol.clock import SECOND, Clock
from payres.core.protocol.errors import TooManyRequests
from payres.core.protocol.limits import BURST_SECONDS, MAX_COUNTED

# The key for all unparseable addresses; no address looks like this.
UNREADABLE: Final = "unreadable"
# The maximum length of an IPv6 address with an IPv4 ending. Longer texts are not parsed.
MAX_ADDRESS_LENGTH: Final = 45

# The identity of a known client; or an address as counted ("" if there is none), with the identity of the client there
# if that is known only by its key.
Requester = tuple[str] | tuple[str, str]

# The requester of the current request; None outside of requests, for the server's own work.
requested_by: ContextVar[Requester | None] = ContextVar("requested_by", default=None)


class RateLimiter:
    """Permits `rate` in each period for each key, and `burst` at once, without it a few seconds' worth; a rate of 0 is
    no limit. `refusal` is the sentence for those beyond it.

    It counts in memory. Beyond MAX_COUNTED keys the least recently used is dropped, and then has a full bucket.
    """

    def __init__(
        self, rate: int, clock: Clock, refusal: str = "", period: int = SECOND, burst: int | None = None
    ) -> None:
        self._rate = rate
        self._refusal = refusal
        self._token = period  # times are multiplied by the rate, which avoids rounding
        self._burst = (BURST_SECONDS * rate if burst is None else burst) * period
        self._clock, self._last = clock, 0
        self._full_at = Newest[Hashable, int](MAX_COUNTED)

    def check(self, key: Hashable) -> None:
        """Takes one token. Raises TooManyRequests if there is none."""
        wait = self.take(key)
        if wait:
            raise too_many(wait, self._refusal)

    def take(self, key: Hashable) -> int:
        """Takes one token. Returns 0, or if there is none, the microseconds until the next."""
        if not self._rate:
            return 0
        now = self._now()
        full_at = max(self._full_at.get(key, 0), now)
        wait = full_at + self._token - now - self._burst
        self._full_at[key] = full_at if wait > 0 else full_at + self._token
        return -(-wait // self._rate) if wait > 0 else 0

    def wait(self, key: Hashable) -> int:
        """Like `take`, without taking a token."""
        now = self._now()
        full_at = self._full_at.get(key)
        return 0 if full_at is None else max(-(-(full_at + self._token - now - self._burst) // self._rate), 0)

    def _now(self) -> int:
        now = self._clock.now()
        if now < self._last:  # the clock was set back: nobody may be locked out
            self._full_at.clear()
        self._last = now
        return now * self._rate


def too_many(wait: int, description: str) -> TooManyRequests:
    """The error beyond a rate; `wait` is the microseconds until the next request is accepted, rounded up to seconds."""
    return TooManyRequests(description, retry_after=-(-wait // SECOND))


def count_for_client(identity: str, is_key: bool) -> None:
    """Counts the request for this client; `is_key` if it is known only by its key."""
    requester = requested_by.get()
    if requester is not None:
        requested_by.set((requester[0], identity) if is_key else (identity,))


def address_of(scope: Scope) -> str | None:
    """The address that a request counts for, from the connection or its proxy.

    None for a connection from this machine: a local proxy that names no client must not count as one client. Requests
    forwarded with an unreadable address are counted together, so that they are limited too.
    """
    client = scope.get("client")
    if client is None:
        return None
    found = counted_address(client[0])
    if found is None:
        for name, _ in scope["headers"]:  # a plain loop, for speed: every request passes here
            if name == b"x-forwarded-for":
                return UNREADABLE
    return found


def counted_address(address: str) -> str | None:
    """The key that an address counts under: itself, or for IPv6 its /64 network, which one customer has (RFC 6177).

    None for loopback. UNREADABLE if the text is not an address.
    """
    return _counted(address) if len(address) <= MAX_ADDRESS_LENGTH else UNREADABLE


@lru_cache(maxsize=4096)
def _counted(address: str) -> str | None:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return UNREADABLE
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return _counted(str(parsed.ipv4_mapped))
        if not parsed.is_loopback:
            return str(ipaddress.IPv6Network((parsed, 64), strict=False))
    return None if parsed.is_loopback else str(parsed)
