"""What a unit of work gets: one open transaction, and what it may ask for besides; and fail-stops.

A full or failing disk is no fail-stop: `payres.store.transactions` answers the units whose commit failed, and goes on.
"""

import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from payres import identifiers
from payres.clock import Clock, SystemClock
from payres.counters import Metrics
from payres.event_types import EVENT_TYPES
from payres.settings import Settings
from payres.urls import Urls
from payres.wire import encode

Values = Sequence[Any] | Mapping[str, Any]

BEYOND_REPAIR: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
MISSING: Final = re.compile(r"no such (table|column)\b|has no column named\b")  # SQLite has no code of its own for it
# In `Work.changed`: there are new events.
EVENTS: Final = "events"
# A webhook has become active.
ACTIVE_WEBHOOK: Final = "active webhook"
INSERT_EVENT: Final = "INSERT INTO event (type, subject, data, created_at) VALUES (?, ?, ?, ?)"


class Transaction(Protocol):
    """Runs SQL inside the open transaction: all that a module of SQL needs."""

    def execute(self, sql: str, values: Values = ..., /) -> sqlite3.Cursor:
        """Runs one statement."""
        ...

    def executemany(self, sql: str, rows: Iterable[Values], /) -> sqlite3.Cursor:
        """Runs one statement for each row."""
        ...


def _ignore(sentence: str) -> None:
    """A server has nobody to warn."""


class Environment(msgspec.Struct, frozen=True):
    """What is handed in to the application and reaches every unit of work: settings, time, URLs, the actor, what
    counts, what tells the operator of a warning, and whether a commit must survive a loss of power."""

    settings: Settings
    urls: Urls
    clock: Clock
    actor: str
    metrics: Metrics
    warn: Callable[[str], None] = _ignore
    is_durable: bool = True

    @classmethod
    def of(
        cls,
        settings: Settings,
        clock: Clock | None = None,
        actor: str = "server",
        warn: Callable[[str], None] = _ignore,
    ) -> "Environment":
        """That of these settings; time is the machine's unless another clock is handed in."""
        return cls(settings, Urls(settings.base_url), clock or SystemClock(), actor, Metrics(), warn)


class Work:
    """One open transaction, which runs statements, and what a rule may ask for: the time, new ids, URLs, settings.

    It is made when the unit runs, so `now` (microseconds UTC) is the one time of all that the unit decides. `actor` is
    who acts, as the audit log names it. `warn` tells the user of a command what they may not have meant. `changed` gets
    the keys that `events.changes` wakes once the unit is committed.
    """

    __slots__ = ("actor", "changed", "execute", "executemany", "now", "settings", "urls", "warn")

    execute: Callable[..., sqlite3.Cursor]
    executemany: Callable[..., sqlite3.Cursor]
    new_id = staticmethod(identifiers.new_id)
    new_secret = staticmethod(identifiers.new_secret)

    def __init__(self, connection: Transaction, environment: Environment, changed: list[str] | None = None) -> None:
        # The connection's own methods, because every statement of every unit goes through them.
        self.execute = connection.execute
        self.executemany = connection.executemany
        self.actor = environment.actor
        self.now = environment.clock.now()
        self.urls = environment.urls
        self.settings = environment.settings
        self.warn = environment.warn
        self.changed = [] if changed is None else changed

    def emit(self, kinds: str | Sequence[str], subject: str | None, data: msgspec.Struct) -> None:
        """Writes an event, or several with the same data, into the outbox, in the transaction of the change.

        Each kind is one of EVENT_TYPES, `subject` the id of what it is about.
        """
        kinds = (kinds,) if isinstance(kinds, str) else kinds
        assert EVENT_TYPES.keys() >= set(kinds), kinds
        shown = encode(data)
        self.executemany(INSERT_EVENT, [(kind, subject, shown, self.now) for kind in kinds])
        self.changed += (EVENTS, *kinds)
        if subject is not None:
            self.changed.append(subject)


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
