"""SQL of outgoing payments on their way to other servers."""

from collections.abc import Sequence
from typing import Final

from payres.core.protocol.amounts import MAX_LEDGER
from payres.core.store.outgoing_payments import OUTGOING, OutgoingRecord
from payres.core.store.work import Transaction

_IN_FLIGHT_TO: Final = "WHERE receiver = ? AND incoming_payment_id IS NULL AND ended_at IS NULL"


def sending_remote(tx: Transaction, limit: int, after: str = "") -> Sequence[str]:
    """Ids of payments in flight to other servers, oldest first, after id `after`."""
    remote = "state = 'sending' AND incoming_payment_id IS NULL AND id > ? ORDER BY id LIMIT ?"
    return [row[0] for row in tx.execute(f"SELECT id FROM outgoing_payment WHERE {remote}", (after, limit))]


def in_flight_to(tx: Transaction, receiver: str) -> Sequence[OutgoingRecord]:
    """Payments in flight to a receiver on another server."""
    return OUTGOING.list(tx, _IN_FLIGHT_TO, receiver)


def note_overlap(tx: Transaction, receiver: str) -> None:
    """Marks the payments in flight to a receiver on another server, where another one has just ended."""
    tx.execute(f"UPDATE outgoing_payment SET overlapped = 1 {_IN_FLIGHT_TO}", (receiver,))


def add_sent(tx: Transaction, payment_id: str, sent: int, delivered: int) -> None:
    """Counts a packet of a payment in flight; the ledger moves its money in the same unit.

    The delivered amount is the receiver's claim and may be any number, so the sum is capped at MAX_LEDGER. Any delivery
    resets the attempts to 1, so that a payment that makes progress never runs out of them.
    """
    tx.execute(
        "UPDATE outgoing_payment SET sent = sent + ?, delivered = min(delivered, ?) + ?,"
        " attempts = iif(? > 0, 1, attempts) WHERE id = ? AND state = 'sending'",
        (sent, MAX_LEDGER - delivered, delivered, delivered, payment_id),
    )


def begin_attempt(tx: Transaction, payment_id: str, number: int, received_before: int | None = None) -> None:
    """Stores the number of attempts to reach a remote receiver since the last delivery; `received_before` only once."""
    tx.execute(
        "UPDATE outgoing_payment SET attempts = ?, received_before = coalesce(received_before, ?) WHERE id = ?",
        (number, received_before, payment_id),
    )


def end_outgoing(tx: Transaction, payment_id: str, sent: int, delivered: int, failure: str | None, now: int) -> None:
    """Ends a payment in flight: failed if `failure` is given, otherwise completed."""
    tx.execute(
        "UPDATE outgoing_payment SET sent = ?, delivered = ?, state = ?, failure = ?, ended_at = ?"
        " WHERE id = ? AND state = 'sending'",
        (sent, delivered, "failed" if failure else "completed", failure, now, payment_id),
    )
