"""Fail-stop: what is found in storage that no retry can fix, so that nothing more may be written.

A full or failing disk is none: `payres.store.transactions._committed` answers those whose commit failed, and goes on.
"""

import re
import sqlite3
from typing import Final

BEYOND_REPAIR: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
MISSING: Final = re.compile(r"no such (table|column)\b|has no column named\b")  # SQLite has no code of its own for it


class FailStop(Exception):
    """What a unit raises when what is stored cannot be right: nothing more may be written until someone has looked.

    The text is for the operator's log; `reason` is what callers may know.
    """

    reason = "what it has stored cannot be right"

    @property
    def message(self) -> str:
        """What callers get to read."""
        return f"The server takes no more work: {self.reason}, and an operator must look"


class Damaged(FailStop):
    """The database file cannot be read any more, or lacks a table, a column, or a row that others refer to."""

    reason = "its database is damaged"


class FileGone(FailStop):
    """The path does not name the database that is open: what is written would be lost with the process."""

    reason = "its database has been moved, removed or replaced"


def damage(error: BaseException) -> Damaged | None:
    """The fail-stop that an error of SQLite asks for; None for one that may pass: a full or failing disk, a lock."""
    if not isinstance(error, sqlite3.DatabaseError):
        return None
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF  # the rest of it says where
    if code in BEYOND_REPAIR or (code == sqlite3.SQLITE_ERROR and MISSING.search(str(error))):
        return Damaged(f"the database cannot be used as it is: {error}")
    return None
