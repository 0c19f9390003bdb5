"""SQL of outgoing payments."""

from collections.abc import Sequence

import msgspec

from payres.amounts import MAX_LEDGER
from payres.store.quotes import TERMS
from payres.store.rows import Table
from payres.store.work import Transaction
from payres.terms import Terms


class OutgoingRecord(msgspec.Struct, frozen=True):
    """A row of `outgoing_payment`; `sent` is in the sender's asset, `delivered` in the receiver's.

    `received_before` is what the receiver had received when the payment began, less what it had delivered by then; None
    until then. The unresolved amounts, in the assets of `sent` and `delivered`, are of packets whose outcome nobody
    could prove: the payer has got them back.
    """

    id: str
    wallet_address_id: int
    client_id: int
    grant_id: str | None
    window_start: int
    quote_id: str | None
    terms: Terms
    sent: int
    delivered: int
    state: str
    failure: str | None
    metadata: str | None
    created_at: int
    ended_at: int | None
    attempts: int = 0
    received_before: int | None = None
    unresolved_debit: int = 0
    unresolved_receive: int = 0

    @property
    def spent_debit(self) -> int:
        """What its grant counts of it as spent once it has ended: what was sent, and what may have been."""
        return self.sent + self.unresolved_debit

    @property
    def spent_receive(self) -> int:
        """The same of what was delivered, or may have been; no more than was quoted counts."""
        return min(self.delivered + self.unresolved_receive, self.terms.receive)

    @property
    def failed(self) -> bool:
        return self.state == "failed"


OUTGOING = Table(OutgoingRecord, "outgoing_payment", terms=TERMS)


def sending_remote(tx: Transaction, limit: int, after: str = "") -> Sequence[str]:
    """Ids of payments in flight to receivers on other servers, oldest first, from the one that follows id `after`."""
    remote = "state = 'sending' AND incoming_payment_id IS NULL AND id > ? ORDER BY id LIMIT ?"
    return [row[0] for row in tx.execute(f"SELECT id FROM outgoing_payment WHERE {remote}", (after, limit))]


def remote_payments_since(tx: Transaction, receiver: str, since: int) -> Sequence[OutgoingRecord]:
    """Payments to a receiver on another server that are in flight, or ended at that time or later."""
    there = "WHERE receiver = ? AND incoming_payment_id IS NULL AND ended_at"
    return [*OUTGOING.list(tx, f"{there} IS NULL", receiver), *OUTGOING.list(tx, f"{there} >= ?", receiver, since)]


def add_sent(tx: Transaction, payment_id: str, sent: int, delivered: int) -> None:
    """Counts a packet of a payment in flight, whose money the ledger moves in this same unit.

    What was delivered is the receiver's word and may be any number: the sum stops at MAX_LEDGER. An attempt in which
    something arrives counts as the first, so that no number of restarts ends a payment that gets on.
    """
    tx.execute(
        "UPDATE outgoing_payment SET sent = sent + ?, delivered = min(delivered, ?) + ?,"
        " attempts = iif(? > 0, 1, attempts) WHERE id = ? AND state = 'sending'",
        (sent, MAX_LEDGER - delivered, delivered, delivered, payment_id),
    )


def begin_attempt(tx: Transaction, payment_id: str, number: int, received_before: int | None = None) -> None:
    """Stores how many attempts there were to reach a remote receiver since something has arrived. What it had received
    when the payment began is stored once."""
    tx.execute(
        "UPDATE outgoing_payment SET attempts = ?, received_before = coalesce(received_before, ?) WHERE id = ?",
        (number, received_before, payment_id),
    )


def end_outgoing(tx: Transaction, payment_id: str, sent: int, delivered: int, failure: str | None, now: int) -> None:
    """Ends a payment in flight: completed, or failed when there is a failure."""
    tx.execute(
        "UPDATE outgoing_payment SET sent = ?, delivered = ?, state = ?, failure = ?, ended_at = ?"
        " WHERE id = ? AND state = 'sending'",
        (sent, delivered, "failed" if failure else "completed", failure, now, payment_id),
    )
