"""Rate limiters: how often something may happen for each client, address or peer; and whom a request is counted for.

Each limiter is a token bucket, stored as one number: the time at which it is full again.

A request is counted for the same requester by limiters and slots, so that nobody uses up the share of others. A known
client is counted by itself, from any address. New clients are counted together with all others of their address, and so
are clients known by their key alone, because anyone can make any number of keys.
"""

import ipaddress
from collections import OrderedDict
from collections.abc import Hashable
from contextvars import ContextVar
from functools import lru_cache
from typing import Final

from starlette.types import Scope

from payres.clock import SECOND, Clock
from payres.errors import TooManyRequests
from payres.limits import BURST_SECONDS, MAX_COUNTED

# The key for all addresses that cannot be parsed; no address is written like this.
UNREADABLE: Final = "unreadable"
# Characters of an IPv6 address that ends as an IPv4 one. Longer texts are not parsed.
MAX_ADDRESS_LENGTH: Final = 45

# The identity of a known client, or an address as requests are counted by ("" where there is none to count by), with
# the identity of the client there that is known by its key alone.
Requester = tuple[str] | tuple[str, str]

# The requester of the request that is being served; None outside of requests, for the server's own work.
requested_by: ContextVar[Requester | None] = ContextVar("requested_by", default=None)


class RateLimiter:
    """Permits `rate` a second for each key, and a few seconds' worth at once; a rate of 0 is no limit.

    It counts in memory. Beyond MAX_COUNTED keys the least recently used is dropped, and then has a full bucket.
    """

    def __init__(self, rate: int, clock: Clock) -> None:
        self._rate = rate
        self._burst = BURST_SECONDS * SECOND * rate  # times are multiplied by the rate, which avoids rounding
        self._clock = clock
        self._full_at: OrderedDict[Hashable, int] = OrderedDict()

    def take(self, key: Hashable) -> int:
        """Takes one. Returns 0, or, when there is none left, the microseconds until there is."""
        if not self._rate:
            return 0
        now = self._clock.now() * self._rate
        full_at = self._full_at.pop(key, 0)
        if full_at < now:
            full_at = now
        elif full_at > now + self._burst:  # the clock was set back, which must not lock anyone out
            full_at = now + self._burst
        wait = full_at + SECOND - now - self._burst
        self._full_at[key] = full_at if wait > 0 else full_at + SECOND
        if len(self._full_at) > MAX_COUNTED:
            self._full_at.popitem(last=False)
        return -(-wait // self._rate) if wait > 0 else 0

    def wait(self, key: Hashable) -> int:
        """Like `take`, but takes none."""
        full_at = self._full_at.get(key)
        if full_at is None:
            return 0
        now = self._clock.now() * self._rate
        if full_at > now + self._burst:
            full_at = self._full_at[key] = now + self._burst
        return max(-(-(full_at + SECOND - now - self._burst) // self._rate), 0)


def too_many(wait: int, description: str) -> TooManyRequests:
    """The error beyond a rate; `wait` is the microseconds until the next is accepted, rounded up to seconds."""
    return TooManyRequests(description, retry_after=-(-wait // SECOND))


def count_for_client(identity: str, is_key: bool) -> None:
    """Counts the request for this client; `is_key` for one that is known by its key alone."""
    requester = requested_by.get()
    if requester is not None:
        requested_by.set((requester[0], identity) if is_key else (identity,))


def address_of(scope: Scope) -> str | None:
    """The address that a request is counted under, from the connection or its proxy.

    None for a connection of this machine: a proxy here that names no client must not be counted as one client. Requests
    that a proxy forwards with an unreadable address are counted together, so that they are limited too.
    """
    client = scope.get("client")
    if client is None:
        return None
    found = counted_address(client[0])
    if found is None:
        for name, _ in scope["headers"]:  # a plain loop, because every request passes here
            if name == b"x-forwarded-for":
                return UNREADABLE
    return found


def counted_address(address: str) -> str | None:
    """The key that an address is counted under: itself, or its /64 network for IPv6, which one customer has (RFC 6177).

    None for loopback. UNREADABLE for a text that is no address.
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
