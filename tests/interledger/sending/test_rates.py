"""Rates: bounds as packets show them, the least that a sender accepts, and what survives rounding."""

from fractions import Fraction
from math import ceil, floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.amounts import Scales
from payres.interledger.sending.failures import Failure, SendingFailed
from payres.interledger.sending.rates import RateBounds, minimum_rate, sendable

rates = st.builds(Fraction, st.integers(1, 5000), st.integers(1, 5000))


@pytest.mark.parametrize(
    ("sent", "delivered", "low", "high"),
    [
        (1000, 900, Fraction(9, 10), Fraction(901, 1000)),  # says the same again
        (10, 9, Fraction(9, 10), Fraction(901, 1000)),  # less exact: nothing new
        (10_000, 9005, Fraction(9005, 10_000), Fraction(9006, 10_000)),
        (2000, 1801, Fraction(1801, 2000), Fraction(901, 1000)),  # the low bound alone
        (10_000, 8999, Fraction(8999, 10_000), Fraction(9, 10)),  # the high bound now is the old low one: another rate
        (10_000, 9010, Fraction(901, 1000), Fraction(9011, 10_000)),  # the low bound now is the old high one
        (7, 0, Fraction(0), Fraction(1, 7)),
    ],
)
def test_bounds_narrow_or_move(sent: int, delivered: int, low: Fraction, high: Fraction) -> None:
    assert RateBounds(Fraction(9, 10), Fraction(901, 1000)).learn(sent, delivered) == RateBounds(low, high)


@given(rates, st.lists(st.integers(1, 10**9), min_size=1))
def test_bounds_hold_a_steady_rate(rate: Fraction, amounts: list[int]) -> None:
    bounds = RateBounds.of(amounts[0], floor(amounts[0] * rate))
    for amount in amounts:
        narrower = bounds.learn(amount, floor(amount * rate))
        assert bounds.low <= narrower.low <= rate < narrower.high <= bounds.high
        bounds = narrower


@pytest.mark.parametrize(
    ("external", "slippage", "scales", "expected"),
    [
        (Fraction(1), Fraction(1, 100), Scales(2, 2), Fraction(99, 100)),
        (Fraction(150), Fraction(1, 100), Scales(2, 0), Fraction(1485, 1000)),
        (Fraction(1), Fraction(0), Scales(9, 2), Fraction(1, 10**7)),
        (Fraction(1), Fraction(0), Scales(2, 9), Fraction(10**7)),
        (Fraction(1, 3), Fraction(1), Scales(2, 2), Fraction(0)),
    ],
)
def test_minimum_rate(external: Fraction, slippage: Fraction, scales: Scales, expected: Fraction) -> None:
    assert minimum_rate(external, slippage, scales) == expected


@pytest.mark.parametrize("external", [None, Fraction(0), Fraction(-1)])
def test_no_minimum_without_a_price(external: Fraction | None) -> None:
    with pytest.raises(SendingFailed) as caught:
        minimum_rate(external, Fraction(1, 100), Scales(2, 2))
    assert caught.value.reason == Failure.EXTERNAL_RATE_UNAVAILABLE
    assert not caught.value.retryable


@pytest.mark.parametrize("slippage", [Fraction(-1, 100), Fraction(101, 100)])
def test_slippage_is_a_share(slippage: Fraction) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        minimum_rate(Fraction(1), slippage, Scales(2, 2))


@given(st.integers(1, 10**6), rates, st.sampled_from((Fraction(0), Fraction(1, 100), Fraction(1, 10))))
def test_sendable_amounts_deliver_their_minimum_and_as_much(amount: int, low: Fraction, slippage: Fraction) -> None:
    minimum = low * (1 - slippage)
    possible = sendable(amount, low, minimum)
    assert 0 <= possible <= amount
    if possible:
        assert floor(possible * low) == floor(amount * low) >= ceil(possible * minimum)
        assert possible == amount or floor((possible - 1) * low) < floor(possible * low), "not one unit too many"
    else:
        assert floor(amount * low) < ceil(amount * minimum)


def test_surplus_that_rounding_would_take_is_not_sendable() -> None:
    assert sendable(15_000_000, Fraction(1, 10**7), Fraction(99, 10**9)) == 10_000_000
    assert sendable(9_999_999, Fraction(1, 10**7), Fraction(99, 10**9)) == 0
