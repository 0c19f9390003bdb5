import pytest

from payres import rate_limiter
from payres.clock import SECOND, MovableClock
from payres.limits import BURST_SECONDS
from payres.rate_limiter import RateLimiter, too_many

START = 1_800_000_000 * SECOND


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock(START, frozen=True)


def taken(limiter: RateLimiter, tries: int, key: str = "a") -> int:
    return sum(limiter.take(key) == 0 for _ in range(tries))


@pytest.mark.parametrize("rate", [1, 7, 600, 1_000_000])
def test_take_gives_a_burst_and_then_the_rate(clock: MovableClock, rate: int) -> None:
    limiter = RateLimiter(rate, clock)
    burst = rate * BURST_SECONDS
    assert taken(limiter, min(burst, 5000)) == min(burst, 5000)
    if burst <= 5000:
        assert taken(limiter, 10) == 0
        clock.advance(2)
        assert taken(limiter, 5 * rate) == 2 * rate
        clock.advance(3600)
        assert taken(limiter, 2 * burst) == burst


def test_take_says_when_there_is_one_again(clock: MovableClock) -> None:
    limiter = RateLimiter(10, clock)
    taken(limiter, 50)
    wait = limiter.take("a")
    assert wait == SECOND // 10 == limiter.wait("a")
    clock.advance((wait - 1) / SECOND)
    assert limiter.take("a") == 1
    clock.advance(1 / SECOND)
    assert limiter.wait("a") == 0
    assert (limiter.take("a"), limiter.take("a")) == (0, wait)


def test_wait_takes_nothing(clock: MovableClock) -> None:
    limiter = RateLimiter(1, clock)
    assert [limiter.wait("a") for _ in range(100)] == [0] * 100
    assert taken(limiter, 100) == BURST_SECONDS


def test_keys_are_counted_apart(clock: MovableClock) -> None:
    limiter = RateLimiter(1, clock)
    assert [taken(limiter, 10, key) for key in "ab"] == [BURST_SECONDS] * 2


def test_rate_of_zero_takes_everything_and_remembers_nothing(clock: MovableClock) -> None:
    limiter = RateLimiter(0, clock)
    assert taken(limiter, 10_000) == 10_000
    assert limiter.wait("a") == 0
    assert not limiter._full_at


def test_clock_that_is_set_back_locks_nobody_out_for_long(clock: MovableClock) -> None:
    limiter = RateLimiter(1, clock)
    taken(limiter, 3)
    clock.advance(-3600)
    assert limiter.wait("a") <= SECOND
    clock.advance(1)
    assert limiter.take("a") == 0


def test_least_recent_of_too_many_keys_is_forgotten(clock: MovableClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limiter, "MAX_COUNTED", 2)
    limiter = RateLimiter(1, clock)
    taken(limiter, 10, "a")
    taken(limiter, 10, "b")
    assert limiter.take("a")
    limiter.take("c")
    assert list(limiter._full_at) == ["a", "c"]
    assert limiter.take("b") == 0


@pytest.mark.parametrize(("wait", "shown"), [(1, "1"), (SECOND, "1"), (SECOND + 1, "2")])
def test_too_many_rounds_the_wait_up(wait: int, shown: str) -> None:
    refusal = too_many(wait, "Wait")
    assert str(refusal.retry_after) == shown
