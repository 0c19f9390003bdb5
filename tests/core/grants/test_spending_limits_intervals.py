from datetime import UTC, datetime, timedelta

import pytest
from dateutil.relativedelta import relativedelta
from hypothesis import given
from hypothesis import strategies as st

from payres.core.grants.spending_limits import EXAMPLE, Interval, parse_interval
from payres.core.protocol.clock import DAY, EARLIEST, HOUR, LATEST, MINUTE, SECOND, format_time, parse_time

Window = tuple[int, int]  # from, until

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOW = parse_time("2026-11-21T12:00:00Z")


def microseconds(at: datetime) -> int:
    return (at - EPOCH) // timedelta(microseconds=1)


def window_at(interval: Interval, now: int) -> Window | None:
    index = interval.window_at(now)
    return None if index is None else (interval.boundary(index), interval.boundary(index + 1))


def windows(interval: Interval) -> list[Window]:
    """Every window of a finite interval."""
    found, now = [], interval.start
    while now is not None and (window := window_at(interval, now)):
        found.append(window)
        now = window[1]
    return found


def boundaries(text: str) -> list[str]:
    """Every boundary of a finite interval, as the date, or the date and time of day when that is not midnight."""
    interval = parse_interval(text)
    found = windows(interval)
    assert interval.end == found[-1][1]
    assert interval.windows_total == len(found)
    moments = [EPOCH + timedelta(microseconds=moment) for moment in [found[0][0], *(end for _, end in found)]]
    return [at.strftime("%Y-%m-%d" if at.time() == EPOCH.time() else "%Y-%m-%dT%H:%M:%S") for at in moments]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # The 31st comes back after February, because every boundary counts from the anchor.
        ("R3/2026-01-31T00:00:00Z/P1M", ["2026-01-31", "2026-02-28", "2026-03-31", "2026-04-30", "2026-05-31"]),
        ("R1/2024-02-29T00:00:00Z/P2Y", ["2024-02-29", "2026-02-28", "2028-02-29"]),
        ("R0/2026-01-01T00:00:00Z/P1Y6M", ["2026-01-01", "2027-07-01"]),
        ("R1/2026-01-31T00:00:00Z/P1M1DT6H", ["2026-01-31", "2026-03-01T06:00:00", "2026-04-02T12:00:00"]),
        ("R2/2026-03-28T00:00:00Z/P1D", ["2026-03-28", "2026-03-29", "2026-03-30", "2026-03-31"]),
        ("R1/2026-01-01T00:00:00Z/P1W", ["2026-01-01", "2026-01-08", "2026-01-15"]),
        ("R1/2026-01-01T00:00:00Z/P1W1D", ["2026-01-01", "2026-01-09", "2026-01-17"]),
        ("R1/2026-01-01T00:00:00Z/PT36H", ["2026-01-01", "2026-01-02T12:00:00", "2026-01-04"]),
        # Counting backwards, the last window ends at the given end.
        ("R2/P1M/2026-03-31T00:00:00Z", ["2025-12-31", "2026-01-31", "2026-02-28", "2026-03-31"]),
        ("R0/P1Y/2024-02-29T00:00:00Z", ["2023-02-28", "2024-02-29"]),
        # A start and an end give a length of time, not a calendar month.
        ("R1/2026-01-01T00:00:00Z/2026-02-01T00:00:00Z", ["2026-01-01", "2026-02-01", "2026-03-04"]),
        # Offsets become UTC before any month is counted.
        ("R0/2026-01-01T00:00:00+02:00/P1M", ["2025-12-31T22:00:00", "2026-01-31T22:00:00"]),
        ("R0/2026-01-01T00:00Z/2026-01-01T02:30+01:00", ["2026-01-01", "2026-01-01T01:30:00"]),
        ("R1/1969-12-31T23:00:00Z/PT30M", ["1969-12-31T23:00:00", "1969-12-31T23:30:00", "1970-01-01"]),
    ],
)
def test_interval_has_these_boundaries(text: str, expected: list[str]) -> None:
    assert boundaries(text) == expected


@pytest.mark.parametrize(
    ("duration", "length"),
    [
        ("P2W", 14 * DAY),
        ("P1.5W", 10 * DAY + 12 * HOUR),
        ("P0,5D", 12 * HOUR),
        ("PT1.25H", 75 * MINUTE),
        ("PT0,5M", 30 * SECOND),
        ("PT0.000001S", 1),
        ("PT1.0000019S", SECOND + 1),
        ("P1DT2H3M4.5S", DAY + 2 * HOUR + 3 * MINUTE + 4_500_000),
        ("P0Y0M1D", DAY),
        ("P000000001D", DAY),
    ],
)
def test_duration_of_fixed_units(duration: str, length: int) -> None:
    interval = parse_interval(f"R/2026-01-01T00:00:00Z/{duration}")
    assert interval.months == 0
    assert interval.microseconds == length


@pytest.mark.parametrize("repetitions", ["R", "R-1"])
def test_interval_for_ever_goes_on(repetitions: str) -> None:
    interval = parse_interval(f"{repetitions}/2026-01-31T00:00:00Z/P1M")
    assert interval.windows_total is None
    assert interval.end is None
    assert interval.start == parse_time("2026-01-31T00:00:00Z")
    window = window_at(interval, parse_time("2999-03-01T00:00:00Z"))
    assert window == (parse_time("2999-02-28T00:00:00Z"), parse_time("2999-03-31T00:00:00Z"))
    assert window_at(interval, parse_time("2026-01-30T23:59:59.999999Z")) is None


def test_interval_for_ever_with_an_end_goes_back_for_ever() -> None:
    interval = parse_interval("R/P1M/2026-03-31T00:00:00Z")
    assert interval.windows_total is None
    assert interval.start is None
    assert interval.end == parse_time("2026-03-31T00:00:00Z")
    window = window_at(interval, parse_time("1026-03-30T00:00:00Z"))
    assert window == (parse_time("1026-02-28T00:00:00Z"), parse_time("1026-03-31T00:00:00Z"))
    assert window_at(interval, parse_time("2026-03-31T00:00:00Z")) is None


@pytest.mark.parametrize(
    "text",
    [
        "R/1970-01-01T00:00:00Z/PT1S",
        "R/0001-01-01T00:00:00Z/PT0.000001S",
        "R/0001-01-01T00:00:00Z/P1M",
        "R/0001-01-31T00:00:00Z/P1MT0.000001S",
        "R/PT0.000001S/9999-12-31T23:59:59Z",
        "R/P1M/9999-12-31T23:59:59Z",
        "R/0001-01-01T00:00:00Z/0001-01-01T00:00:00.000001Z",
    ],
)
def test_window_is_found_at_once_however_far(text: str) -> None:
    # A walk from the anchor would take up to 10^17 steps and run into the time limit of the test.
    for now in (NOW, EARLIEST, LATEST, -(10**30), 10**30):
        window = window_at(parse_interval(text), now)
        assert window is None or window[0] <= now < window[1]
    assert window_at(parse_interval(text), NOW) is not None


def test_window_may_reach_beyond_the_calendar_of_the_machine() -> None:
    interval = parse_interval("R/2026-01-31T00:00:00Z/P1000Y")
    window = window_at(interval, parse_time("9500-01-01T00:00:00Z"))
    # The year 10026 has the calendar of 2026, twenty cycles of 400 years earlier.
    last = parse_time("2026-01-31T00:00:00Z") + 20 * 146_097 * DAY
    assert window == (parse_time("9026-01-31T00:00:00Z"), last)


FROM = "R1/2026-01-01T00:00:00Z/"
REFUSED = {
    "three parts": ("", "R12/2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z/P1M", "R/2026-01-01T00:00:00Z/P1M/"),
    "at most 256 characters": ("R/" + "1" * 300,),
    "must begin with R, .* not with '12'": ("12/2026-01-01T00:00:00Z/P1M",),
    "must begin with R": (f"{r}/2026-01-01T00:00:00Z/P1M" for r in ("r", "R-2", "R+1", "R1.5", "R\u0661")),
    "up to nine digits": ("R1234567890/2026-01-01T00:00:00Z/P1M",),
    "two durations": ("R1/P1M/P1M",),
    "end after it starts": (f"{FROM}2026-01-01T00:00:00Z", f"{FROM}2025-01-01T00:00:00Z"),
    "always with Z or an offset": ("R1/2026-01-01T00:00:00/P1M", "R1/2026-01-01/P1M"),
    "no day 2026-02-29": ("R1/2026-02-29T00:00:00Z/P1M",),
    "time of day": ("R1/2026-01-01T24:00:00Z/P1M",),
    "years 1 to 9999": ("R1/0001-01-01T00:00:00+01:00/P1M",),
    "start or end ''": ("R1//P1M", FROM),
    "cannot be read, 'P'": (f"{FROM}P",),
    "cannot be read": (
        *(f"{FROM}{d}" for d in ("PT", "P1DT", "P1H", "PT1D", "P1D1M", "P1", "P.5D", "p1m", "+P1M", "P1234567890D")),
        f"{FROM}P\u0661D",
    ),
    "negative duration '-P1M'": (f"{FROM}-P1M",),
    "negative duration 'P-1M'": (f"{FROM}P-1M",),
    "no time at all": (*(f"{FROM}{d}" for d in ("P0D", "PT0S", "PT0.0000009S")), "R/PT0S/2026-01-01T00:00:00Z"),
    "only be whole": (f"{FROM}P1.5Y", f"{FROM}P1.5M"),
    "only the last number": (f"{FROM}P1.5DT1H", f"{FROM}P1.5M1D"),
    "beyond the years 1 to 9999": (
        "R999999999/2026-01-01T00:00:00Z/P1M",
        "R999999999/P1M/2026-01-01T00:00:00Z",
        "R/2026-01-01T00:00:00Z/P999999999Y",
        "R/P999999999W/2026-01-01T00:00:00Z",
        "R999999999/2026-01-01T00:00:00Z/P999999999Y999999999M999999999W",
        "R0/P9998YT0.000001S/9999-01-01T00:00:00Z",
        "R0/9999-12-31T23:59:59Z/PT1S",
    ),
}


@pytest.mark.parametrize(("text", "sentence"), [(text, words) for words, texts in REFUSED.items() for text in texts])
def test_parse_interval_refuses_with_a_sentence_and_an_example(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=rf"^The interval .*{sentence}") as refused:
        parse_interval(text)
    assert EXAMPLE in str(refused.value)


def test_interval_may_fill_the_calendar() -> None:
    assert parse_interval("R0/0001-01-01T00:00:00Z/9999-12-31T23:59:59.999999Z").end == LATEST
    assert parse_interval("R0/P9998Y/9999-01-01T00:00:00Z").start == EARLIEST


def test_the_example_is_a_good_one() -> None:
    text, meaning = EXAMPLE.split(", which is ")
    interval = parse_interval(text)
    assert interval.windows_total == 12
    assert (interval.months, format_time(interval.anchor)) == (1, "2026-01-01T00:00:00.000Z"), meaning


lengths = st.tuples(
    st.one_of(st.just(0), st.integers(1, 30)),
    st.one_of(st.just(0), st.integers(1, 100 * DAY // SECOND).map(lambda s: s * SECOND), st.integers(1, 3 * DAY)),
).filter(any)
anchors = st.datetimes(
    datetime.fromisoformat("1800-01-01"), datetime.fromisoformat("2200-01-01"), timezones=st.just(UTC)
)


def duration_text(months: int, length: int) -> str:
    days, rest = divmod(length, DAY)
    hours, rest = divmod(rest, HOUR)
    years, months = divmod(months, 12)
    return f"P{years}Y{months}M{days}DT{hours}H0M{rest // SECOND}.{rest % SECOND:06}S"


@given(anchors, lengths, st.integers(0, 400), st.integers(0, 400), st.floats(0, 1, exclude_max=True), st.booleans())
def test_windows_agree_with_dateutil(
    anchor: datetime, size: tuple[int, int], repetitions: int, k: int, share: float, backwards: bool
) -> None:
    months, length = size
    anchor_text, duration = anchor.isoformat(), duration_text(months, length)
    parts = (duration, anchor_text) if backwards else (anchor_text, duration)
    interval = parse_interval(f"R{repetitions}/" + "/".join(parts))
    index = -1 - k if backwards else k

    def boundary(at: int) -> int:
        return microseconds(anchor + relativedelta(months=at * months, microseconds=at * length))

    start, end = boundary(index), boundary(index + 1)
    now = start + int((end - start) * share)
    expected = (start, end) if k <= repetitions else None
    assert window_at(interval, now) == expected
    far = -1 - repetitions if backwards else repetitions
    assert interval.end == (microseconds(anchor) if backwards else boundary(far + 1))
    assert interval.start == boundary(far if backwards else 0)


@given(anchors, anchors, st.integers(0, 5), st.integers(-3, 9), st.floats(0, 1, exclude_max=True))
def test_windows_between_two_times_have_one_length(
    one: datetime, other: datetime, repetitions: int, index: int, share: float
) -> None:
    start, end = sorted((one, other))
    if start == end:
        end += timedelta(microseconds=1)
    interval = parse_interval(f"R{repetitions}/{start.isoformat()}/{end.isoformat()}")
    begin, length = microseconds(start), microseconds(end) - microseconds(start)
    expected = (begin + index * length, begin + (index + 1) * length)
    found = window_at(interval, expected[0] + int(length * share))
    assert found == (expected if 0 <= index <= repetitions else None)


times = st.one_of(
    st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat), st.text(alphabet="0123456789-:.TZ+", max_size=30)
)
durations = st.from_regex(r"\A-?P([0-9]{1,10}[.,]?[0-9]{0,10}[YMWDHS]|T){0,7}\Z")
halves = st.one_of(times, durations)
texts = st.one_of(
    st.text(max_size=300),
    st.text(alphabet="R/0123456789PTYMWDHS-+:.,Z", max_size=60),
    st.builds("R{}/{}/{}".format, st.one_of(st.just(""), st.integers(-2, 10**10)), halves, halves),
)


@given(anchors, lengths, st.integers(EARLIEST, LATEST), st.booleans())
def test_windows_tile(anchor: datetime, size: tuple[int, int], now: int, backwards: bool) -> None:
    duration = duration_text(*size)
    parts = (duration, anchor.isoformat()) if backwards else (anchor.isoformat(), duration)
    interval = parse_interval("R/" + "/".join(parts))
    window = window_at(interval, now)
    if window is None:
        assert (now < microseconds(anchor)) != backwards
        return
    assert window[0] <= now < window[1]
    assert window_at(interval, window[0]) == window_at(interval, window[1] - 1) == window
    after = window_at(interval, window[1])
    assert after[0] == window[1] if after else window[1] == microseconds(anchor)
    before = window_at(interval, window[0] - 1)
    assert before[1] == window[0] if before else window[0] == microseconds(anchor)
