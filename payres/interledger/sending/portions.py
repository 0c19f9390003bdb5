"""How a payment is cut into packets: what each may carry, must deliver, and what is left after it.

Within one run, what was fulfilled, is in flight, or is in doubt never exceeds what the sender may spend; over all runs
and crashes, `payres.interledger.balances` sees to that.
"""

from fractions import Fraction
from math import ceil, floor

import msgspec

from payres.interledger.sending.failures import Failure, SendingFailed
from payres.interledger.sending.rates import Path, RateBounds, sendable


class Plan(msgspec.Struct, frozen=True):
    """What one run of a payment may spend and must deliver, over a path that was probed before.

    With `sends_all` it ends when `max_source` is spent, otherwise as soon as `min_delivery` has arrived. A further run
    of the same payment has what is left of both, and `unit_forgiven` as the result of the run before has it.
    """

    max_source: int
    min_delivery: int
    min_rate: Fraction
    path: Path
    sends_all: bool
    unit_forgiven: bool = False


class Portion(msgspec.Struct, frozen=True):
    """One packet: it carries `amount`, of which at least `minimum` must arrive and at most `expected` can.

    `forgiving` when the minimum is for one unit less than the amount.
    """

    amount: int
    minimum: int
    expected: int
    forgiving: bool


class Account:
    """What has become of a plan's amounts."""

    def __init__(self, plan: Plan) -> None:
        self.sent = 0
        self.delivered = 0
        self.in_doubt = 0
        self.unit_forgiven = plan.unit_forgiven
        self._plan = plan
        self._in_flight = 0
        self._under_way = 0  # what may still arrive of what is in flight or in doubt
        self._forgiving = False  # whether a packet in flight may be the one that is forgiven a unit

    @property
    def complete(self) -> bool:
        """Whether nothing is left to be sent and nothing is in doubt."""
        if self._plan.sends_all:
            return self.sent == self._plan.max_source
        return self.delivered >= self._plan.min_delivery and not self.in_doubt

    def next(self, bounds: RateBounds, most: int) -> Portion | None:
        """The next packet, of `most` units at most; nothing while what is in flight or in doubt may be enough.

        Raises SendingFailed when no packet can deliver its minimum at this rate.
        """
        amount, final = self._next_amount(bounds.low, most)
        if amount <= 0:
            return None
        rate = self._plan.min_rate
        forgiving = final and not self.unit_forgiven and not self._forgiving
        least = ceil((amount - forgiving) * rate)
        if floor(amount * bounds.low) >= least:
            return Portion(amount, least, _most_delivered(amount, bounds), forgiving)
        if possible := sendable(amount, bounds.low, rate):
            return Portion(possible, ceil(possible * rate), _most_delivered(possible, bounds), forgiving=False)
        if self._forgiving:
            return None  # the unit is forgiven once, and may be free again when that packet is answered
        if _most_delivered(amount, bounds) >= least:
            # To try costs nothing, and when it is rejected the bounds show why.
            return Portion(amount, least, _most_delivered(amount, bounds), forgiving)
        raise SendingFailed(
            Failure.INSUFFICIENT_EXCHANGE_RATE, "The path no longer delivers the minimum exchange rate of the payment."
        )

    def _next_amount(self, low: Fraction, most: int) -> tuple[int, bool]:
        """What the next packet carries, and whether it is the last one if all goes well."""
        available = self._plan.max_source - self.sent - self._in_flight - self.in_doubt
        if self._plan.sends_all:
            return self._share(available, min(available, most), low), available <= most
        missing = self._plan.min_delivery - self.delivered - self._under_way
        if missing <= 0 or available <= 0:
            return 0, False
        if not low:
            raise SendingFailed(Failure.INSUFFICIENT_EXCHANGE_RATE, "The path delivers nothing of what is sent.")
        needed = ceil(missing / low)
        return min(needed, available, most), needed <= min(available, most)

    def _share(self, available: int, amount: int, low: Fraction) -> int:
        """`amount`, or half of what is available when the rest would be lost to rounding."""
        rest, half = available - amount, available - available // 2
        if 0 < rest < amount and not self._passes(rest, low) and self._passes(half, low):
            return half
        return amount

    def _passes(self, amount: int, low: Fraction) -> bool:
        return sendable(amount, low, self._plan.min_rate) == amount

    def take(self, portion: Portion) -> None:
        """The packet is sent now."""
        self._in_flight += portion.amount
        self._under_way += portion.expected
        self._forgiving = self._forgiving or portion.forgiving
        assert self.sent + self._in_flight + self.in_doubt <= self._plan.max_source

    def fulfilled(self, portion: Portion, arrived: int) -> None:
        """The receiver has taken the packet, and says how much arrived: its minimum at least, since it has agreed."""
        self._release(portion)
        self.sent += portion.amount
        self.delivered += max(arrived, portion.minimum)
        # Unless less arrived than any packet must deliver, nothing had to be forgiven.
        if portion.forgiving and arrived < ceil(portion.amount * self._plan.min_rate):
            self.unit_forgiven = True

    def rejected(self, portion: Portion) -> None:
        """The packet moved nothing, so what it carried can be sent again."""
        self._release(portion)

    def lost(self, portion: Portion) -> None:
        """Nobody knows whether the packet was taken, so it counts against both what was spent and what is missing."""
        self._release(portion)
        self.in_doubt += portion.amount
        self._under_way += portion.expected
        self.unit_forgiven = self.unit_forgiven or portion.forgiving

    def _release(self, portion: Portion) -> None:
        self._in_flight -= portion.amount
        self._under_way -= portion.expected
        if portion.forgiving:
            self._forgiving = False


def _most_delivered(amount: int, bounds: RateBounds) -> int:
    """The most whole units that can arrive, as the upper bound itself is never reached."""
    return ceil(amount * bounds.high) - 1
