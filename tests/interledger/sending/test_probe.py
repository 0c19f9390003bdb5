"""What a path offers: rates as packets show them, the largest packet, the terms of a payment; and probes of paths
without limits, with limits that are reported or not, slow, congested and closed ones.
"""

from fractions import Fraction
from math import ceil, floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.core.protocol.amounts import MAX_VALUE, ProbedPath, RateBounds
from payres.core.protocol.clock import SECOND
from payres.interledger.packets import Code, Prepare, Reject, too_large_data
from payres.interledger.sending.connection import SendingFailed
from payres.interledger.sending.probe import (
    check_funded,
    max_source,
    min_delivery,
    price_of,
    probe,
    promise_of,
    sendable,
)
from payres.interledger.sending.timing import monotonic
from payres.interledger.stream import ConnectionClose
from tests.helpers import examples
from tests.interledger.sending.simulated_path import CONNECTOR, Receiver, SimulatedPath, TwoExchanges, connect, run


def probe_over(path: SimulatedPath) -> tuple[ProbedPath, int]:
    async def timed() -> tuple[ProbedPath, int]:
        began = monotonic()
        return await probe(connect(path)), monotonic() - began

    return run(timed())


class Refusing(SimulatedPath):
    def __init__(self, reject: Reject) -> None:
        super().__init__()
        self.reject = reject

    def on_the_way(self, prepare: Prepare) -> Reject | None:
        return self.reject


@examples(30)
@given(st.integers(1, 10**12 - 1))
def test_limit_that_is_told_takes_two_packets(limit: int) -> None:
    path = SimulatedPath(Fraction(2), limit)
    found, _ = probe_over(path)
    assert (found.low, found.max_packet, len(path.log)) == (Fraction(2), limit, 2)


@examples(30)
@given(st.integers(1, 10**12 - 1))
def test_limit_that_is_not_told_is_found_to_a_tenth(limit: int) -> None:
    path = SimulatedPath(Fraction(2), limit, told=False)
    found, _ = probe_over(path)
    assert found.low == 2
    assert limit // 10 < found.max_packet <= limit
    assert len(path.log) <= 13


def test_limits_of_two_connectors_that_count_in_other_units() -> None:
    class Two(SimulatedPath):
        def on_the_way(self, prepare: Prepare) -> Reject | None:
            if prepare.amount > 1_000_000:
                return Reject(Code.AMOUNT_TOO_LARGE, CONNECTOR, data=too_large_data(prepare.amount, 1_000_000))
            further = prepare.amount * 3 // 7
            if further > 1000:
                return Reject(Code.AMOUNT_TOO_LARGE, CONNECTOR, data=too_large_data(further, 1000))
            return None

    # What the second connector tells is rounded down twice on its way to the sender's units.
    assert 2333 <= probe_over(Two(Fraction(3, 7)))[0].max_packet <= 2335


@pytest.mark.parametrize(
    ("reject", "last"),
    [
        (Reject(Code.INSUFFICIENT_LIQUIDITY, CONNECTOR, "no credit"), "T04 from test.connector ('no credit')"),
        (Reject(Code.APPLICATION_ERROR, CONNECTOR), "F99 from test.connector"),
    ],
)
def test_path_that_shows_nothing_fails_after_five_seconds_and_says_what_it_said(reject: Reject, last: str) -> None:
    path = Refusing(reject)
    with pytest.raises(SendingFailed) as caught:
        probe_over(path)
    assert caught.value.retryable
    assert caught.value.sentence == (
        f"The path has not shown its exchange rate within 5 seconds; the last answer was {last}."
    )
    assert path.log[-1].at <= 5 * SECOND
    assert len(path.log) < 40


def test_silent_path_fails_after_five_seconds() -> None:
    with pytest.raises(SendingFailed, match=r"within 5 seconds\.$"):
        probe_over(SimulatedPath(delay=60))


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        (Refusing(Reject(Code.UNREACHABLE, CONNECTOR)), "The payment was refused with F02 from test.connector."),
        (Refusing(Reject(Code.AMOUNT_TOO_LARGE, data=too_large_data(5, 0))), "A connector on the path takes no packet"),
        (SimulatedPath(receiver=Receiver(frames=(ConnectionClose(),))), "The receiver closed"),
    ],
)
def test_hopeless_path_fails_at_once(path: SimulatedPath, sentence: str) -> None:
    with pytest.raises(SendingFailed, match=sentence) as caught:
        probe_over(path)
    assert caught.value.retryable
    assert len(path.log) == 1


@pytest.mark.parametrize("times", [1, 4, 5])
def test_lack_of_money_that_passes_is_no_limit(times: int) -> None:
    class Lacking(SimulatedPath):
        def on_the_way(self, prepare: Prepare) -> Reject | None:
            if len(self.log) < times:
                return Reject(Code.INSUFFICIENT_LIQUIDITY, CONNECTOR)
            return super().on_the_way(prepare)

    assert probe_over(Lacking())[0].max_packet == (MAX_VALUE if times < 5 else 10**11)


@pytest.mark.parametrize("delay", [0.0, 0.2])
@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("limit", [None, 10_000_000, 300_000, 500, 50])
@pytest.mark.parametrize("credit", [250_000, 250, 20, 3])
def test_path_short_of_credit_is_quoted_with_what_passes(
    credit: int, limit: int | None, told: bool, delay: float
) -> None:
    """A connector that passes packets on cannot tell a probe from money that its peer could not pay."""

    class Short(SimulatedPath):
        def on_the_way(self, prepare: Prepare) -> Reject | None:
            if limited := super().on_the_way(prepare):
                return limited
            return Reject(Code.INSUFFICIENT_LIQUIDITY, CONNECTOR) if prepare.amount > credit else None

    found, took = probe_over(Short(Fraction(2), limit, told=told, delay=delay))
    passes = min(credit, limit or credit)
    assert found.low == 2
    assert passes // 10 < found.max_packet <= passes
    assert took < 4 * SECOND


@pytest.mark.parametrize(("amount", "limit", "is_taken"), [(250, 1, True), (251, 1, False), (251, 251, True)])
def test_amount_that_the_path_cannot_fund_is_found_by_asking(amount: int, limit: int, is_taken: bool) -> None:
    class Short(SimulatedPath):
        def on_the_way(self, prepare: Prepare) -> Reject | None:
            return Reject(Code.INSUFFICIENT_LIQUIDITY, CONNECTOR) if prepare.amount > 250 else None

    async def check() -> None:
        await check_funded(connect(Short()), ProbedPath(Fraction(1), Fraction(1), limit), amount)

    if is_taken:
        run(check())
    else:
        with pytest.raises(SendingFailed, match="cannot take so much now; the last answer was T04"):
            run(check())


LOW = Fraction(1472, 1000)
ON_LINK = Fraction(92, 100)


def price_over(path: SimulatedPath, price: int, delivery: int, low: Fraction = LOW) -> int:
    return run(
        price_of(connect(path), ProbedPath(low, low + Fraction(1, 10**9), MAX_VALUE), price, delivery, Fraction(1))
    )


@pytest.mark.parametrize(
    ("price", "delivery", "found"),
    [(1, 1, 2), (2, 2, 3), (3, 3, 3), (5, 7, 6), (14, 20, 15), (99, 145, 99), (100, 200, 100)],
)
def test_price_of_a_small_delivery_is_asked_of_the_path(price: int, delivery: int, found: int) -> None:
    path = TwoExchanges()
    assert price_over(path, price, delivery) == found
    assert len(path.log) == (found - price + 1 if price < 100 else 0)
    assert path.receiver.received == 0


def test_price_of_a_small_delivery_is_not_raised_further_than_rounding_explains() -> None:
    with pytest.raises(SendingFailed, match="Rounding"):
        price_over(TwoExchanges(), 2, 5)


@pytest.mark.parametrize("path", [SimulatedPath(delay=60), Refusing(Reject(Code.INSUFFICIENT_LIQUIDITY, CONNECTOR))])
def test_price_that_the_path_does_not_tell_is_that_of_the_rate(path: SimulatedPath) -> None:
    assert price_over(path, 5, 7) == 5


def test_price_of_what_few_units_of_the_link_deliver_is_raised_by_those() -> None:
    """Euros with six decimals over a link in cents, to dollars with nine: two cents do not suffice, three do."""

    class CentLink(SimulatedPath):
        def exchanged(self, amount: int) -> int:
            return amount * 108 // 1_000_000 * 10_000_000

    on_link, low = Fraction(108, 10**6), Fraction(1080)
    found = run(price_of(connect(CentLink()), ProbedPath(low, low + 1, MAX_VALUE), 19_174, 20_500_000, on_link))
    assert found == 19_174 + 9_259


@pytest.mark.parametrize(
    ("amount", "promised", "on_link", "found"),
    [
        (2, 1, Fraction(1), 1),
        (6, 8, Fraction(1), 8),
        (14, 19, Fraction(1), 19),
        (80, 116, Fraction(1), 115),  # 116 arrive
        (100, 145, Fraction(1), 145),  # 147 arrive
        (100, 145, ON_LINK, 146),
    ],
)
def test_promise_of_a_small_amount_is_what_arrives(amount: int, promised: int, on_link: Fraction, found: int) -> None:
    assert run(promise_of(connect(TwoExchanges()), amount, promised, on_link, Fraction(1, 100))) == found


def test_amount_of_which_rounding_leaves_nothing_is_not_promised() -> None:
    with pytest.raises(SendingFailed, match="leaves nothing"):
        run(promise_of(connect(TwoExchanges()), 1, 1, ON_LINK, Fraction(1, 100)))


def test_promise_of_nothing_needs_the_answer_of_the_path() -> None:
    connection = connect(SimulatedPath())
    connection.probed_until = 0
    with pytest.raises(SendingFailed, match="try again"):
        run(promise_of(connection, 1, 0, Fraction(1), Fraction(1, 100)))


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


RATE = Fraction(99, 100)


@given(st.integers(1, 10**12), st.builds(Fraction, st.integers(1, 10**6), st.integers(1, 10**6)))
def test_offers_cost_no_more_than_the_minimum_rate(amount: int, minimum: Fraction) -> None:
    path = ProbedPath(minimum, minimum * 2, MAX_VALUE)
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
            offer(100, ProbedPath(low, Fraction(1), MAX_VALUE), RATE)


def test_packets_too_small_for_the_minimum_are_refused() -> None:
    path = ProbedPath(Fraction(99, 100), Fraction(1), 50)
    assert min_delivery(50, path, Fraction(98, 100)) == 49
    with pytest.raises(SendingFailed, match="50 units in a packet"):
        min_delivery(51, path, Fraction(989, 1000))
    with pytest.raises(SendingFailed, match="50 units in a packet"):
        max_source(51, path, Fraction(989, 1000))


def test_amount_that_rounding_takes_is_refused() -> None:
    with pytest.raises(SendingFailed, match="send more at once"):
        min_delivery(
            105_000_000, ProbedPath(Fraction(1, 10**7), Fraction(100_001, 10**12), MAX_VALUE), Fraction(99, 10**9)
        )
