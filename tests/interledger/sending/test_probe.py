"""Probes of paths without limits, with limits that are reported or not, slow, congested and closed ones."""

import asyncio
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.amounts import MAX_VALUE
from payres.clock import SECOND
from payres.interledger.frames import ConnectionClose
from payres.interledger.packets import Code, Prepare, Reject, too_large_data
from payres.interledger.sending.failures import Failure, SendingFailed
from payres.interledger.sending.pacing import monotonic
from payres.interledger.sending.probe import price_of, probe, promise_of
from payres.terms import Path
from tests.helpers import examples
from tests.interledger.sending.simulated_path import CONNECTOR, Receiver, SimulatedPath, TwoExchanges, connect
from tests.interledger.sending.virtual_time import run


def probe_over(path: SimulatedPath) -> tuple[Path, int]:
    async def timed() -> tuple[Path, int]:
        began = monotonic()
        return await probe(connect(path)), monotonic() - began

    return run(timed())


class Refusing(SimulatedPath):
    def __init__(self, reject: Reject) -> None:
        super().__init__()
        self.reject = reject

    def on_the_way(self, prepare: Prepare) -> Reject | None:
        return self.reject


def test_path_without_limit_takes_a_round_trip() -> None:
    path = SimulatedPath(Fraction(9, 10), delay=0.1)
    found, took = probe_over(path)
    assert found == Path(Fraction(9, 10), Fraction(9 * 10**11 + 1, 10**12), MAX_VALUE)
    assert took < SECOND // 4
    assert path.receiver.received == 0


@examples(30)
@given(st.integers(1, 10**12 - 1), st.booleans(), st.sampled_from((0.0, 0.05)))
def test_limit_is_found_exactly(limit: int, told: bool, delay: float) -> None:
    found, took = probe_over(SimulatedPath(Fraction(2), limit, told=told, delay=delay))
    assert (found.low, found.max_packet) == (Fraction(2), limit)
    assert took <= 10 * SECOND


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


def test_figures_that_contradict_the_reject_are_not_believed() -> None:
    class Confused(SimulatedPath):
        def on_the_way(self, prepare: Prepare) -> Reject | None:
            if prepare.amount > 5000:
                return Reject(Code.AMOUNT_TOO_LARGE, CONNECTOR, data=too_large_data(prepare.amount, 2**64 - 1))
            return None

    assert probe_over(Confused())[0].max_packet == 5000


def test_packet_without_an_answer_does_not_hold_the_probe_up() -> None:
    class Hanging(SimulatedPath):
        async def transit(self, prepare: Prepare) -> None:
            self.delay = 20 if prepare.amount == 0 else 0.1
            await super().transit(prepare)

    path = Hanging()
    found, took = probe_over(path)
    assert found.max_packet == MAX_VALUE
    assert took < SECOND
    assert path.packets == 0


def test_congested_path_fails_after_ten_seconds_and_says_what_it_said() -> None:
    path = Refusing(Reject(Code.INSUFFICIENT_LIQUIDITY, CONNECTOR, "no credit"))
    with pytest.raises(SendingFailed) as caught:
        probe_over(path)
    assert caught.value.reason == Failure.RATE_PROBE_FAILED
    assert caught.value.retryable
    assert "within 10 seconds; the last answer was T04 from test.connector ('no credit')" in caught.value.sentence
    assert path.log[-1].at <= 10 * SECOND


def test_silent_path_fails_after_ten_seconds() -> None:
    with pytest.raises(SendingFailed, match=r"within 10 seconds\.$") as caught:
        probe_over(SimulatedPath(delay=60))
    assert caught.value.reason == Failure.RATE_PROBE_FAILED


@pytest.mark.parametrize(
    "reject", [Reject(Code.UNREACHABLE, CONNECTOR), Reject(Code.AMOUNT_TOO_LARGE, data=too_large_data(5, 0))]
)
def test_hopeless_path_fails_at_once(reject: Reject) -> None:
    path = Refusing(reject)
    with pytest.raises(SendingFailed) as caught:
        probe_over(path)
    assert caught.value.reason == Failure.CONNECTOR_ERROR
    assert len(path.log) <= 2


def test_receiver_that_closes_ends_the_probe() -> None:
    with pytest.raises(SendingFailed) as caught:
        probe_over(SimulatedPath(receiver=Receiver(frames=(ConnectionClose(),))))
    assert caught.value.reason == Failure.CLOSED_BY_RECEIVER


@pytest.mark.parametrize("code", [Code.WRONG_CONDITION, Code.INSUFFICIENT_DESTINATION_AMOUNT, Code.INTERNAL_ERROR])
def test_receivers_have_several_words_for_unfulfillable(code: Code) -> None:
    assert probe_over(SimulatedPath(receiver=Receiver(code)))[0].max_packet == MAX_VALUE


def test_error_of_the_outbound_is_raised() -> None:
    class Broken(SimulatedPath):
        async def transit(self, prepare: Prepare) -> None:
            raise OSError("no more files")

    with pytest.raises(OSError, match="no more files"):
        probe_over(Broken())


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


LOW = Fraction(1472, 1000)


def price_over(path: SimulatedPath, price: int, delivery: int, low: Fraction = LOW) -> int:
    return run(price_of(connect(path), Path(low, low + Fraction(1, 10**9), MAX_VALUE), price, delivery))


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


class TwoCentLink(SimulatedPath):
    """The same asset at both ends, with six decimals here and two there and on the way."""

    def exchanged(self, amount: int) -> int:
        return amount // 10_000


def test_price_of_large_numbers_of_small_units_is_raised_by_what_the_receiver_counts_in() -> None:
    path = TwoCentLink()
    assert price_over(path, 575_000, 57, Fraction(99, 10**6)) == 575_000
    assert price_over(path, 565_000, 57, Fraction(99, 10**6)) == 565_000 + 10_102


@pytest.mark.parametrize(
    ("amount", "promised", "found"), [(2, 2, 1), (6, 8, 8), (14, 20, 19), (100, 147, 147), (1, 0, 0)]
)
def test_promise_of_a_small_amount_is_what_arrives(amount: int, promised: int, found: int) -> None:
    assert run(promise_of(connect(TwoExchanges()), amount, promised)) == found


def test_amount_of_which_rounding_leaves_nothing_is_not_promised() -> None:
    with pytest.raises(SendingFailed, match="leaves nothing"):
        run(promise_of(connect(TwoExchanges()), 1, 1))


@pytest.mark.parametrize("delay", [0.0, 0.03, 0.2])
def test_large_packets_show_the_rate_where_the_rounding_of_small_ones_contradicts(delay: float) -> None:
    class CoarseMiddle(SimulatedPath):
        def exchanged(self, amount: int) -> int:
            return amount * 92 // 1_000_000 * 1_086_957 // 100

        async def transit(self, prepare: Prepare) -> None:
            await asyncio.sleep(delay * (1 if prepare.amount > 10**6 else 2))  # the small ones arrive last

    found, _ = probe_over(CoarseMiddle())
    assert 0.9999 < found.low < found.high < 1.0001
