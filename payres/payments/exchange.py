"""Exchange: which rate holds between two assets, and amounts of the wire as values of an asset."""

from fractions import Fraction

from payres.amounts import Asset, parse_rate, parse_value
from payres.clock import SECOND
from payres.errors import InvalidAmount, NoRate
from payres.store import assets
from payres.store.database import Transaction
from payres.wire import Amount


def rate_between(tx: Transaction, base: str, counter: str, now: int) -> Fraction:
    """How many units of currency `counter` one unit of `base` buys: 1 for one currency, else the rate that is kept, or
    the inverse of the rate the other way. Refuses with 400 when there is none, or it is too old."""
    if base == counter:
        return Fraction(1)
    there, back = assets.find_rate(tx, base, counter), assets.find_rate(tx, counter, base)
    inverse = 1 / parse_rate(back.rate) if back is not None and back.holds_at(now) else None
    if there is not None and there.holds_at(now):
        rate = parse_rate(there.rate)
        # Of two rates that are rounded apart the one above 1 gives way, or there and back again would be a gain.
        return min(rate, inverse) if inverse is not None and rate > 1 else rate
    if inverse is not None:
        return inverse
    expired = there or back
    if expired is not None:
        age = (now - expired.set_at) // SECOND
        raise NoRate(f"The exchange rate from {base} to {counter} is {age} s old; try again shortly", is_stale=True)
    raise NoRate(
        f"This server has no exchange rate from {base} to {counter}; choose a receiver in {base} or ask the operator",
        is_stale=False,
    )


def value_in(amount: Amount, asset: Asset, field: str) -> int:
    """The value of a client's amount, which must be above zero and in `asset`. Refuses with 400 `invalid_amount`."""
    try:
        value = parse_value(amount.value)
    except ValueError as error:
        raise InvalidAmount(f"{field}.value: {error}", field=f"{field}.value") from error
    if (amount.asset_code, amount.asset_scale) != (asset.code, asset.scale):
        raise InvalidAmount(
            f"{field} must be in {asset.code} with assetScale {asset.scale}",
            field=field,
            assetCode=asset.code,
            assetScale=asset.scale,
        )
    if value == 0:
        raise InvalidAmount(f"{field}.value must be above zero", field=f"{field}.value")
    return value
