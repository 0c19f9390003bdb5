"""What a path offers: rates as packets show them, the largest packet, and the terms of a payment."""

from fractions import Fraction
from math import ceil, floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.amounts import MAX_VALUE
from payres.interledger.sending.connection import SendingFailed
from payres.interledger.sending.path import max_source, min_delivery, sendable
from payres.terms import Path, RateBounds

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


@given(st.lists(st.tuples(st.integers(1, 10**12), st.integers(0, 10**12)), min_size=1, max_size=20))
def test_bounds_hold_what_the_last_packet_shows(packets: list[tuple[int, int]]) -> None:
    bounds = RateBounds.of(*packets[0])
    for sent, delivered in packets:
        bounds = bounds.learn(sent, delivered)
        assert bounds.low < bounds.high
        assert bounds.low < Fraction(delivered + 1, sent)
        assert bounds.high > Fraction(delivered, sent)


@given(st.integers(1, 10**6), rates, st.sampled_from((Fraction(0), Fraction(1, 100), Fraction(1, 10))))
def test_sendable_amounts_deliver_their_minimum_and_as_much(amount: int, low: Fraction, slippage: Fraction) -> None:
    minimum = low * (1 - slippage)
    possible = sendable(amount, low, minimum)
    assert 0 <= possible <= amount
    if possible:
        assert floor(possible * low) == floor(amount * low) >= ceil(possible * minimum)
        assert possible == amount or floor((possible - 1) * low) < floor(possible * low), "not one unit too many"
    else:
        cheapest = ceil(floor(amount * low) / low)  # what delivers as much
        assert floor(amount * low) < ceil(amount * minimum)
        assert not cheapest or floor(amount * low) < ceil(cheapest * minimum)


def test_surplus_that_rounding_would_take_is_not_sendable() -> None:
    assert sendable(15_000_000, Fraction(1, 10**7), Fraction(99, 10**9)) == 10_000_000
    assert sendable(9_999_999, Fraction(1, 10**7), Fraction(99, 10**9)) == 0


ONE = Path(Fraction(1), Fraction(10**12 + 1, 10**12), MAX_VALUE)
RATE = Fraction(99, 100)


def test_one_unit_is_forgiven() -> None:
    assert min_delivery(10_000, ONE, RATE) == 9900
    assert min_delivery(1, ONE, RATE) == 0
    assert max_source(10_000, ONE, RATE) == 10_102
    assert max_source(1, ONE, RATE) == 2


@given(st.integers(1, 10**12), st.builds(Fraction, st.integers(1, 10**6), st.integers(1, 10**6)))
def test_offers_cost_no_more_than_the_minimum_rate(amount: int, minimum: Fraction) -> None:
    path = Path(minimum, minimum * 2, MAX_VALUE)
    cost = max_source(amount, path, minimum)
    assert (cost - 1) * minimum <= amount < cost * minimum
    try:
        promised = min_delivery(amount, path, minimum)
    except SendingFailed:
        assert floor(amount * path.low) < (amount - 1) * minimum
    else:
        assert (amount - 1) * minimum <= promised <= floor(amount * path.low)


@pytest.mark.parametrize("low", [Fraction(0), Fraction(98, 100), RATE - Fraction(1, 10**12)])
def test_rate_below_the_minimum_is_refused(low: Fraction) -> None:
    for offer in (min_delivery, max_source):
        with pytest.raises(SendingFailed, match=r"below the minimum of 0\.99"):
            offer(100, Path(low, Fraction(1), MAX_VALUE), RATE)


def test_packets_too_small_for_the_minimum_are_refused() -> None:
    path = Path(Fraction(99, 100), Fraction(1), 50)
    assert min_delivery(50, path, Fraction(98, 100)) == 49
    with pytest.raises(SendingFailed, match="50 units in a packet"):
        min_delivery(51, path, Fraction(989, 1000))
    with pytest.raises(SendingFailed, match="50 units in a packet"):
        max_source(51, path, Fraction(989, 1000))


def test_amount_that_rounding_takes_is_refused() -> None:
    with pytest.raises(SendingFailed, match="send more at once"):
        min_delivery(105_000_000, Path(Fraction(1, 10**7), Fraction(100_001, 10**12), MAX_VALUE), Fraction(99, 10**9))
