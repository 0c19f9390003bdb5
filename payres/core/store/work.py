"""The context of a unit of work: an open transaction, time, ids and settings; failures of storage; and fail-stops.

A full or failing disk is no fail-stop: `payres.core.store.transactions` fails the affected units, and continues.
"""

import logging
import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec

from payres.core.process.logs import Metrics
from payres.core.process.settings import Settings
from payres.core.protocol import identifiers
from payres.core.protocol.clock import SECOND, Clock, SystemClock
from payres.core.protocol.event_types import EVENT_TYPES
from payres.core.protocol.urls import Urls
from payres.core.protocol.wire import encode

QUIET: Final = 10 * SECOND  # without a failure, after which they have ended: while they last, some work may succeed

log = logging.getLogger("payres.store")
T = TypeVar("T")
Values = Sequence[Any] | Mapping[str, Any]
BEYOND_REPAIR: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
MISSING: Final = re.compile(r"no such (table|column)\b|has no column named\b")  # SQLite has no error code for it
# In `Work.changed`: new events.
EVENTS: Final = "events"
INSERT_EVENT: Final = "INSERT INTO event (type, subject, data, created_at, wallet_address_id) VALUES (?, ?, ?, ?, ?)"
# The most rows that one unit changes. What changes more takes several units, and others run in between.
ROWS_AT_ONCE: Final = 256


class Failures:
    """The failures of `what`: reading, or writing."""

    def __init__(self, what: str, clock: Clock) -> None:
        self._what = what
        self._clock = clock
        self._known: set[str] = set()
        self._count = 0
        self._last_at = 0

    def note(self, sentence: str, error: BaseException) -> None:
        """Counts a failure, and logs it if it is another than those before."""
        self._count += 1
        self._last_at = self._clock.now()
        text = f"{sentence}: {error}"
        if text not in self._known:
            self._known.add(text)
            log.error("%s", text)

    def end(self) -> None:
        """Called after each success."""
        if self._known and not 0 <= self._clock.now() - self._last_at < QUIET:
            log.warning("%s works again; failures: %d", self._what, self._count)
            self._known.clear()
            self._count = 0


class Transaction(Protocol):
    """Runs SQL in the open transaction."""

    def execute(self, sql: str, values: Values = ..., /) -> sqlite3.Cursor:
        """Runs one statement."""
        ...

    def executemany(self, sql: str, rows: Iterable[Values], /) -> sqlite3.Cursor:
        """Runs one statement for each row."""
        ...


def _ignore(sentence: str) -> None:
    """Servers show warnings to nobody."""


class Environment(msgspec.Struct, frozen=True):
    """The dependencies of the application and its units of work: settings, URLs, clock, actor, metrics, a function that
    shows warnings to the operator, the failures of storage, and whether the data is a test's: a power loss may then
    undo commits. By `emit_ungranted` a part writes the events of a payment without a grant, of which it knows more."""

    settings: Settings
    urls: Urls
    clock: Clock
    actor: str
    metrics: Metrics
    reading: Failures
    writing: Failures
    warn: Callable[[str], None] = _ignore
    is_disposable: bool = False
    emit_ungranted: Callable[..., None] | None = None  # an EmitPayment of the settlement, which stands above

    @classmethod
    def of(
        cls,
        settings: Settings,
        clock: Clock | None = None,
        actor: str = "server",
        warn: Callable[[str], None] = _ignore,
    ) -> "Environment":
        """The environment for these settings, with the system clock unless another is given."""
        clock = clock or SystemClock()
        reading, writing = (Failures(what, clock) for what in ("reading", "writing"))
        return cls(settings, Urls(settings.base_url), clock, actor, Metrics(), reading, writing, warn)


class Work:
    """An open transaction, with the time, new ids, URLs and settings for a unit of work.

    It is created when the unit runs, so `now` (microseconds UTC) is the one time for all its decisions. `actor` is the
    name for the audit log, which has `recorded` rows of this unit, and `in_session` the SHA-256 of the session in which
    the actor does it, if that is a person in a browser. `changed` collects the keys that `events.Changes`
    wakes after the commit.
    """

    __slots__ = (
        *("actor", "changed", "environment", "execute", "executemany", "now", "recorded", "in_session", "settings"),
        "urls",
    )

    execute: Callable[..., sqlite3.Cursor]
    executemany: Callable[..., sqlite3.Cursor]
    new_id = staticmethod(identifiers.new_id)
    new_secret = staticmethod(identifiers.new_secret)

    def __init__(self, connection: Transaction, environment: Environment, changed: list[str] | None = None) -> None:
        # The connection's own methods, because every statement of every unit goes through them.
        self.execute = connection.execute
        self.executemany = connection.executemany
        self.environment = environment
        self.actor = environment.actor
        self.now = environment.clock.now()
        self.urls = environment.urls
        self.settings = environment.settings
        self.changed = [] if changed is None else changed
        self.recorded = 0
        self.in_session: bytes | None = None

    def emit(
        self, kinds: str | Sequence[str], subject: str | None, data: msgspec.Struct, wallet_id: int | None = None
    ) -> None:
        """Writes an event, or several with the same data, to the outbox, in the current transaction.

        Each kind is one of EVENT_TYPES; `subject` is the id of the object, `wallet_id` that of the wallet concerned:
        webhooks get the events of wallets in turn.
        """
        kinds = (kinds,) if isinstance(kinds, str) else kinds
        assert EVENT_TYPES.keys() >= set(kinds), kinds
        shown = encode(data)
        self.executemany(INSERT_EVENT, [(kind, subject, shown, self.now, wallet_id) for kind in kinds])
        self.changed += (EVENTS, *kinds)
        if subject is not None:
            self.changed.append(subject)


class Units(Protocol):
    """Runs the units of work of an operation that takes several, each in a transaction of its own.

    A unit that may take long only reads, and delays nobody. After a crash between two units that write, repeating the
    operation does the rest.
    """

    async def read(self, unit: Callable[[Work], T]) -> T: ...
    async def write(self, unit: Callable[[Work], T]) -> T: ...


class FailStop(Exception):
    """Raised by a unit when stored data is inconsistent: all writing stops until an operator has looked.

    The text is for the operator's log; callers see `reason`.
    """

    reason = "what it has stored cannot be right"

    @property
    def message(self) -> str:
        """The text for callers."""
        return f"The server takes no more work: {self.reason}, and an operator must look"


class Damaged(FailStop):
    """The database file is unreadable, or lacks a table, a column, or a referenced row."""

    reason = "its database is damaged"


class FileGone(FailStop):
    """The path no longer names the open database: further writes would be lost with the process."""

    reason = "its database has been moved, removed or replaced"


def damage(error: BaseException) -> Damaged | None:
    """The fail-stop for an SQLite error; None for those that may pass: a full or failing disk, a lock."""
    if not isinstance(error, sqlite3.DatabaseError):
        return None
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF  # without the extended code
    if code in BEYOND_REPAIR or (code == sqlite3.SQLITE_ERROR and MISSING.search(str(error))):
        return Damaged(f"the database is unusable: {error}")
    return None
