"""What a path offers: its exchange rate, how large a packet may be, and what a payment over it may cost."""

from fractions import Fraction
from math import ceil, floor
from typing import Final

from payres.interledger.sending.connection import SendingFailed
from payres.terms import Path

# The answer to a smaller packet shows more of the rounding on the path than of its rate.
SHOWS_THE_RATE: Final = 100


def is_small(sent: int, delivered: int) -> bool:
    """Whether the answer to a packet with these amounts shows more of the rounding on the path than of its rate."""
    return min(sent, delivered) < SHOWS_THE_RATE


def min_delivery(amount: int, path: Path, minimum: Fraction) -> int:
    """The least that arrives when all of `amount` is sent; one unit of it may be lost to rounding beyond the minimum
    rate.

    Raises SendingFailed when the path delivers less than that.
    """
    _check_rate(amount, path, minimum)
    promised = ceil((amount - 1) * minimum)
    if path.least(amount) < promised:
        raise SendingFailed("Rounding to whole units takes more of this amount than may be lost; send more at once.")
    return promised


def max_source(amount: int, path: Path, minimum: Fraction) -> int:
    """The most that delivering `amount` costs: its price at the minimum rate, and one unit for rounding.

    Raises SendingFailed when the path delivers less than that.
    """
    price = floor(amount / minimum) + 1
    _check_rate(price, path, minimum)
    return price


def sendable(amount: int, low: Fraction, minimum: Fraction) -> int:
    """The largest amount up to `amount` that delivers its minimum although amounts are rounded down; 0 when there is
    none.

    That is `amount` itself, or the smallest amount that delivers the same: the rest would be lost to rounding.
    """
    # In integers, which take a third of the time of fractions.
    units, of = low.as_integer_ratio()
    arriving = amount * units // of
    if arriving >= rounded_up(amount, minimum):
        return amount
    least = -(-arriving * of // units) if arriving else 0
    return least if arriving >= rounded_up(least, minimum) else 0


def rounded_up(amount: int, rate: Fraction) -> int:
    """The amount at a rate, rounded up to whole units."""
    units, of = rate.as_integer_ratio()
    return -(-amount * units // of)


def _check_rate(amount: int, path: Path, minimum: Fraction) -> None:
    if path.low < minimum:
        low, least = (f"{rate.numerator / rate.denominator:.9g}" for rate in (path.low, minimum))
        raise SendingFailed(f"The path delivers {low} for each unit sent, below the minimum of {least}.")
    # Each packet but the last must deliver the minimum by itself.
    if amount > path.max_packet and not sendable(path.max_packet, path.low, minimum):
        raise SendingFailed(
            f"The path takes {path.max_packet} units in a packet, so few that rounding takes more than may be lost."
        )
