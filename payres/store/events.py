"""SQL of the outbox, which `Work.emit` writes: reading it in order, and purging it."""

from collections.abc import Sequence
from typing import Final

import msgspec

from payres.clock import DAY
from payres.identifiers import event_id, sequence_of
from payres.store.rows import Table
from payres.store.work import Transaction

# Microseconds that an event stays, unless it is still to be sent.
EVENT_RETENTION: Final = 30 * DAY
# Events that one unit purges.
EVENTS_PER_PURGE: Final = 256


class EventRecord(msgspec.Struct, frozen=True):
    """A row of `event`. data is a JSON text."""

    sequence: int
    type: str
    subject: str | None
    data: bytes
    created_at: int

    @property
    def id(self) -> str:
        return event_id(self.created_at, self.sequence)


EVENTS = Table(EventRecord, "event")


def events_after(tx: Transaction, sequence: int, limit: int) -> Sequence[EventRecord]:
    """The events that follow, in their order."""
    return EVENTS.list(tx, "WHERE sequence > ? ORDER BY sequence LIMIT ?", sequence, limit)


def find_event(tx: Transaction, text: str) -> EventRecord | None:
    event = EVENTS.find(tx, "WHERE sequence = ?", sequence_of(text))
    return event if event is not None and event.id == text else None


def event_at(tx: Transaction, sequence: int) -> EventRecord:
    """Raises RowMissing."""
    return EVENTS.by_id(tx, sequence)


def last_sequence(tx: Transaction) -> int:
    """That of the latest event; 0 when there never was one."""
    row = tx.execute("SELECT seq FROM sqlite_sequence WHERE name = 'event'").fetchone()
    return row[0] if row else 0
