"""SQL of events, as operators see them."""

from collections.abc import Iterable, Sequence

from payres.core.protocol.identifiers import sequence_of
from payres.core.store.events import CLOCK_STEP, OUTBOX, EventRecord, last_sequence
from payres.core.store.rows import first_row_from
from payres.core.store.work import Transaction


def find_event(tx: Transaction, text: str) -> EventRecord | None:
    event = OUTBOX.find(tx, "WHERE sequence = ?", sequence_of(text))
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
        found |= {one.sequence: one for one in OUTBOX.list(tx, where, first, last, subject, moment)}
    return [found[sequence] for sequence in sorted(found)]


def continue_after(tx: Transaction, sequence: int) -> None:
    """Uses no sequence up to this one for another event: programs have asked for what comes after it."""
    if sequence > last_sequence(tx):
        tx.execute("DELETE FROM sqlite_sequence WHERE name = 'event'")
        tx.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('event', ?)", (sequence,))
