"""SQL of incoming payments."""

from collections.abc import Sequence

import msgspec

from payres.store.rows import Table, find_number
from payres.store.work import Transaction


class IncomingRecord(msgspec.Struct, frozen=True):
    """A row of `incoming_payment`. incoming_value is decimal text or None; metadata is JSON text or None.

    partial_event_at is when the last event of a partial payment was written.
    """

    id: str
    wallet_address_id: int
    client_id: int
    incoming_value: str | None
    received: int
    metadata: str | None
    created_at: int
    expires_at: int
    completed_at: int | None
    partial_event_at: int | None = None

    @property
    def completed(self) -> bool:
        return self.completed_at is not None

    def open_at(self, now: int) -> bool:
        """Whether it still takes money: neither completed nor expired."""
        return self.completed_at is None and now < self.expires_at

    @property
    def remaining(self) -> int | None:
        """What it still wants, in the minor unit; None when it has no incomingAmount."""
        return None if self.incoming_value is None else max(int(self.incoming_value) - self.received, 0)


INCOMING = Table(IncomingRecord, "incoming_payment")


def expiry_event_at(tx: Transaction, payment_id: str) -> int | None:
    """The time of the event that says that the payment has expired."""
    return find_number(tx, "SELECT expiry_event_at FROM incoming_payment WHERE id = ?", payment_id)


def add_received(
    tx: Transaction, payment_id: str, amount: int, completed_at: int | None, partial_event_at: int | None
) -> None:
    """Counts what the ledger has just credited; completed_at when that was the last of it."""
    tx.execute(
        "UPDATE incoming_payment SET received = received + ?, completed_at = ?, partial_event_at = ?"
        " WHERE id = ? AND completed_at IS NULL",
        (amount, completed_at, partial_event_at, payment_id),
    )


def complete_incoming(tx: Transaction, payment_id: str, now: int) -> None:
    tx.execute("UPDATE incoming_payment SET completed_at = ? WHERE id = ? AND completed_at IS NULL", (now, payment_id))


def expired_without_event(tx: Transaction, now: int, limit: int) -> Sequence[IncomingRecord]:
    """Payments that have expired and without an event of that, the earliest first."""
    where = "WHERE completed_at IS NULL AND expiry_event_at IS NULL AND expires_at <= ? ORDER BY expires_at LIMIT ?"
    return INCOMING.list(tx, where, now, limit)
