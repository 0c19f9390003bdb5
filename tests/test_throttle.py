import pytest

from payres.clock import SECOND, MovableClock
from payres.limits import BURST_SECONDS
from payres.throttle import UNREADABLE, Throttle, _origin, origin, origin_of, too_many

START = 1_800_000_000 * SECOND


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock(START, frozen=True)


def taken(throttle: Throttle, tries: int, key: str = "a") -> int:
    return sum(throttle.take(key) == 0 for _ in range(tries))


@pytest.mark.parametrize("rate", [1, 7, 600, 1_000_000])
def test_take_gives_a_burst_and_then_the_rate(clock: MovableClock, rate: int) -> None:
    throttle = Throttle(rate, clock)
    burst = rate * BURST_SECONDS
    assert taken(throttle, min(burst, 5000)) == min(burst, 5000)
    if burst <= 5000:
        assert taken(throttle, 10) == 0
        clock.advance(2)
        assert taken(throttle, 5 * rate) == 2 * rate
        clock.advance(3600)
        assert taken(throttle, 2 * burst) == burst


def test_take_says_when_there_is_one_again(clock: MovableClock) -> None:
    throttle = Throttle(10, clock)
    taken(throttle, 50)
    wait = throttle.take("a")
    assert wait == SECOND // 10 == throttle.wait("a")
    clock.advance((wait - 1) / SECOND)
    assert throttle.take("a") == 1
    clock.advance(1 / SECOND)
    assert throttle.wait("a") == 0
    assert (throttle.take("a"), throttle.take("a")) == (0, wait)


def test_wait_takes_nothing(clock: MovableClock) -> None:
    throttle = Throttle(1, clock)
    assert [throttle.wait("a") for _ in range(100)] == [0] * 100
    assert taken(throttle, 100) == BURST_SECONDS


def test_keys_are_counted_apart(clock: MovableClock) -> None:
    throttle = Throttle(1, clock)
    assert [taken(throttle, 10, key) for key in "ab"] == [BURST_SECONDS] * 2


def test_rate_of_zero_takes_everything_and_remembers_nothing(clock: MovableClock) -> None:
    throttle = Throttle(0, clock)
    assert taken(throttle, 10_000) == 10_000
    assert throttle.wait("a") == 0
    assert not throttle._full_at


def test_clock_that_is_set_back_locks_nobody_out_for_long(clock: MovableClock) -> None:
    throttle = Throttle(1, clock)
    taken(throttle, 3)
    clock.advance(-3600)
    assert throttle.wait("a") <= SECOND
    clock.advance(1)
    assert throttle.take("a") == 0


def test_least_recent_of_too_many_keys_is_forgotten(clock: MovableClock) -> None:
    throttle = Throttle(1, clock, keys=2)
    taken(throttle, 10, "a")
    taken(throttle, 10, "b")
    assert throttle.take("a")
    throttle.take("c")
    assert list(throttle._full_at) == ["a", "c"]
    assert throttle.take("b") == 0


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
def test_origin_is_who_is_counted(address: str, counted: str | None) -> None:
    assert origin(address) == counted


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
def test_origin_of_a_request_that_is_forwarded_is_always_counted(
    client: tuple[str, int] | None, headers: list[tuple[bytes, bytes]], counted: str | None
) -> None:
    assert origin_of({"type": "http", "client": client, "headers": headers}) == counted


def test_long_texts_that_are_no_address_are_not_kept() -> None:
    before = _origin.cache_info().currsize
    for number in range(10):
        assert origin(f"{number}" * 30_000) == UNREADABLE
    assert _origin.cache_info().currsize == before
