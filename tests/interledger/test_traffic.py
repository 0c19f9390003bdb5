from contextlib import ExitStack

import pytest

from payres.clock import SECOND, MovableClock
from payres.interledger.declined import Declined
from payres.interledger.packets import Code
from payres.interledger.traffic import Traffic
from payres.limits import BURST_SECONDS, MAX_PACKETS_IN_FLIGHT
from payres.throttle import Throttle


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock(1_800_000_000 * SECOND, frozen=True)


def test_packets_under_way_are_limited_for_each_peer(clock: MovableClock) -> None:
    traffic = Traffic(Throttle(0, clock))
    with ExitStack() as under_way:
        for _ in range(MAX_PACKETS_IN_FLIGHT):
            under_way.enter_context(traffic.packet(1))
        with pytest.raises(Declined) as caught, traffic.packet(1):
            pass
        assert caught.value.code == Code.CONNECTOR_BUSY
        with traffic.packet(2):
            pass
    with traffic.packet(1):
        pass
    assert not traffic._under_way


def test_packets_a_second_are_limited_for_each_peer(clock: MovableClock) -> None:
    traffic = Traffic(Throttle(3, clock))
    for _ in range(3 * BURST_SECONDS):
        with traffic.packet(1):
            pass
    with pytest.raises(Declined) as caught, traffic.packet(1):
        pass
    assert caught.value.code == Code.RATE_LIMITED
    with traffic.packet(2):
        pass
    clock.advance(1)
    with traffic.packet(1):
        pass


def test_packet_that_fails_is_no_longer_under_way(clock: MovableClock) -> None:
    traffic = Traffic(Throttle(0, clock))
    for _ in range(MAX_PACKETS_IN_FLIGHT + 1):
        with pytest.raises(ZeroDivisionError), traffic.packet(1):
            raise ZeroDivisionError
    assert not traffic._under_way
