"""Repeating intervals of grant limits (ISO 8601, `R11/2026-01-01T00:00:00Z/P1M`) and their time windows.

Every boundary is computed from the anchor, never from its neighbour: a monthly interval from 31 January has boundaries
on 28 February and again on 31 March. Everything is UTC, and takes constant time for any `now`.
"""

import re
from calendar import monthrange
from datetime import date
from fractions import Fraction

import msgspec

from payres.core.protocol.clock import DAY, EARLIEST, EPOCH_ORDINAL, HOUR, LATEST, MINUTE, SECOND, parse_time
from payres.core.protocol.limits import MAX_INTERVAL_LENGTH

EXAMPLE = "R11/2026-01-01T00:00:00Z/P1M, which is every month, 12 times, from 1 January 2026"

# The Gregorian calendar repeats after 400 years.
CYCLE_MONTHS = 400 * 12
CYCLE_DAYS = 146_097
MEAN_MONTH = CYCLE_DAYS * DAY // CYCLE_MONTHS

_NUMBER = r"([0-9]{1,9}(?:[.,][0-9]{1,9})?)"
_REPETITIONS = re.compile(r"R(?:-1|([0-9]{1,9}))?")
_DURATION = re.compile(
    rf"P(?:{_NUMBER}Y)?(?:{_NUMBER}M)?(?:{_NUMBER}W)?(?:{_NUMBER}D)?"
    rf"(?:T(?=[0-9])(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?"
)
_WITHOUT_SECONDS = re.compile(r"([Tt][0-9]{2}:[0-9]{2})(?=[Zz+-])")
_FIXED_UNITS = (7 * DAY, DAY, HOUR, MINUTE, SECOND)


class Interval(msgspec.Struct, frozen=True):
    """Consecutive windows without gaps; window k lasts from boundary k until just before boundary k+1.

    Boundary k is k times `months` and `microseconds` after `anchor`, or before it if k is negative. Windows `first` to
    `last` exist; None means no first or no last one.
    """

    anchor: int
    months: int
    microseconds: int
    first: int | None
    last: int | None

    @property
    def windows_total(self) -> int | None:
        """The number of windows; None if endless."""
        return None if self.first is None or self.last is None else self.last - self.first + 1

    @property
    def mean_length(self) -> int:
        """The length of a window in microseconds; the mean if it has months."""
        return self.months * MEAN_MONTH + self.microseconds

    @property
    def start(self) -> int | None:
        """Microseconds UTC; None if there is no first window (`R/P1M/2026-01-01T00:00:00Z`)."""
        return None if self.first is None else self.boundary(self.first)

    @property
    def end(self) -> int | None:
        """Microseconds UTC; None if there is no last window."""
        return None if self.last is None else self.boundary(self.last + 1)

    def window_at(self, now: int) -> int | None:
        """The index of the window that contains `now`, or None outside the first and last ones."""
        index = (now - self.anchor) // self.mean_length
        # Calendar months differ from their mean by less than a week and have at least 28 days, so the estimate is off
        # by at most one window: the two loops take at most one step together.
        while self.boundary(index) > now:
            index -= 1
        while self.boundary(index + 1) <= now:
            index += 1
        if (self.first is not None and index < self.first) or (self.last is not None and index > self.last):
            return None
        return index

    def boundary(self, index: int) -> int:
        """The start of window `index` and end of the one before, whether or not they exist."""
        return _add_months(self.anchor, index * self.months) + index * self.microseconds


def parse_interval(text: str) -> Interval:
    """Parses `R[n]/start/duration`, `R[n]/duration/end` or `R[n]/start/end` (ISO 8601).

    `Rn` means n repetitions after the first, so n+1 windows; `R` and `R-1` repeat forever. Start and end are RFC 3339
    date-times, with optional seconds. Raises ValueError with a sentence for the client.
    """
    if len(text) > MAX_INTERVAL_LENGTH:
        raise _invalid(f"may have at most {MAX_INTERVAL_LENGTH} characters")
    parts = text.split("/")
    if len(parts) != 3:
        raise _invalid("needs three parts with a slash between them: repetitions, start, duration")
    match = _REPETITIONS.fullmatch(parts[0])
    if match is None:
        raise _invalid(f"must begin with R, or R and a number of up to nine digits, not with {parts[0]!a}")
    interval = _lay_out(None if match[1] is None else int(match[1]), parts[1], parts[2])
    # Without a first or last window, the one at the anchor is checked instead.
    earliest = interval.boundary(-1 if interval.first is None else interval.first)
    latest = interval.boundary(1 if interval.last is None else interval.last + 1)
    if earliest < EARLIEST or latest > LATEST:  # RFC 3339 ends with the year 9999
        raise _invalid(
            "reaches beyond the years 1 to 9999; write fewer repetitions or a shorter duration, or R to repeat for ever"
        )
    return interval


def _invalid(problem: str) -> ValueError:
    return ValueError(f"The interval {problem}. For example: {EXAMPLE}.")


def _lay_out(repetitions: int | None, left: str, right: str) -> Interval:
    """`repetitions` follow the first window; None for an endless interval."""
    if _is_duration(left) and _is_duration(right):
        raise _invalid("has two durations: one of them must be a start or an end")
    if _is_duration(left):
        # The last window ends at the given end; the others precede it.
        earliest = None if repetitions is None else -1 - repetitions
        return Interval(_parse_instant(right), *_parse_duration(left), first=earliest, last=-1)
    start = _parse_instant(left)
    if _is_duration(right):
        return Interval(start, *_parse_duration(right), first=0, last=repetitions)
    length = _parse_instant(right) - start
    if length <= 0:
        raise _invalid("must end after it starts")
    return Interval(start, 0, length, first=0, last=repetitions)


def _is_duration(text: str) -> bool:
    return text.lstrip("+-")[:1] in ("P", "p")


def _parse_instant(text: str) -> int:
    try:
        return parse_time(_WITHOUT_SECONDS.sub(r"\1:00", text))
    except ValueError as error:
        raise _invalid(f"has the start or end {text!a}, but {error}") from None


def _parse_duration(text: str) -> tuple[int, int]:
    """A duration as calendar months and microseconds, truncated."""
    if "-" in text:
        raise _invalid(f"has the negative duration {text!a}")
    match = _DURATION.fullmatch(text)
    given = [number for number in match.groups() if number] if match else []
    if match is None or not given:
        raise _invalid(f"has a duration that cannot be read, {text!a}; write one like P1M, P2W or P1DT12H")
    if any(not number.isdigit() for number in given[:-1]):
        raise _invalid(f"has the duration {text!a}, in which only the last number may have decimals")
    years, months, *fixed = (Fraction((number or "0").replace(",", ".")) for number in match.groups())
    if years.denominator != 1 or months.denominator != 1:
        raise _invalid(f"has the duration {text!a}, but years and months vary in length and can only be whole")
    microseconds = int(sum(number * unit for number, unit in zip(fixed, _FIXED_UNITS, strict=True)))
    if not years and not months and not microseconds:
        raise _invalid(f"has the duration {text!a}, which is no time at all")
    return int(years * 12 + months), microseconds


def _add_months(moment: int, months: int) -> int:
    """The same day and time of day `months` later, or the last day of a shorter month.

    Counts in cycles of 400 years, so that any number of months stays in the range of `date`.
    """
    if months == 0:
        return moment
    days, time_of_day = divmod(moment, DAY)
    origin = date.fromordinal(days + EPOCH_ORDINAL)
    cycles, month_of_cycle = divmod(origin.year * 12 + origin.month - 1 + months, CYCLE_MONTHS)
    year, month = 400 + month_of_cycle // 12, month_of_cycle % 12 + 1
    target = date(year, month, min(origin.day, monthrange(year, month)[1]))
    return (target.toordinal() + (cycles - 1) * CYCLE_DAYS - EPOCH_ORDINAL) * DAY + time_of_day
