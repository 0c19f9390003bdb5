import pytest

from payres.core.protocol.clock import SECOND, SystemClock
from payres.testing import clock
from payres.testing.clock import MovableClock


class SteppedClock(SystemClock):
    """In the place of the system clock."""

    time = 1_000

    def now(self) -> int:
        return self.time


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> SteppedClock:
    source = SteppedClock()
    monkeypatch.setattr(clock, "SystemClock", lambda: source)
    return source


def test_movable_clock_runs_along_with_system_time_unless_it_is_frozen(source: SteppedClock) -> None:
    clocks = MovableClock(), MovableClock(5 * SECOND), MovableClock(0, frozen=True)
    assert [one.now() for one in clocks] == [1_000, 5 * SECOND, 0]
    source.time += 7
    assert [one.now() for one in clocks] == [1_007, 5 * SECOND + 7, 0]
    for seconds in (0.25, -1):
        for one in clocks:
            one.advance(seconds)
    source.time += 7
    assert [one.now() for one in clocks] == [1_014 - 750_000, 5 * SECOND + 14 - 750_000, -750_000]
