"""Halts: what is found in storage that no further try can mend, so that nothing more may be written."""

import re
import sqlite3
from typing import Final

BEYOND_REPAIR: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
MISSING: Final = re.compile(r"no such (table|column)\b|has no column named\b")  # SQLite has no code of its own for it


class Halt(Exception):
    """What a unit raises when what is stored cannot be right: nothing more may be written until someone has looked.

    The text is for the operator's log; `told` is what callers may know.
    """

    told = "what it has stored cannot be right"

    @property
    def refusal(self) -> str:
        """What callers are told."""
        return f"The server takes no more work: {self.told}, and an operator must look"


class Damaged(Halt):
    """The database file cannot be read any more, or lacks a table or a column."""

    told = "its database is damaged"


class RowMissing(Halt):
    """A row that others refer to does not exist."""

    told = "its database is damaged"


class FileGone(Halt):
    """The path does not name the database that is open: whatever is written would be lost with the process."""

    told = "its database has been moved, removed or replaced"


def damage(error: BaseException) -> Damaged | None:
    """The halt that an error of SQLite asks for; None for one that may pass: a full or failing disk, a lock."""
    if not isinstance(error, sqlite3.DatabaseError):
        return None
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF  # the rest of it says where
    if code in BEYOND_REPAIR or (code == sqlite3.SQLITE_ERROR and MISSING.search(str(error))):
        return Damaged(f"the database cannot be used as it is: {error}")
    return None
