"""The terms of a payment: what leaves the sender, what arrives, the receiver, and the path.

Quotes and payments have them, and limits of grants are checked against them.
"""

from fractions import Fraction

import msgspec

from payres.amounts import Asset


class RateBounds(msgspec.Struct, frozen=True):
    """For each smallest unit sent, at least `low` and less than `high` arrive."""

    low: Fraction
    high: Fraction

    @classmethod
    def of(cls, sent: int, delivered: int) -> "RateBounds":
        """The bounds that one packet shows: on the path its amount was rounded down to whole units."""
        return RateBounds(Fraction(delivered, sent), Fraction(delivered + 1, sent))

    def learn(self, sent: int, delivered: int) -> "RateBounds":
        """The bounds after one more packet: narrower, or those of the packet when the rate has moved out of these."""
        seen = RateBounds.of(sent, delivered)
        if self.excludes(seen):
            return seen
        return RateBounds(max(self.low, seen.low), min(self.high, seen.high))

    def excludes(self, other: "RateBounds") -> bool:
        """Whether no rate is within both bounds."""
        return other.high <= self.low or other.low >= self.high

    # In integers, which take a third of the time of fractions.

    def least(self, amount: int) -> int:
        """The least that arrives of a packet, rounded down to whole units."""
        units, of = self.low.as_integer_ratio()
        return amount * units // of

    def most(self, amount: int) -> int:
        """The most that arrives of a packet, in whole units: the upper bound itself is never reached."""
        units, of = self.high.as_integer_ratio()
        return -(-amount * units // of) - 1


class Path(RateBounds, frozen=True):
    """The result of a probe. `max_packet` is the most that one packet may carry, 2^64-1 when the path has set no
    limit."""

    max_packet: int


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """At most `debit` leaves the sender, `fee` of it stays with the operator, `receive` arrives; in minor units.

    `debit` and `fee` are in the sender's asset, `receive` is in `asset`, the receiver's. `receiver` is a canonical URL;
    `incoming_payment_id` is set when it is on this server, `path` when it is not. Over a path, a payment that
    `sends_all` sends all of its debit amount, rather than deliver `receive` and stop.
    """

    receiver: str
    incoming_payment_id: str | None
    debit: int
    fee: int
    receive: int
    asset: Asset
    path: Path | None = None
    sends_all: bool = False


class Offer(msgspec.Struct, frozen=True):
    """Terms for a receiver on another server. `expires_at` (microseconds) is the receiver's, None when it has none."""

    terms: Terms
    expires_at: int | None
