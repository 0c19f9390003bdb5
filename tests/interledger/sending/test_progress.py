"""How plans are cut into packets, and what fulfilled, rejected and lost ones leave."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.amounts import MAX_VALUE
from payres.interledger.sending.failures import Failure, SendingFailed
from payres.interledger.sending.payment import PacketAmounts, Plan, Progress
from payres.terms import Path, RateBounds

EXACT = RateBounds(Fraction(1), Fraction(10**12 + 1, 10**12))
PATH = Path(EXACT.low, EXACT.high, MAX_VALUE)
RATE = Fraction(99, 100)


def sending(amount: int, *, unit_forgiven: bool = False) -> Plan:
    return Plan(amount, amount * 99 // 100, RATE, PATH, sends_all=True, unit_forgiven=unit_forgiven)


def delivering(amount: int) -> Plan:
    return Plan(amount * 2, amount, RATE, PATH, sends_all=False)


def take(progress: Progress, most: int, bounds: RateBounds = EXACT) -> PacketAmounts:
    packet = progress.next(bounds, most)
    assert packet
    progress.take(packet)
    return packet


def test_packets_of_a_plan_that_sends_all() -> None:
    progress = Progress(sending(1000))
    assert [take(progress, 400) for _ in range(3)] == [
        PacketAmounts(400, 396, 400, forgiving=False),
        PacketAmounts(400, 396, 400, forgiving=False),
        PacketAmounts(200, 198, 200, forgiving=True),
    ]
    assert progress.next(EXACT, 400) is None


def test_packets_of_a_plan_that_delivers() -> None:
    bounds = RateBounds(Fraction(699, 777), Fraction(700, 777))
    progress = Progress(Plan(5612, 5000, Fraction(891, 1000), PATH, sends_all=False))
    packets = []
    while progress.next(bounds, 777):
        packets.append(take(progress, 777, bounds))
        progress.fulfilled(packets[-1], packets[-1].amount * 9 // 10)
    assert [packet.amount for packet in packets] == [777] * 7 + [119]
    assert packets[-1] == PacketAmounts(119, 106, 107, forgiving=True, completes=True)
    assert progress.complete
    assert (progress.sent, progress.delivered) == (5558, 5000)


def test_rejected_amount_is_available_again() -> None:
    progress = Progress(sending(1000))
    packet = take(progress, 700)
    assert take(progress, 700).amount == 300
    progress.rejected(packet)
    assert take(progress, 700).amount == 700


def test_lost_amount_is_not_available_again() -> None:
    for plan in (sending(1000), delivering(1000)):
        progress = Progress(plan)
        progress.lost(take(progress, 700))
        assert take(progress, 700).amount == 300
        assert progress.next(EXACT, 700) is None
        assert (progress.unresolved, progress.complete) == (700, False)


def test_unit_is_forgiven_once_while_its_packet_is_under_way() -> None:
    progress = Progress(sending(1000))
    first, last = take(progress, 600), take(progress, 600)
    assert (first.forgiving, last.forgiving) == (False, True)
    progress.rejected(first)
    assert not take(progress, 600).forgiving
    progress.rejected(last)
    assert take(progress, 600).forgiving, "the rejected packet has not used it"


@pytest.mark.parametrize(("arrived", "used"), [(0, True), (1, False)])
def test_unit_is_used_up_by_a_packet_that_needed_it(arrived: int, used: bool) -> None:
    progress = Progress(sending(1))
    packet = take(progress, 1)
    assert (packet.minimum, packet.forgiving) == (0, True)
    progress.fulfilled(packet, arrived)
    assert (progress.delivered, progress.unit_forgiven) == (arrived, used)


def test_claim_below_the_minimum_counts_as_the_minimum() -> None:
    progress = Progress(sending(1000))
    progress.fulfilled(take(progress, 1000), 5)
    assert progress.delivered == 990


def test_unit_of_a_lost_packet_is_used_up() -> None:
    progress = Progress(sending(1000))
    progress.lost(take(progress, 1000))
    assert progress.unit_forgiven


def test_unit_of_an_earlier_run_is_not_forgiven_again() -> None:
    assert take(Progress(sending(1000, unit_forgiven=True)), 1000) == PacketAmounts(1000, 990, 1000, forgiving=False)
    assert take(Progress(sending(1)), 1).minimum == 0
    assert take(Progress(sending(1, unit_forgiven=True)), 1).minimum == 1


def test_rest_that_no_packet_could_deliver_is_shared_with_the_packet_before() -> None:
    bounds = RateBounds(Fraction(1, 3), Fraction(1, 3) + Fraction(1, 10**6))
    progress = Progress(Plan(200, 60, Fraction(3, 10), PATH, sends_all=True))
    assert [take(progress, 66, bounds).amount for _ in range(4)] == [66, 66, 34, 34]


def test_packet_that_may_just_pass_is_tried() -> None:
    plan = Plan(5, 4, Fraction(99, 100), PATH, sends_all=True, unit_forgiven=True)
    assert take(Progress(plan), 5, RateBounds(Fraction(7, 8), Fraction(11, 10))) == PacketAmounts(
        5, 5, 5, forgiving=False
    )
    with pytest.raises(SendingFailed):
        Progress(plan).next(RateBounds(Fraction(7, 8), Fraction(1)), 5)


@pytest.mark.parametrize("plan", [sending(1000), delivering(1000)])
@pytest.mark.parametrize("bounds", [RateBounds(Fraction(0), Fraction(1, 2)), RateBounds(Fraction(9, 10), RATE)])
def test_rate_below_the_minimum(plan: Plan, bounds: RateBounds) -> None:
    with pytest.raises(SendingFailed) as caught:
        Progress(plan).next(bounds, 500)
    assert caught.value.reason == Failure.INSUFFICIENT_EXCHANGE_RATE


fates = st.lists(st.tuples(st.sampled_from(("take", "fulfilled", "rejected", "lost")), st.integers(0, 30)), max_size=60)


@given(st.integers(1, 5000), st.integers(1, 700), st.booleans(), fates)
def test_whatever_happens_the_plan_is_kept(
    amount: int, most: int, sends_all: bool, steps: list[tuple[str, int]]
) -> None:
    plan = sending(amount) if sends_all else delivering(amount)
    progress, under_way = Progress(plan), list[PacketAmounts]()
    for step, which in steps:
        if step == "take":
            if packet := progress.next(EXACT, most):
                progress.take(packet)
                under_way.append(packet)
        elif under_way:
            packet = under_way.pop(which % len(under_way))
            if step == "fulfilled":
                progress.fulfilled(packet, packet.amount)
            else:
                (progress.rejected if step == "rejected" else progress.lost)(packet)
        at_stake = progress.sent + progress.unresolved + sum(packet.amount for packet in under_way)
        assert at_stake <= (plan.max_source if sends_all else plan.min_delivery)
        assert sum(packet.forgiving for packet in under_way) <= 1
    assert progress.delivered == progress.sent
    assert not progress.complete or progress.delivered == amount
