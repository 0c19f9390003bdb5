"""Units of work over a connection of the test's own."""

from payres.clock import MovableClock
from payres.settings import Settings
from payres.store.work import Transaction, Work, world


def work_at(connection: Transaction, now: int, settings: Settings | None = None) -> Work:
    """The Work of a unit that runs at this moment."""
    return Work(connection, world(settings or Settings(), MovableClock(now, frozen=True)))
