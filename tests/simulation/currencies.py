"""The currencies of a town, which have scales of each kind; and amounts that are worth about as much in each."""

from fractions import Fraction
from math import floor
from typing import Final

from payres.core.protocol.amounts import Asset

USD, EUR, JPY, XRP = Asset("USD", 2), Asset("EUR", 2), Asset("JPY", 0), Asset("XRP", 9)
TOWNS: Final = (*[(USD, EUR)] * 6, (USD, JPY), (XRP, USD), (EUR, JPY, USD), (JPY, USD, XRP))
WORTH: Final = {"USD": Fraction(1), "EUR": Fraction(100, 92), "JPY": Fraction(1, 149), "XRP": Fraction(2)}  # in dollars
GRAINS: Final = {"USD": 1, "EUR": 1, "JPY": 2, "XRP": 5_000_000}  # minor units that are worth about a cent
STEPS: Final = (-2, -1, 0, 1, 2)  # thousandths by which operators change a rate
LOWEST: Final = 0.918  # what remains of an amount by all rates on its way, at least


def minor(cents: int, asset: Asset) -> int:
    """An amount that is worth about so many cents, in minor units; of a fine asset it is not round."""
    grain = GRAINS[asset.code]
    return cents * grain - cents % grain


def converted(amount: int, source: Asset, target: Asset) -> int:
    """Rounded down."""
    return floor(amount * WORTH[source.code] / WORTH[target.code] * Fraction(10) ** (target.scale - source.scale))


def rate_of(base: str, counter: str, step: int = 0) -> str:
    """What an operator sets for one of `base`."""
    return f"{float(WORTH[base] / WORTH[counter] * (1000 + step) / 1000):.6g}"
