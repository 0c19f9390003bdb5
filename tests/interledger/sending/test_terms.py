"""Offers: what they promise, and which paths are refused."""

from fractions import Fraction
from math import floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.amounts import MAX_VALUE
from payres.interledger.sending.failures import Failure, SendingFailed
from payres.interledger.sending.rates import Path
from payres.interledger.sending.terms import Offer, fixed_delivery, fixed_send

ONE = Path(Fraction(1), Fraction(10**12 + 1, 10**12), MAX_VALUE)
RATE = Fraction(99, 100)


def test_one_unit_is_forgiven() -> None:
    assert fixed_send(10_000, ONE, RATE) == Offer(10_000, 9900)
    assert fixed_send(1, ONE, RATE) == Offer(1, 0)
    assert fixed_delivery(10_000, ONE, RATE) == Offer(10_102, 10_000)
    assert fixed_delivery(1, ONE, RATE) == Offer(2, 1)


@given(st.integers(1, 10**12), st.builds(Fraction, st.integers(1, 10**6), st.integers(1, 10**6)))
def test_offers_cost_no_more_than_the_minimum_rate(amount: int, minimum: Fraction) -> None:
    path = Path(minimum, minimum * 2, MAX_VALUE)
    delivery = fixed_delivery(amount, path, minimum)
    assert (delivery.max_source - 1) * minimum <= amount < delivery.max_source * minimum
    try:
        sending = fixed_send(amount, path, minimum)
    except SendingFailed:
        assert floor(amount * path.low) < (amount - 1) * minimum
    else:
        assert (amount - 1) * minimum <= sending.min_delivery <= floor(amount * path.low)


@pytest.mark.parametrize("offer", [fixed_send, fixed_delivery])
@pytest.mark.parametrize("low", [Fraction(0), Fraction(98, 100), RATE - Fraction(1, 10**12)])
def test_rate_below_the_minimum_is_refused(offer: object, low: Fraction) -> None:
    assert offer in (fixed_send, fixed_delivery)
    with pytest.raises(SendingFailed) as caught:
        (fixed_send if offer is fixed_send else fixed_delivery)(100, Path(low, Fraction(1), MAX_VALUE), RATE)
    assert caught.value.reason == Failure.INSUFFICIENT_EXCHANGE_RATE
    assert "below the minimum of 0.99" in caught.value.sentence


def test_packets_too_small_for_the_minimum_are_refused() -> None:
    path = Path(Fraction(99, 100), Fraction(1), 50)
    assert fixed_send(50, path, Fraction(98, 100)).min_delivery == 49
    with pytest.raises(SendingFailed, match="50 units in a packet"):
        fixed_send(51, path, Fraction(989, 1000))
    with pytest.raises(SendingFailed, match="50 units in a packet"):
        fixed_delivery(51, path, Fraction(989, 1000))


def test_amount_that_rounding_takes_is_refused() -> None:
    with pytest.raises(SendingFailed, match="send more at once"):
        fixed_send(105_000_000, Path(Fraction(1, 10**7), Fraction(100_001, 10**12), MAX_VALUE), Fraction(99, 10**9))


def test_delivery_without_a_minimum_is_refused() -> None:
    with pytest.raises(SendingFailed) as caught:
        fixed_delivery(100, ONE, Fraction(0))
    assert caught.value.reason == Failure.UNENFORCEABLE_DELIVERY
    assert fixed_send(100, ONE, Fraction(0)) == Offer(100, 0)
