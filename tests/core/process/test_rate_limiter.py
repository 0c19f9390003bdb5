import pytest

from payres.core.process import rate_limiter
from payres.core.process.rate_limiter import UNREADABLE, RateLimiter, _counted, address_of, counted_address, too_many
from payres.core.protocol.clock import HOUR, SECOND
from payres.core.protocol.limits import BURST_SECONDS
from payres.testing.clock import MovableClock

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


def test_rate_is_in_a_period_and_has_a_burst(clock: MovableClock) -> None:
    limiter = RateLimiter(60, clock, period=HOUR, burst=10)
    assert (taken(limiter, 20), limiter.take("a")) == (10, 60 * SECOND)
    clock.advance(180)
    assert taken(limiter, 20) == 3
    clock.advance(3600)
    assert taken(limiter, 20) == 10


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


@pytest.mark.parametrize("back", [1, 86_400])
def test_clock_that_is_set_back_locks_nobody_out(clock: MovableClock, back: int) -> None:
    limiter = RateLimiter(1, clock)
    taken(limiter, 100)
    assert limiter.wait("a")
    clock.advance(-back)
    assert limiter.wait("a") == 0
    assert taken(limiter, 100) == BURST_SECONDS


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


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:DB8:1:2::", "2001:db8:1:2::/64"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("127.0.0.1", None),
        ("::1", None),
        ("::ffff:127.0.0.1", None),
        ("fe80::1%eth0", "fe80::/64"),
        ("unknown", UNREADABLE),
        ("", UNREADABLE),
        ("127.0.0.1:80", UNREADABLE),
        ("fe80::1%" + "a" * 45, UNREADABLE),
    ],
)
def test_address_is_counted_with_its_network(address: str, counted: str | None) -> None:
    assert counted_address(address) == counted


FORWARDED = (b"x-forwarded-for", b"as the proxy says")


@pytest.mark.parametrize(
    ("client", "headers", "counted"),
    [
        (("203.0.113.7", 0), [FORWARDED], "203.0.113.7"),
        (("203.0.113.7", 50000), [], "203.0.113.7"),
        (("127.0.0.1", 50000), [], None),
        (("127.0.0.1", 0), [FORWARDED], UNREADABLE),
        (("::1", 50000), [(b"host", b"h"), FORWARDED], UNREADABLE),
        (("unknown", 0), [FORWARDED], UNREADABLE),
        (("x" * 30_000, 0), [FORWARDED], UNREADABLE),
        (None, [], None),
    ],
)
def test_request_that_is_forwarded_is_always_counted(
    client: tuple[str, int] | None, headers: list[tuple[bytes, bytes]], counted: str | None
) -> None:
    assert address_of({"type": "http", "client": client, "headers": headers}) == counted


def test_long_texts_that_are_no_address_are_not_kept() -> None:
    before = _counted.cache_info().currsize
    for number in range(10):
        assert counted_address(f"{number}" * 30_000) == UNREADABLE
    assert _counted.cache_info().currsize == before
