"""The terms of a payment: amounts, receiver and path.

Quotes and payments have terms, and limits of grants are checked against them.
"""

from fractions import Fraction

import msgspec

from payres.core.protocol.amounts import Asset


class RateBounds(msgspec.Struct, frozen=True):
    """For each minor unit sent, at least `low` and less than `high` arrive."""

    low: Fraction
    high: Fraction

    @classmethod
    def of(cls, sent: int, delivered: int) -> "RateBounds":
        """The bounds from one packet, whose amount was rounded down to whole units on the path."""
        return RateBounds(Fraction(delivered, sent), Fraction(delivered + 1, sent))

    def learn(self, sent: int, delivered: int) -> "RateBounds":
        """The bounds after another packet: narrower, or the packet's own if the rate has moved out of these."""
        seen = RateBounds.of(sent, delivered)
        if self.excludes(seen):
            return seen
        return RateBounds(max(self.low, seen.low), min(self.high, seen.high))

    def excludes(self, other: "RateBounds") -> bool:
        """Whether no rate satisfies both bounds."""
        return other.high <= self.low or other.low >= self.high

    # In integers, which is three times as fast as fractions.

    def least(self, amount: int) -> int:
        """The least that arrives of a packet, rounded down to whole units."""
        units, of = self.low.as_integer_ratio()
        return amount * units // of

    def most(self, amount: int) -> int:
        """The most that arrives of a packet, in whole units: the upper bound is exclusive."""
        units, of = self.high.as_integer_ratio()
        return -(-amount * units // of) - 1


class Path(RateBounds, frozen=True):
    """The result of a probe. `max_packet` is the maximum amount of a packet, 2^64-1 if the path has no limit."""

    max_packet: int


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """At most `debit` leaves the sender, of which `fee` goes to the operator; `receive` arrives; in minor units.

    `debit` and `fee` are in the sender's asset, `receive` is in `asset`, the receiver's. `receiver` is a canonical URL;
    a local one has `incoming_payment_id`, a remote one `path`. With `sends_all`, a remote payment sends its whole debit
    amount, rather than deliver `receive` and stop.
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
    """Terms with the receiver's `expires_at` (microseconds), None if it has none."""

    terms: Terms
    expires_at: int | None
