"""SQL of the outbox, which `Work.emit` writes: reading it in order."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from payres.clock import SECOND
from payres.identifiers import event_id, sequence_of
from payres.store.rows import Table, first_row_from, number
from payres.store.work import Transaction

# Microseconds that the clock may be set back between events that are still found by their times.
CLOCK_STEP: Final = SECOND


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


def events_of(tx: Transaction, subject: str, moments: Iterable[int]) -> Sequence[EventRecord]:
    """The events about a subject that were written at these times (microseconds), in their order.

    No index leads from a subject to its events, for which every payment would pay. But sequences rise with the times;
    where the clock was set back by more than CLOCK_STEP meanwhile, some events are missed.
    """
    found: dict[int, EventRecord] = {}
    for moment in moments:
        first, last = (first_row_from(tx, "event", "sequence", moment + step) for step in (-CLOCK_STEP, CLOCK_STEP))
        where = "WHERE sequence >= ? AND sequence < ? AND subject = ? AND created_at = ?"
        found |= {one.sequence: one for one in EVENTS.list(tx, where, first, last, subject, moment)}
    return [found[sequence] for sequence in sorted(found)]


def last_sequence(tx: Transaction) -> int:
    """That of the latest event; 0 when there never was one."""
    return number(tx, "SELECT seq FROM sqlite_sequence WHERE name = 'event'")
