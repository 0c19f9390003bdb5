"""How plans are cut into packets, and what fulfilled, rejected and lost ones leave."""

from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.amounts import MAX_VALUE
from payres.interledger.packets import Code, Fulfill, Reject, Unanswered, too_large_data
from payres.interledger.sending.connection import Answer, SendingFailed
from payres.interledger.sending.payment import Packet, Plan, Progress
from payres.interledger.stream import PacketType, StreamPacket
from payres.terms import Path

RATE = Fraction(99, 100)
LOST = Answer(Unanswered("no answer"))
CONGESTED = Answer(Reject(Code.INSUFFICIENT_LIQUIDITY))


def sending(amount: int, most: int = MAX_VALUE) -> Plan:
    return Plan(amount, amount * 99 // 100, RATE, exact(most), sends_all=True)


def delivering(amount: int, most: int = MAX_VALUE) -> Plan:
    return Plan(amount * 2, amount, RATE, exact(most), sends_all=False)


def exact(most: int = MAX_VALUE) -> Path:
    return Path(Fraction(1), Fraction(10**12 + 1, 10**12), most)


def fulfilled(arrived: int) -> Answer:
    return Answer(Fulfill(b"f" * 32), StreamPacket(0, PacketType.FULFILL, arrived))


def too_little(arrived: int) -> Answer:
    return Answer(Reject(Code.APPLICATION_ERROR), StreamPacket(0, PacketType.REJECT, arrived))


def take(progress: Progress, size: int, *answers: Answer) -> list[tuple[int, int]]:
    """The amount and minimum of each packet of a round, which is answered so; all is fulfilled beyond the answers."""
    packets = progress.next_round(size)
    given = [*answers, *(fulfilled(packet.most) for packet in packets[len(answers) :])]
    for packet, answer in zip(packets, given, strict=True):
        progress.count(packet, answer)
    return [(packet.amount, packet.minimum) for packet in packets]


@pytest.mark.parametrize(("amount", "promised", "minimum"), [(50, 49, 49), (50, 48, 49), (50, 50, 50), (1, 0, 0)])
def test_last_packet_may_deliver_a_unit_less_if_the_promise_is_kept(amount: int, promised: int, minimum: int) -> None:
    assert take(Progress(Plan(amount, promised, RATE, exact(), sends_all=True)), 1) == [(amount, minimum)]


@pytest.mark.parametrize(("promised", "minimum"), [(992, 396), (998, 398)])
def test_last_packet_delivers_what_the_others_lack_of_the_promise(promised: int, minimum: int) -> None:
    progress = Progress(Plan(1000, promised, RATE, exact(600), sends_all=True))
    assert take(progress, 1, fulfilled(600)) == [(600, 594)]
    assert take(progress, 1) == [(400, minimum)]


def test_last_packet_that_cannot_keep_the_promise_is_not_sent() -> None:
    progress = Progress(Plan(1000, 992, RATE, exact(600), sends_all=True))
    take(progress, 1, fulfilled(594))
    with pytest.raises(SendingFailed):
        take(progress, 1)


def test_last_packet_with_others_in_flight_or_unresolved_may_not() -> None:
    progress = Progress(Plan(100, 98, RATE, exact(50), sends_all=True))
    assert take(progress, 2, CONGESTED, CONGESTED) == [(50, 50), (50, 50)]
    assert take(progress, 1, LOST) == [(50, 50)]
    assert take(progress, 1) == [(50, 50)]


def test_rest_that_no_packet_could_deliver_is_shared_with_the_packet_before() -> None:
    path = Path(Fraction(1, 3), Fraction(1, 3) + Fraction(1, 10**6), 66)
    progress = Progress(Plan(200, 60, Fraction(3, 10), path, sends_all=True))
    assert [amount for amount, _ in take(progress, 4)] == [66, 66, 34, 34]


def test_packet_that_may_just_pass_is_tried() -> None:
    plan = Plan(5, 5, Fraction(1), Path(Fraction(7, 8), Fraction(11, 10), 5), sends_all=True)
    assert take(Progress(plan), 5) == [(5, 5)]
    with pytest.raises(SendingFailed):
        take(Progress(Plan(5, 5, Fraction(1), Path(Fraction(7, 8), Fraction(1), 5), sends_all=True)), 5)


fates = st.lists(st.lists(st.sampled_from(("fulfilled", "rejected", "lost", "too large")), max_size=5), max_size=12)


@given(st.integers(1, 5000), st.integers(1, 700), st.booleans(), fates)
def test_whatever_happens_the_plan_is_kept(
    amount: int, most: int, sends_all: bool, rounds: Sequence[Sequence[str]]
) -> None:
    plan = sending(amount, most) if sends_all else delivering(amount, most)
    progress = Progress(plan)
    for fate in rounds:
        packets = progress.next_round(len(fate))
        assert len(packets) <= len(fate)
        at_stake = progress.sent + progress.unresolved + sum(packet.amount for packet in packets)
        assert at_stake <= (plan.max_source if sends_all else plan.min_delivery)
        for packet, name in zip(packets, fate, strict=False):
            assert packet.minimum >= (packet.amount - 1) * plan.min_rate
            progress.count(packet, outcome(packet, name))
    assert progress.delivered == progress.sent
    result = progress.result(None)
    assert result.failure or result.unresolved or result.delivered >= plan.min_delivery


def outcome(packet: Packet, name: str) -> Answer:
    if name == "fulfilled":
        return fulfilled(packet.amount)
    if name == "too large" and packet.amount > 1:
        return Answer(Reject(Code.AMOUNT_TOO_LARGE, data=too_large_data(3, 2)))
    return LOST if name == "lost" else CONGESTED
