"""SQL of webhooks, and of deliveries: events that a webhook did not accept the first time, or gets again."""

from collections.abc import Sequence
from typing import Final

import msgspec

from payres.store import secrets
from payres.store.events import EVENTS, EventRecord
from payres.store.rows import Table
from payres.store.work import Transaction

SECRETS: Final = "webhook_secrets"  # the name of the secret that theirs are encrypted with


class WebhookRecord(msgspec.Struct, frozen=True):
    """A row of `webhook`. events are patterns with commas between; secrets are encrypted; cursor is a sequence."""

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
    """A row of `delivery`. attempts counts those since it became pending; next_at is only there while it is."""

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
    """All, in the order in which they were added."""
    return WEBHOOKS.list(tx, "ORDER BY id")


def delete_webhook(tx: Transaction, webhook_id: str) -> None:
    """Deletes the webhook with its deliveries."""
    tx.execute("DELETE FROM delivery WHERE webhook_id = ?", (webhook_id,))
    tx.execute("DELETE FROM webhook WHERE id = ?", (webhook_id,))


def signing_secrets(tx: Transaction, webhook: WebhookRecord, now: int) -> Sequence[str]:
    """The secrets to sign with, the newest first."""
    found = [webhook.secret]
    if webhook.previous_secret is not None and webhook.previous_until is not None and now < webhook.previous_until:
        found.append(webhook.previous_secret)
    return [secrets.decrypt(tx, SECRETS, one) for one in found]


def due_deliveries(
    tx: Transaction, webhook_id: str, now: int, limit: int
) -> Sequence[tuple[DeliveryRecord, EventRecord]]:
    """Those that are due, the longest due first, with their events."""
    due = "WHERE webhook_id = ? AND next_at <= ? ORDER BY next_at LIMIT ?"
    return [
        (delivery, EVENTS.by_id(tx, delivery.sequence)) for delivery in DELIVERIES.list(tx, due, webhook_id, now, limit)
    ]


def deliveries_of(tx: Transaction, webhook_id: str, state: str, limit: int) -> Sequence[DeliveryRecord]:
    """The webhook's deliveries in one state, newest first."""
    newest = "WHERE webhook_id = ? AND state = ? ORDER BY sequence DESC LIMIT ?"
    return DELIVERIES.list(tx, newest, webhook_id, state, limit)


def deliveries_of_event(tx: Transaction, sequence: int) -> Sequence[DeliveryRecord]:
    """What is stored of an event: nothing for a webhook that took it at once."""
    return DELIVERIES.list(tx, "WHERE sequence = ? ORDER BY webhook_id", sequence)
