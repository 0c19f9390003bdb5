"""What a path offers: its exchange rate, how large a packet may be, and what a payment over it may cost."""

from fractions import Fraction
from math import ceil, floor
from typing import Final

from payres.amounts import MAX_VALUE, Scales
from payres.interledger.packets import parse_too_large
from payres.interledger.sending.failures import Failure, SendingFailed
from payres.terms import Path

# The answer to a smaller packet shows more of the rounding on the path than of its rate.
SHOWS_THE_RATE: Final = 100


def is_small(sent: int, delivered: int) -> bool:
    """Whether the answer to a packet with these amounts shows more of the rounding on the path than of its rate."""
    return min(sent, delivered) < SHOWS_THE_RATE


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
    """The largest amount up to `amount` that delivers its minimum although amounts are rounded down; 0 when there is
    none.

    That is `amount` itself, or the smallest amount that delivers the same: the rest would be lost to rounding.
    """
    # In integers, which take a third of the time of fractions.
    units, of = low.as_integer_ratio()
    arriving = amount * units // of
    if arriving >= at_most(amount, minimum):
        return amount
    least = -(-arriving * of // units) if arriving else 0
    return least if arriving >= at_most(least, minimum) else 0


def at_most(amount: int, rate: Fraction) -> int:
    """The amount at a rate, rounded up to whole units."""
    units, of = rate.as_integer_ratio()
    return -(-amount * units // of)


class Capacity:
    """The largest amount of a packet that passes, as far as known.

    It is never raised. Connectors reject what is too large, and most say the largest amount that they take. When they
    do not, a binary search finds it.
    """

    def __init__(self, maximum: int = MAX_VALUE) -> None:
        self._maximum = maximum
        self._exact = True  # whether the maximum passes, or is only an upper bound
        self._passed = 0

    @property
    def limit(self) -> int:
        """The largest amount worth trying for the next packet."""
        if self._exact:
            return self._maximum
        return self._passed + (self._maximum - self._passed + 1) // 2  # rounded up, so as to reach the maximum

    @property
    def limited(self) -> bool:
        """Whether any limit is known."""
        return self._maximum < MAX_VALUE

    @property
    def found(self) -> bool:
        """Whether the maximum is known and a packet of that amount has passed."""
        return self._exact and self._passed >= self._maximum

    def passed(self, amount: int) -> None:
        """A packet of this amount has reached the receiver."""
        self._passed = min(max(self._passed, amount), self._maximum)
        if self._passed == self._maximum:
            self._exact = True

    def too_large(self, amount: int, data: bytes) -> None:
        """A packet of this amount was too large; `data` is that of the Reject.

        Both amounts in it are in the rejecting connector's units, so only their ratio counts. Amounts that contradict
        the Reject are ignored. Raises SendingFailed when nothing at all can pass.
        """
        received, largest = parse_too_large(data) or (0, 0)
        exact = received > largest
        maximum = amount * largest // received if exact else amount - 1
        if maximum <= 0:
            raise SendingFailed(Failure.CONNECTOR_ERROR, "A connector on the path takes no packet, however small.")
        if maximum >= self._maximum:
            return
        self._maximum, self._exact = maximum, exact
        if self._passed > maximum:
            self._passed = 0  # the path has changed, so what passed before says nothing
        elif self._passed == maximum:
            self._exact = True


def min_delivery(amount: int, path: Path, minimum: Fraction) -> int:
    """The least that arrives when all of `amount` is sent; one unit of it may be lost to rounding beyond the minimum
    rate.

    Raises SendingFailed when the path delivers less than that.
    """
    _check_rate(amount, path, minimum)
    promised = ceil((amount - 1) * minimum)
    if path.least(amount) < promised:
        raise SendingFailed(
            Failure.INSUFFICIENT_EXCHANGE_RATE,
            "Rounding to whole units takes more of this amount than may be lost; send more at once.",
        )
    return promised


def max_source(amount: int, path: Path, minimum: Fraction) -> int:
    """The most that delivering `amount` costs: its price at the minimum rate, and one unit for rounding.

    Raises SendingFailed when the path delivers less than that, or when the minimum is zero and bounds nothing.
    """
    if minimum <= 0:
        raise SendingFailed(
            Failure.UNENFORCEABLE_DELIVERY, "Without a minimum exchange rate, nothing bounds what delivering may cost."
        )
    price = floor(amount / minimum) + 1
    _check_rate(price, path, minimum)
    return price


def _check_rate(amount: int, path: Path, minimum: Fraction) -> None:
    if path.low < minimum:
        raise SendingFailed(
            Failure.INSUFFICIENT_EXCHANGE_RATE,
            f"The path delivers {_decimal(path.low)} for each unit sent, below the minimum of {_decimal(minimum)}.",
        )
    # Each packet but the last must deliver the minimum by itself.
    if amount > path.max_packet and not sendable(path.max_packet, path.low, minimum):
        raise SendingFailed(
            Failure.INSUFFICIENT_EXCHANGE_RATE,
            f"The path takes {path.max_packet} units in a packet, so few that rounding takes more than may be lost.",
        )


def _decimal(rate: Fraction) -> str:
    """A rate for people: nine significant digits."""
    return f"{rate.numerator / rate.denominator:.9g}"
