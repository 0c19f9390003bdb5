"""Amounts, fees, rates, the three kinds of quotes, and the terms of a payment: pure arithmetic.

Delivered amounts are rounded down, source amounts and fees up: rounding never creates money, and never favours the
payer over the operator. Every amount is in its asset's minor unit.

Quotes and payments have terms, and limits of grants are checked against them.
"""

import re
from fractions import Fraction
from typing import NamedTuple

import msgspec

MAX_VALUE = 2**64 - 1  # the largest Open Payments amount (uint64)
MAX_LEDGER = 2**63 - 1  # the largest ledger amount (SQLite INTEGER)

MAX_DECIMAL_LENGTH = 300  # room for the 255 decimals of the largest scale
MAX_RATE_LENGTH = 64

_VALUE = re.compile(r"(?=[0-9])0*+[0-9]{0,20}")
_DECIMAL = re.compile(r"([0-9]+)(?:\.([0-9]+))?")


class Asset(msgspec.Struct, frozen=True):
    """A currency and the number of decimals of its minor unit: `Asset("USD", 2)` counts cents."""

    code: str
    scale: int


class Fee(msgspec.Struct, frozen=True):
    """The operator's fee for sending: `fixed` minor units plus `basis_points` ten-thousandths of the amount."""

    fixed: int = 0
    basis_points: int = 0

    def __post_init__(self) -> None:
        if self.fixed < 0:
            raise ValueError("a fixed fee may not be negative")
        # A fee of the whole amount would leave nothing to deliver.
        if not 0 <= self.basis_points < 10_000:
            raise ValueError("a fee is between 0 and 9999 basis points (ten-thousandths)")


class Split(NamedTuple):
    """How a payment is split: `debit` leaves the sender, of which `fee` goes to the operator; `receive` arrives.

    `debit` and `fee` are in the source asset, `receive` is in the destination asset.
    """

    debit: int
    receive: int
    fee: int


class TooSmall(ValueError):
    """Not even one unit would arrive; `minimum` is the smallest debit that delivers one."""

    def __init__(self, minimum: int) -> None:
        super().__init__(f"nothing would arrive: the smallest amount that can be sent is {minimum}")
        self.minimum = minimum


class TooLarge(ValueError):
    """One side of the exchange exceeds 64 bits."""

    def __init__(self) -> None:
        super().__init__(f"one side of the exchange would be more than {MAX_VALUE}, the largest amount there is")


def parse_value(text: str) -> int:
    """Parses the `value` of an amount on the wire: ASCII digits, at most 2^64-1; leading zeros are dropped.

    Raises ValueError with a sentence for the client.
    """
    if not _VALUE.fullmatch(text) or (value := int(text.lstrip("0") or "0")) > MAX_VALUE:
        raise ValueError(f'an amount\'s value is a string of digits from "0" to "{MAX_VALUE}"')
    return value


def parse_decimal(text: str, asset: Asset, most: int | None = MAX_VALUE) -> int:
    """Parses an amount as people write it, such as "100.00" or "1000", into minor units; without `most`, of any size.

    Raises ValueError with a sentence that names the minor unit.
    """
    unit = describe_amount(1, asset)
    match = _DECIMAL.fullmatch(text) if len(text) <= MAX_DECIMAL_LENGTH else None
    if match is None:
        raise ValueError(f"write the amount with digits and a decimal point only; the smallest unit is {unit}")
    whole, decimals = match[1], match[2] or ""
    if len(decimals) > asset.scale:
        count = f"{len(decimals)} decimal{'' if len(decimals) == 1 else 's'}"
        raise ValueError(f"the amount has {count}, but the smallest unit is {unit}")
    value = int(whole + decimals.ljust(asset.scale, "0"))
    if most is not None and value > most:
        raise ValueError(f"the largest amount is {describe_amount(most, asset)}, in units of {unit}")
    return value


def format_decimal(value: int, asset: Asset) -> str:
    """An amount with all decimals of its asset, nothing else: "1000.00"."""
    return _format(value, asset, "")


def describe_amount(value: int, asset: Asset) -> str:
    """An amount for people: "USD 1,000.00"."""
    return f"{asset.code} {_format(value, asset, ',')}"


def _format(value: int, asset: Asset, separator: str) -> str:
    whole, decimals = divmod(abs(value), 10**asset.scale)
    sign = "-" if value < 0 else ""
    point = f".{decimals:0{asset.scale}}" if asset.scale else ""
    return f"{sign}{whole:{separator}}{point}"


def parse_rate(text: str) -> Fraction:
    """Parses an exchange rate, a positive exact decimal such as "0.92".

    A rate is the value of one whole unit of the source asset in whole units of the destination asset. Raises ValueError
    with a sentence for the operator.
    """
    if len(text) > MAX_RATE_LENGTH or not _DECIMAL.fullmatch(text) or not (rate := Fraction(text)):
        raise ValueError(f"a rate is a decimal number above zero of at most {MAX_RATE_LENGTH} characters, such as 0.92")
    return rate


def fee_on(amount: int, fee: Fee) -> int:
    """The fee on an amount, rounded up."""
    return fee.fixed + _divide_up(amount * fee.basis_points, 10_000)


def unit_rate(rate: Fraction, source: Asset, destination: Asset) -> Fraction:
    """The rate between minor units: how many of the destination asset one of the source asset is worth.

    `rate` is between whole units. The functions below take rates between minor units.
    """
    return rate * Fraction(10) ** (destination.scale - source.scale)


def convert(source: int, rate: Fraction) -> int:
    """The delivered amount for `source`, rounded down."""
    return source * rate.numerator // rate.denominator


def convert_back(destination: int, rate: Fraction) -> int:
    """The amount to send so that at least `destination` is delivered, rounded up."""
    return _divide_up(destination * rate.denominator, rate.numerator)


def _divide_up(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)


def fixed_send(debit: int, fee: Fee, rate: Fraction) -> Split:
    """The split of sending `debit`: the fee on all of it is deducted and the rest is delivered, rounded down.

    Raises TooSmall if not even one unit would arrive, TooLarge if either side exceeds 64 bits.
    """
    charge = fee_on(debit, fee)
    receive = convert(max(debit - charge, 0), rate)
    if receive <= 0:
        raise TooSmall(minimum_send(fee, rate))
    return _split(debit, receive, charge)


def fixed_receive(receive: int, fee: Fee, rate: Fraction) -> Split:
    """The split of delivering `receive`: the sender pays its price, rounded up, plus the fee on that price.

    Raises TooSmall if `receive` is below 1, TooLarge if either side exceeds 64 bits.
    """
    if receive <= 0:
        raise TooSmall(minimum_send(fee, rate))
    price = convert_back(receive, rate)
    charge = fee_on(price, fee)
    return _split(price + charge, receive, charge)


def _split(debit: int, receive: int, fee: int) -> Split:
    if debit > MAX_VALUE or receive > MAX_VALUE:
        raise TooLarge
    return Split(debit, receive, fee)


def minimum_send(fee: Fee, rate: Fraction) -> int:
    """The smallest debit that delivers at least one unit with `fixed_send`.

    A debit d leaves d - fixed - ceil(d * bp / 10000) = floor(d * (10000 - bp) / 10000) - fixed to deliver, which grows
    with d. It must reach the price of one unit.
    """
    price = convert_back(1, rate)
    return _divide_up((price + fee.fixed) * 10_000, 10_000 - fee.basis_points)


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


class ProbedPath(RateBounds, frozen=True):
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
    path: ProbedPath | None = None
    sends_all: bool = False


class Offer(msgspec.Struct, frozen=True):
    """Terms with the receiver's `expires_at` (microseconds), None if it has none."""

    terms: Terms
    expires_at: int | None
