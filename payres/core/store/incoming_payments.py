"""SQL of incoming payments."""

from collections.abc import Sequence

import msgspec

from payres.core.store.retention import EMPTY_PAYMENT
from payres.core.store.rows import Table, find_number, lasting
from payres.core.store.wallets import WalletRecord, find_with_wallet
from payres.core.store.work import Transaction, Work


class IncomingRecord(msgspec.Struct, frozen=True):
    """A row of `incoming_payment`. incoming_value is decimal text or None; metadata is JSON text or None.

    partial_event_at is when the last partial payment event was written, untold_at when the next one is due; listed is
    the key in the owner's activity list.
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
    listed: str | None = None
    untold_at: int | None = None

    @property
    def completed(self) -> bool:
        return self.completed_at is not None

    def open_at(self, now: int) -> bool:
        """Whether it accepts money: neither completed nor expired."""
        return self.completed_at is None and now < self.expires_at

    @property
    def remaining(self) -> int | None:
        """The amount still to be received, in the minor unit; None without an incomingAmount."""
        return None if self.incoming_value is None else max(int(self.incoming_value) - self.received, 0)


INCOMING = Table(IncomingRecord, "incoming_payment")


def payment_at(work: Work, url: str) -> tuple[IncomingRecord, WalletRecord] | None:
    """The incoming payment of this server with this URL, and its wallet."""
    payment_id = work.urls.resource_id("incoming-payments", url)
    return find_with_wallet(work, INCOMING, payment_id) if payment_id else None


def expiry_event_at(tx: Transaction, payment_id: str) -> int | None:
    """The time of the payment's expiry event."""
    return find_number(tx, "SELECT expiry_event_at FROM incoming_payment WHERE id = ?", payment_id)


def add_received(tx: Transaction, payment_id: str, amount: int, **changed: object) -> None:
    """Counts what the ledger has just credited, and sets the columns that `changed`: for the others, SQLite need not
    update their indexes."""
    columns = "".join(f", {name} = ?" for name in changed)
    tx.execute(
        f"UPDATE incoming_payment SET received = received + ?{columns} WHERE id = ? AND completed_at IS NULL",
        (amount, *changed.values(), payment_id),
    )


def complete_incoming(tx: Transaction, payment_id: str, now: int) -> None:
    """Completes the payment. If it has received nothing, it is no longer listed."""
    columns = "completed_at = ?, untold_at = NULL, listed = iif(received > 0, listed, NULL)"
    tx.execute(f"UPDATE incoming_payment SET {columns} WHERE id = ? AND completed_at IS NULL", (now, payment_id))


def expired_without_event(tx: Transaction, now: int, limit: int) -> Sequence[IncomingRecord]:
    """Expired payments without an expiry event, earliest first."""
    where = "WHERE completed_at IS NULL AND expiry_event_at IS NULL AND expires_at <= ? ORDER BY expires_at LIMIT ?"
    return INCOMING.list(tx, where, now, limit)


def untold(tx: Transaction, now: int, longest: int) -> Sequence[IncomingRecord]:
    """Payments whose next partial payment event is due, after a pause of at most `longest`."""
    waits, times = lasting("untold_at", now, longest)
    return INCOMING.list(tx, f"WHERE untold_at IS NOT NULL AND NOT {waits} LIMIT 256", *times)


def note_expiry(tx: Transaction, payment_id: str, now: int) -> None:
    """Records that the expiry event was written. A payment that received nothing is no longer listed, and without an
    amount it is purged later."""
    tx.execute(
        "UPDATE incoming_payment SET expiry_event_at = ?, listed = iif(received > 0, listed, NULL),"
        " purge_at = iif(received > 0 OR incoming_value IS NOT NULL, NULL, expires_at + ?) WHERE id = ?",
        (now, EMPTY_PAYMENT, payment_id),
    )
