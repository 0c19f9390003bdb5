"""What a path can do and what a payment over it may cost: the offer behind a quote."""

from fractions import Fraction
from math import ceil, floor

import msgspec

from payres.interledger.sending.failures import Failure, SendingFailed
from payres.interledger.sending.rates import Path, sendable


class Offer(msgspec.Struct, frozen=True):
    """What the sender spends at most, and what the receiver then gets at least."""

    max_source: int
    min_delivery: int


def fixed_send(amount: int, path: Path, minimum: Fraction) -> Offer:
    """The sender spends `amount`; one unit of it may be lost to rounding beyond the minimum rate.

    Raises SendingFailed when the path delivers less than that.
    """
    _check_rate(amount, path, minimum)
    offer = Offer(amount, ceil((amount - 1) * minimum))
    if floor(amount * path.low) < offer.min_delivery:
        raise SendingFailed(
            Failure.INSUFFICIENT_EXCHANGE_RATE,
            "Rounding to whole units takes more of this amount than may be lost; send more at once.",
        )
    return offer


def fixed_delivery(amount: int, path: Path, minimum: Fraction) -> Offer:
    """The receiver gets `amount`; the sender spends what that costs at the minimum rate, and one unit for rounding.

    Raises SendingFailed when the path delivers less than that, or when no minimum holds it to anything.
    """
    if minimum <= 0:
        raise SendingFailed(
            Failure.UNENFORCEABLE_DELIVERY, "Without a minimum exchange rate, nothing bounds what delivering may cost."
        )
    _check_rate(floor(amount / minimum) + 1, path, minimum)
    return Offer(floor(amount / minimum) + 1, amount)


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
