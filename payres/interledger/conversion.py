"""What a packet is worth in another asset."""

from fractions import Fraction
from math import floor

from payres.amounts import MAX_LEDGER, Asset, convert
from payres.errors import NoRate
from payres.interledger.declined import Declined
from payres.interledger.packets import Code, too_large_data
from payres.payments.exchange import rate_between
from payres.store.database import Transaction


def converted(tx: Transaction, amount: int, source: Asset, target: Asset, now: int) -> int:
    """What `amount` of `source` is in `target`, rounded down; at least 1 and no more than the ledger can move.

    Raises Declined.
    """
    if source == target:
        return amount
    rate = _rate(tx, source, target, now)
    result = convert(amount, rate, source.scale, target.scale)
    if not result:
        raise Declined(Code.INSUFFICIENT_SOURCE_AMOUNT, "The amount is worth nothing in the next asset")
    if result > MAX_LEDGER:
        unit_rate = rate * Fraction(10) ** (target.scale - source.scale)
        raise Declined(Code.AMOUNT_TOO_LARGE, data=too_large_data(amount, floor(MAX_LEDGER / unit_rate)))
    return result


def _rate(tx: Transaction, source: Asset, target: Asset, now: int) -> Fraction:
    try:
        return rate_between(tx, source.code, target.code, now)
    except NoRate as error:
        code = Code.INTERNAL_ERROR if error.is_stale else Code.CANNOT_RECEIVE
        raise Declined(code, f"There is no exchange rate from {source.code} to {target.code}") from error
