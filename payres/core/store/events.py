"""SQL of the outbox, which `Work.emit` writes."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from payres.core.protocol.clock import DAY, SECOND
from payres.core.protocol.identifiers import event_id, sequence_of
from payres.core.store.rows import Table, first_row_from, number
from payres.core.store.work import Transaction

# Tolerated clock steps backwards, in microseconds, when events are searched by their times.
CLOCK_STEP: Final = SECOND
KEPT: Final = 30 * DAY  # or longer, until it is delivered


class EventRecord(msgspec.Struct, frozen=True):
    """A row of `event`. data is a JSON text."""

    sequence: int
    type: str
    subject: str | None
    data: bytes
    created_at: int
    wallet_address_id: int | None = None

    @property
    def id(self) -> str:
        return event_id(self.created_at, self.sequence)


EVENTS = Table(EventRecord, "event")


def events_after(tx: Transaction, sequence: int, limit: int) -> Sequence[EventRecord]:
    """The next events after a sequence, in order."""
    return EVENTS.list(tx, "WHERE sequence > ? ORDER BY sequence LIMIT ?", sequence, limit)


def find_event(tx: Transaction, text: str) -> EventRecord | None:
    event = EVENTS.find(tx, "WHERE sequence = ?", sequence_of(text))
    return event if event is not None and event.id == text else None


def events_of(tx: Transaction, subject: str, moments: Iterable[int]) -> Sequence[EventRecord]:
    """The events about a subject that were written at these times (microseconds), in order.

    There is no index by subject: every payment would pay for it. Sequences rise with time, so events are searched by
    time; after a clock step backwards of more than CLOCK_STEP, some are missed.
    """
    found: dict[int, EventRecord] = {}
    for moment in moments:
        first, last = (first_row_from(tx, "event", "sequence", moment + step) for step in (-CLOCK_STEP, CLOCK_STEP))
        where = "WHERE sequence >= ? AND sequence < ? AND subject = ? AND created_at = ?"
        found |= {one.sequence: one for one in EVENTS.list(tx, where, first, last, subject, moment)}
    return [found[sequence] for sequence in sorted(found)]


def last_sequence(tx: Transaction) -> int:
    """The sequence of the latest event ever written; 0 if none."""
    return number(tx, "SELECT seq FROM sqlite_sequence WHERE name = 'event'")


def has_old_events(tx: Transaction, now: int) -> bool:
    """Whether an event is old enough to be purged."""
    oldest = tx.execute("SELECT created_at FROM event ORDER BY sequence LIMIT 1").fetchone()
    return oldest is not None and oldest[0] < now - KEPT
