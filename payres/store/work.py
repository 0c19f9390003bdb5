"""What a unit of work gets: one open transaction, and what it may ask for besides."""

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

# In `Work.changed`: there are new events.
EVENTS: Final = "events"
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
    counts, and what tells the operator of a warning."""

    settings: Settings
    urls: Urls
    clock: Clock
    actor: str
    metrics: Metrics
    warn: Callable[[str], None] = _ignore

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
