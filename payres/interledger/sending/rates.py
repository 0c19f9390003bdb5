"""Exchange rates between smallest units, exact: what a path has shown, and the least that a sender accepts."""

from fractions import Fraction
from math import ceil, floor

import msgspec

from payres.amounts import Scales
from payres.interledger.sending.failures import Failure, SendingFailed


class Path(msgspec.Struct, frozen=True):
    """What a probe has found: of each unit sent, at least `low` and less than `high` arrive.

    `max_packet` is the most that one packet may carry, 2^64-1 when the path has set no limit.
    """

    low: Fraction
    high: Fraction
    max_packet: int


class RateBounds(msgspec.Struct, frozen=True):
    """A path delivers at least `low` (inclusive) and less than `high` for each unit sent."""

    low: Fraction
    high: Fraction

    @classmethod
    def of(cls, sent: int, delivered: int) -> "RateBounds":
        """What one packet shows: somewhere on the path what it carries was rounded down to whole units."""
        return cls(Fraction(delivered, sent), Fraction(delivered + 1, sent))

    def learn(self, sent: int, delivered: int) -> "RateBounds":
        """The bounds after one more packet: narrower, or its own when the rate has moved out of these."""
        seen = RateBounds.of(sent, delivered)
        if seen.high <= self.low or seen.low >= self.high:
            return seen
        return RateBounds(max(self.low, seen.low), min(self.high, seen.high))


def minimum_rate(external: Fraction | None, slippage: Fraction, scales: Scales) -> Fraction:
    """The least that each smallest unit sent must deliver, in smallest units.

    `external` is what one whole unit of the source asset is worth in whole units of the destination asset (1 within
    one currency), and `slippage` the share of that, 0 to 1, which the sender may lose on the way.
    Raises SendingFailed when there is no such rate.
    """
    if not 0 <= slippage <= 1:
        raise ValueError("slippage lies between 0 and 1")
    if external is None or external <= 0:
        raise SendingFailed(
            Failure.EXTERNAL_RATE_UNAVAILABLE, "There is no exchange rate to hold the path's rate against."
        )
    return external * (1 - slippage) * Fraction(10) ** (scales.destination - scales.source)


def sendable(amount: int, low: Fraction, minimum: Fraction) -> int:
    """The largest amount up to `amount` that delivers its minimum in spite of rounding down; 0 when there is none.

    That is `amount` itself, or the least that delivers the same: the rest would be lost to rounding.
    """
    arriving = floor(amount * low)
    if arriving >= ceil(amount * minimum):
        return amount
    least = ceil(arriving / low) if arriving else 0
    return least if arriving >= ceil(least * minimum) else 0
