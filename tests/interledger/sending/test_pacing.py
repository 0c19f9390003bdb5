"""How fast packets follow each other."""

from payres.clock import SECOND
from payres.interledger.sending.pacing import Pace
from tests.interledger.sending.simulated_path import TIMING

ROUND_TRIP = 200_000


def answer(pace: Pace, sent_at: int = 0, *, congested: bool = False, took: int = ROUND_TRIP) -> None:
    pace.answered(sent_at, sent_at + took, authentic=not congested, congested=congested)


def test_pace_begins_at_forty_a_second() -> None:
    pace = Pace(TIMING)
    assert pace.ready_at(7) == 7
    pace.sent(7)
    assert pace.ready_at(8) == 7 + SECOND // 40


def test_pace_doubles_within_a_round_trip() -> None:
    pace = Pace(TIMING)
    for _ in range(8):  # as many answers as come in 200 ms at 40 a second
        answer(pace)
    assert pace.interval == SECOND // 80


def test_twentieth_of_the_round_trip_bounds_the_pace() -> None:
    pace = Pace(TIMING)
    for _ in range(100):
        answer(pace)
    assert pace.interval == ROUND_TRIP // 20
    for _ in range(100):
        answer(pace, took=1000)
    assert pace.interval == SECOND // 200
    for _ in range(100):
        answer(pace, took=20 * SECOND)
    assert 0.9 * SECOND < pace.interval <= SECOND


def test_congestion_halves_the_pace_once_for_all_it_rejects() -> None:
    pace = Pace(TIMING)
    for sent_at in range(20):
        answer(pace, sent_at, congested=True, took=1000)
    assert pace.interval == SECOND // 20
    answer(pace, 1000, congested=True, took=1000)
    assert pace.interval == SECOND // 10


def test_pace_never_falls_below_one_a_second_and_creeps_up_after_congestion() -> None:
    pace = Pace(TIMING)
    for second in range(20):
        answer(pace, second * SECOND, congested=True, took=1000)
    assert pace.interval == SECOND
    answer(pace, 20 * SECOND, took=1000)
    answer(pace, 20 * SECOND, took=1000)
    assert pace.interval == SECOND // 2


def test_late_packet_is_made_up_for_by_one_interval_at_most() -> None:
    pace, interval = Pace(TIMING), SECOND // 40
    pace.sent(0)
    pace.sent(interval + 5000)
    assert pace.ready_at(0) == 2 * interval
    pace.sent(100 * interval)
    assert pace.ready_at(0) == 100 * interval


def test_first_round_trip_takes_the_place_of_what_was_assumed() -> None:
    quick, slow = Pace(TIMING), Pace(TIMING)
    answer(quick, took=10_000)
    assert quick.interval == SECOND // 140  # 40, and 100 more for each answer within 10 ms
    answer(slow, took=2 * SECOND)
    assert slow.interval == 2 * SECOND // 20
