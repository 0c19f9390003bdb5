"""SQL of the outbox, which `Work.emit` writes; of webhooks; and of deliveries: events that a webhook did not accept at
the first attempt, or that are sent again.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from payres.clock import SECOND
from payres.identifiers import event_id, sequence_of
from payres.store import secrets
from payres.store.rows import Table, first_row_from, number
from payres.store.work import Transaction

# Tolerated clock steps backwards, in microseconds, when events are searched by their times.
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


WEBHOOK_SECRETS: Final = "webhook_secrets"  # the name of the secret that encrypts webhook secrets


class WebhookRecord(msgspec.Struct, frozen=True):
    """A row of `webhook`. events are comma-separated patterns; secrets are encrypted; cursor is a sequence."""

    id: str
    url: str
    events: str
    is_private: int
    state: str
    secret: bytes
    previous_secret: bytes | None
    previous_until: int | None
    cursor: int
    created_at: int
    last_attempt_at: int | None = None
    last_status: int | None = None
    last_error: str | None = None

    @property
    def active(self) -> bool:
        return self.state == "active"


class DeliveryRecord(msgspec.Struct, frozen=True):
    """A row of `delivery`. attempts counts since it became pending; next_at is None unless it is pending."""

    sequence: int
    webhook_id: str
    state: str
    attempts: int
    next_at: int | None
    last_attempt_at: int | None
    last_status: int | None
    last_error: str | None


WEBHOOKS = Table(WebhookRecord, "webhook")
DELIVERIES = Table(DeliveryRecord, "delivery")


def list_webhooks(tx: Transaction) -> Sequence[WebhookRecord]:
    """All webhooks, oldest first."""
    return WEBHOOKS.list(tx, "ORDER BY id")


def delete_webhook(tx: Transaction, webhook_id: str, rows: int) -> bool:
    """Deletes up to `rows` of the webhook's deliveries, and the webhook if none are left. Whether it is deleted."""
    found = tx.execute("SELECT sequence FROM delivery WHERE webhook_id = ? LIMIT ?", (webhook_id, rows + 1)).fetchall()
    gone = [(sequence, webhook_id) for (sequence,) in found[:rows]]
    tx.executemany("DELETE FROM delivery WHERE sequence = ? AND webhook_id = ?", gone)
    if len(found) <= rows:
        tx.execute("DELETE FROM webhook WHERE id = ?", (webhook_id,))
    return len(found) <= rows


def signing_secrets(tx: Transaction, webhook: WebhookRecord, now: int) -> Sequence[str]:
    """The secrets to sign with, newest first."""
    found = [webhook.secret]
    if webhook.previous_secret is not None and webhook.previous_until is not None and now < webhook.previous_until:
        found.append(webhook.previous_secret)
    return [secrets.decrypt(tx, WEBHOOK_SECRETS, one) for one in found]


def due_deliveries(
    tx: Transaction, webhook_id: str, now: int, limit: int
) -> Sequence[tuple[DeliveryRecord, EventRecord]]:
    """Deliveries that are due, longest due first, with their events."""
    due = "WHERE webhook_id = ? AND next_at <= ? ORDER BY next_at LIMIT ?"
    return [
        (delivery, EVENTS.by_id(tx, delivery.sequence)) for delivery in DELIVERIES.list(tx, due, webhook_id, now, limit)
    ]


def deliveries_of(tx: Transaction, webhook_id: str, state: str, limit: int) -> Sequence[DeliveryRecord]:
    """A webhook's deliveries in one state, newest first."""
    newest = "WHERE webhook_id = ? AND state = ? ORDER BY sequence DESC LIMIT ?"
    return DELIVERIES.list(tx, newest, webhook_id, state, limit)


def failed_deliveries(tx: Transaction, webhook_id: str, since: int, limit: int) -> Sequence[tuple[int, str]]:
    """The keys of a webhook's failed deliveries last attempted at `since` or later, newest first."""
    newest = "WHERE webhook_id = ? AND state = 'failed' AND last_attempt_at >= ? ORDER BY sequence DESC LIMIT ?"
    return tx.execute(f"SELECT sequence, webhook_id FROM delivery {newest}", (webhook_id, since, limit)).fetchall()


def repeat_failed(tx: Transaction, keys: Sequence[tuple[int, str]], now: int) -> int:
    """Makes these deliveries due as if new, except any that are no longer failed. Returns how many."""
    repeat = (
        "UPDATE delivery SET state = 'pending', attempts = 0, next_at = ?, last_attempt_at = NULL, last_status = NULL,"
        " last_error = NULL WHERE sequence = ? AND webhook_id = ? AND state = 'failed'"
    )
    return sum(tx.execute(repeat, (now, *key)).rowcount for key in keys)


def deliveries_of_event(tx: Transaction, sequence: int) -> Sequence[DeliveryRecord]:
    """The stored deliveries of an event. Webhooks that accepted it at once have none."""
    return DELIVERIES.list(tx, "WHERE sequence = ? ORDER BY webhook_id", sequence)
