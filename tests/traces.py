"""What SQLite runs for a unit of work."""

import sqlite3
from collections.abc import Callable
from typing import Any, cast

from payres.store.work import Work


def trace(work: Work, report: Callable[[str], Any] | None) -> None:
    """Reports each statement on the unit's connection from now on; None ends that."""
    connection: sqlite3.Connection = cast("Any", work.execute).__self__
    connection.set_trace_callback(report)
