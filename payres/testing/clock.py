"""Clocks that tests move."""

from typing import Final

from payres.client.methods import checked
from payres.core.protocol.clock import SECOND, SystemClock
from payres.core.protocol.errors import InvalidRequest, WrongState

MOST_SECONDS: Final = 100 * 365 * 86_400


class MovableClock:
    """A clock that can be moved: it runs along with the system clock, or stands still if `frozen`.

    `start` is its first reading (microseconds UTC), by default the system clock's.
    """

    def __init__(self, start: int | None = None, *, frozen: bool = False) -> None:
        self._system = SystemClock()
        self._frozen = frozen
        origin = self._system.now()
        first = origin if start is None else start
        # If frozen, the offset is the whole reading; otherwise, the difference to the system clock.
        self._offset = first if frozen else first - origin

    def now(self) -> int:
        return self._offset if self._frozen else self._system.now() + self._offset

    def outside(self) -> int:
        return self.now()  # the other programs are the test itself

    @property
    def frozen(self) -> bool:
        return self._frozen

    def freeze(self, frozen: bool) -> None:
        """Freezes the clock, or lets it run on from its reading."""
        now = self.now()
        self._frozen, self._offset = frozen, now if frozen else now - self._system.now()

    def advance(self, seconds: float) -> None:
        """Moves the clock forward, or back if `seconds` is negative, to the nearest microsecond."""
        self._offset += round(seconds * SECOND)

    def reset(self) -> None:
        """Sets the clock to the system clock, running."""
        self._offset, self._frozen = 0, False


class SandboxClock(MovableClock):
    """A movable clock; the app under test signs by its machine's clock, which `outside` returns, as does the app of a
    test that does not use the test's own client."""

    def outside(self) -> int:
        return SystemClock().now()

    @checked
    def advance(self, seconds: float) -> None:
        """Moves the clock forward. Raises InvalidRequest, and WrongState if `seconds` is negative."""
        if seconds < 0:
            raise WrongState("The clock goes forward; only a reset moves it back")
        if not seconds + (self.now() - self.outside()) / SECOND <= MOST_SECONDS:
            raise InvalidRequest("The clock is at most a hundred years ahead of the machine's", field="advance")
        super().advance(seconds)
