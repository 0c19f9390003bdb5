import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.core.protocol.clock import (
    CORRECTION,
    EARLIEST,
    HOUR,
    LATEST,
    SECOND,
    format_time,
    is_due,
    lasts,
    parse_time,
)
from payres.core.store.rows import lasting

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds(at: datetime) -> int:
    return (at - EPOCH) // timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (999, "1970-01-01T00:00:00.000Z"),
        (1_000, "1970-01-01T00:00:00.001Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (1_767_225_599_999_999, "2025-12-31T23:59:59.999Z"),
        (EARLIEST, "0001-01-01T00:00:00.000Z"),
        (LATEST, "9999-12-31T23:59:59.999Z"),
    ],
)
def test_format_time_rounds_down_to_milliseconds(us: int, text: str) -> None:
    assert format_time(us) == text


@pytest.mark.parametrize("us", [EARLIEST - 1, LATEST + 1, 10**30, -(10**30)])
def test_format_time_refuses_years_that_cannot_be_written(us: int) -> None:
    with pytest.raises(ValueError, match="years 1 to 9999"):
        format_time(us)


@given(st.datetimes(timezones=st.just(UTC)))
def test_format_time_agrees_with_datetime(at: datetime) -> None:
    expected = at.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
    assert format_time(microseconds(at)) == expected
    assert parse_time(expected) == microseconds(at) // 1000 * 1000


@given(
    st.datetimes(datetime.fromisoformat("0002-01-01"), datetime.fromisoformat("9998-12-31")),
    st.integers(min_value=-1439, max_value=1439),
)
def test_parse_time_agrees_with_datetime_in_every_offset(naive: datetime, offset: int) -> None:
    at = naive.replace(tzinfo=timezone(timedelta(minutes=offset)))
    assert parse_time(at.isoformat()) == microseconds(at)


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:01z", SECOND),
        ("1970-01-01T02:00:00+02:00", 0),
        ("1969-12-31T19:30:00-04:30", 0),
        ("1970-01-01T00:00:00-00:00", 0),
        ("1970-01-01T00:00:00.5Z", 500_000),
        ("1970-01-01T00:00:00.000001Z", 1),
        ("1970-01-01T00:00:00.0000019Z", 1),
        ("1970-01-01T00:00:00." + "9" * 5000 + "Z", 999_999),
        ("2024-02-29T00:00:00Z", 1_709_164_800_000_000),
        # RFC 3339 section 5.8
        ("1985-04-12T23:20:50.52Z", 482_196_050_520_000),
        ("1990-12-31T23:59:60Z", 662_688_000_000_000),
        ("1990-12-31T15:59:60-08:00", 662_688_000_000_000),
        ("1937-01-01T12:00:27.87+00:20", -1_041_337_172_130_000),
        ("9999-12-31T23:59:59.9999999Z", LATEST),
        ("0001-01-01T00:00:00Z", EARLIEST),
    ],
)
def test_parse_time_reads_rfc3339(text: str, us: int) -> None:
    assert parse_time(text) == us


NO_TIMES = {
    "written like": (
        *("", "2026-01-01", "2026-01-01 00:00:00Z", "2026-01-01T00:00Z", "2026-01-01T00:00:00.Z"),
        *("2026-01-01T00:00:00,5Z", "2026-01-01T00:00:00+0200", "2026-01-01T00:00:00Z\n", "+2026-01-01T00:00:00Z"),
        "\u0662\u0660\u0662\u0666-01-01T00:00:00Z",
    ),
    "always with Z or an offset": ("2026-01-01T00:00:00",),
    "no day 2026-02-29": ("2026-02-29T00:00:00Z",),
    "no day 2026-13-01": ("2026-13-01T00:00:00Z",),
    "no day 0000-01-01": ("0000-01-01T00:00:00Z",),
    "time of day": ("2026-01-01T24:00:00Z", "2026-01-01T00:60:00Z", "2026-01-01T00:00:61Z"),
    "leap second": ("2026-01-01T00:00:60Z", "2026-01-01T23:59:60Z", "2026-01-31T23:59:60+01:00"),
    "offset": ("2026-01-01T00:00:00+24:00", "2026-01-01T00:00:00-01:60"),
    "years 1 to 9999": ("0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01", "9999-12-31T23:59:60Z"),
}


@pytest.mark.parametrize(
    ("text", "sentence"), [(text, sentence) for sentence, texts in NO_TIMES.items() for text in texts]
)
def test_parse_time_refuses_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parse_time(text)


@given(st.one_of(st.text(max_size=40), st.text(alphabet="0123456789-:.TZtz+", max_size=40)))
def test_parse_time_raises_nothing_but_value_error(text: str) -> None:
    try:
        us = parse_time(text)
    except ValueError:
        return
    assert EARLIEST <= us <= LATEST


@pytest.mark.parametrize(
    ("now", "is_over"),
    [
        (0, False),
        (-CORRECTION, False),
        (-CORRECTION - 1, True),  # the clock was ahead when it began
        (HOUR - 1, False),
        (HOUR, True),
    ],
)
def test_what_would_last_longer_than_its_lifetime_has_ended(now: int, is_over: bool) -> None:
    assert lasts(HOUR, now, HOUR) is not is_over
    assert is_due(HOUR, now, HOUR) is is_over
    condition, times = lasting("at", now, HOUR)
    with closing(sqlite3.connect(":memory:")) as connection:
        row = connection.execute(f"SELECT {condition} FROM (SELECT {HOUR} at)", times).fetchone()
    assert row == (not is_over,)
