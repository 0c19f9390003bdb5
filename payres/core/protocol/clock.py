"""Time: microseconds since the Unix epoch, UTC, inside the program; RFC 3339 outside it.

Clocks are passed in, so that tests move time instead of waiting for it.
"""

import re
import time
from collections.abc import Callable
from datetime import date
from functools import lru_cache
from typing import Protocol

MILLISECOND = 1_000
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

# A clock that is set back by so much ends nothing that was begun before.
CORRECTION = MINUTE

EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
EARLIEST = (date(1, 1, 1).toordinal() - EPOCH_ORDINAL) * DAY  # 0001-01-01T00:00:00Z
LATEST = (date(9999, 12, 31).toordinal() - EPOCH_ORDINAL + 1) * DAY - 1  # the last microsecond of the year 9999

# RFC 3339 section 5.6, date-time. [0-9] because \d also matches the digits of other scripts.
_DATE_TIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?"
    r"(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))"
)
_DAY_OR_MINUTE = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[ T]([0-9]{2}:[0-9]{2}))?")
# A time that `format_time` has made, in a sentence.
_SAID = re.compile(r"(?<![^\s(])[0-9]{4}(?:-[0-9]{2}){2}T[0-9]{2}:[0-9]{2}:[0-9.]+Z(?![^\s,:;)])")
# The parts of a time as text: a page shows forty times, and formatting takes four times as long.
_MINUTES = tuple(f"T{minute // 60:02}:{minute % 60:02}:" for minute in range(24 * 60))
_SECONDS = tuple(f"{second:02}" for second in range(60))
_MILLISECONDS = tuple(f".{millisecond:03}Z" for millisecond in range(1000))


class Clock(Protocol):
    """The time in microseconds since the Unix epoch, UTC."""

    def now(self) -> int:
        """The current time."""
        ...

    def outside(self) -> int:
        """The time of other programs' clocks, for creating and verifying signatures."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> int:
        return time.time_ns() // 1000

    def outside(self) -> int:
        return self.now()


def lasts(until: int, now: int, lifetime: int) -> bool:
    """Whether what ends at `until` has not ended. What would last longer than its lifetime was stored while the clock
    was ahead, and has ended: otherwise it would last until that time."""
    return now < until <= now + lifetime + CORRECTION


def is_due(at: int, now: int, longest: int) -> bool:
    """Whether what waits until `at` is due. What would wait longer than its longest pause was stored while the
    clock was ahead, and is due: otherwise it would wait until that time."""
    return not lasts(at, now, longest)


def format_time(us: int) -> str:
    """RFC 3339 in UTC with milliseconds and `Z`, rounded down to the millisecond.

    Raises ValueError outside the years 1 to 9999.
    """
    day, of_day = divmod(us, DAY)
    minute, of_minute = divmod(of_day, MINUTE)
    second, rest = divmod(of_minute, SECOND)
    return f"{_date(day)}{_MINUTES[minute]}{_SECONDS[second]}{_MILLISECONDS[rest // MILLISECOND]}"


def format_time_if_any(us: int | None) -> str | None:
    """The same for an optional time."""
    return None if us is None else format_time(us)


@lru_cache(maxsize=512)
def _date(day: int) -> str:
    if not EARLIEST <= day * DAY <= LATEST:
        raise ValueError(f"the day {day} since 1970 is outside the years 1 to 9999")
    return date.fromordinal(day + EPOCH_ORDINAL).isoformat()


def parse_time(text: str) -> int:
    """Microseconds UTC of an RFC 3339 date-time (section 5.6); digits beyond the microsecond are truncated.

    A leap second (section 5.7) counts as the first second of the next month, as in POSIX time. Raises ValueError with a
    sentence if the text is not a date-time, has no `Z` or offset, or is outside the years 1 to 9999 in UTC.
    """
    match = _DATE_TIME.fullmatch(text)
    if match is None:
        raise ValueError(
            "a time is written like 2026-01-31T09:30:00Z or 2026-01-31T11:30:00+02:00,"
            " always with Z or an offset from UTC (RFC 3339)"
        )
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    fraction, sign, offset_hour, offset_minute = match.groups()[6:]
    if hour > 23 or minute > 59 or second > 60:
        raise ValueError("the time of day must lie between 00:00:00 and 23:59:59")
    moment = _midnight(year, month, day) + hour * HOUR + minute * MINUTE + second * SECOND
    moment -= _offset(sign, offset_hour, offset_minute)
    if not EARLIEST <= moment <= LATEST:
        raise ValueError("the time must lie in the years 1 to 9999 UTC")
    if second == 60 and not _begins_a_month(moment):
        raise ValueError("second 60 is a leap second, and exists only at 23:59:60 UTC on the last day of a month")
    return moment + int((fraction or "")[:6].ljust(6, "0"))


def parse_day_or_time(text: str) -> int:
    """Microseconds UTC of a time, also as 2026-01-31 09:30, or of the start of a day such as 2026-01-31. Raises
    ValueError with a sentence."""
    found = _DAY_OR_MINUTE.fullmatch(text)
    try:
        return parse_time(f"{found[1]}T{found[2] or '00:00'}:00Z" if found else text)
    except ValueError as error:
        if text[10:11] == "T":
            raise
        raise ValueError(f"“{text}” is no day. Write it like 2026-11-24") from error


def _midnight(year: int, month: int, day: int) -> int:
    try:
        return (date(year, month, day).toordinal() - EPOCH_ORDINAL) * DAY
    except ValueError:
        raise ValueError(f"there is no day {year:04}-{month:02}-{day:02}") from None


def _offset(sign: str | None, hours: str, minutes: str) -> int:
    if sign is None:
        return 0
    if int(hours) > 23 or int(minutes) > 59:
        raise ValueError("the offset from UTC must lie between -23:59 and +23:59")
    size = int(hours) * HOUR + int(minutes) * MINUTE
    return size if sign == "+" else -size


def _begins_a_month(moment: int) -> bool:
    days, of_day = divmod(moment, DAY)
    return of_day == 0 and date.fromordinal(days + EPOCH_ORDINAL).day == 1


def times_in_words(text: str, shown: Callable[[str], str] = lambda said: f"{said[:10]} {said[11:16]} UTC") -> str:
    """A sentence whose times are `shown` to people, by default as `2026-01-31 09:30 UTC`."""
    return _SAID.sub(lambda match: shown(match[0]), text)
