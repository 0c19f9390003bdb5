"""Rate limiters: how often something may happen for each client, address or peer.

Each is a token bucket, stored as one number: the time at which it is full again.
"""

from collections import OrderedDict
from collections.abc import Hashable

from payres.clock import SECOND, Clock
from payres.errors import TooManyRequests
from payres.limits import BURST_SECONDS, MAX_COUNTED


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
