"""Days, weeks and calendar months of standing orders and limits, by a model of its own."""

from calendar import monthrange
from datetime import UTC, datetime
from typing import Final, NamedTuple

from payres.core.protocol.clock import DAY, HOUR, SECOND


class Period(NamedTuple):
    """So many calendar months, or so many microseconds."""

    months: int
    microseconds: int

    def begin(self, first: int, number: int) -> int:
        """When the window with this number begins, if the window 0 begins at `first`: months later on the same day, or
        on the last day of a shorter month; in microseconds UTC."""
        at = datetime.fromtimestamp(first // SECOND, UTC)
        year, month = divmod(at.year * 12 + at.month - 1 + number * self.months, 12)
        day = min(at.day, monthrange(year, month + 1)[1])
        return int(at.replace(year, month + 1, day).timestamp()) * SECOND + number * self.microseconds

    def number(self, first: int, moment: int) -> int:
        """The number of the window that has this moment; less than 0 before the first."""
        found = (moment - first) // (self.microseconds or 31 * DAY)
        while self.months and self.begin(first, found + 1) <= moment:
            found += 1
        return found


PERIODS: Final = {
    "PT15S": Period(0, 15 * SECOND),
    "PT20S": Period(0, 20 * SECOND),
    "PT1H": Period(0, HOUR),
    "P1D": Period(0, DAY),
    "P1W": Period(0, 7 * DAY),
    "P1M": Period(1, 0),
}
