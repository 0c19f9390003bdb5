"""SQL of outgoing payments."""

from collections.abc import Sequence

import msgspec

from payres.amounts import MAX_LEDGER
from payres.store.database import Transaction
from payres.store.pages import PageBounds, PageQuery, select_page


class OutgoingRecord(msgspec.Struct, frozen=True):
    """A row of `outgoing_payment`. Amounts are in minor units: debit, fee and sent of the sender's asset."""

    id: str
    wallet_address_id: int
    client_id: int
    grant_id: str | None
    window_start: int
    quote_id: str | None
    receiver: str
    incoming_payment_id: str | None
    debit: int
    receive: int
    receive_code: str
    receive_scale: int
    fee: int
    sent: int
    delivered: int
    state: str
    failure: str | None
    metadata: str | None
    created_at: int
    ended_at: int | None
    path: str | None = None
    attempts: int = 0

    @property
    def failed(self) -> bool:
        return self.state == "failed"


COLUMNS = (
    "id, wallet_address_id, client_id, grant_id, window_start, quote_id, receiver, incoming_payment_id, debit,"
    " receive, receive_code, receive_scale, fee, sent, delivered, state, failure, metadata, created_at, ended_at,"
    " path, attempts"
)


def insert_outgoing(tx: Transaction, payment: OutgoingRecord) -> None:
    tx.execute(
        f"INSERT INTO outgoing_payment ({COLUMNS}) VALUES ({', '.join('?' * 22)})",
        msgspec.structs.astuple(payment),
    )


def find_outgoing(tx: Transaction, payment_id: str) -> OutgoingRecord | None:
    row = tx.execute(f"SELECT {COLUMNS} FROM outgoing_payment WHERE id = ?", (payment_id,)).fetchone()
    return OutgoingRecord(*row) if row else None


def quote_used(tx: Transaction, quote_id: str) -> bool:
    return tx.execute("SELECT 1 FROM outgoing_payment WHERE quote_id = ?", (quote_id,)).fetchone() is not None


def page_of_outgoing(
    tx: Transaction, wallet_id: int, client_id: int | None, query: PageQuery
) -> tuple[Sequence[OutgoingRecord], PageBounds]:
    """A page, newest first; `pages.select_page` has the SQL."""
    rows, bounds = select_page(tx, "outgoing_payment", COLUMNS, wallet_id, client_id, query)
    return [OutgoingRecord(*row) for row in rows], bounds


def sending_here(tx: Transaction) -> Sequence[OutgoingRecord]:
    """Payments to receivers on this server that an earlier version has not settled, oldest first."""
    rows = tx.execute(
        f"SELECT {COLUMNS} FROM outgoing_payment WHERE state = 'sending' AND incoming_payment_id IS NOT NULL"
        " ORDER BY id"
    )
    return [OutgoingRecord(*row) for row in rows]


def sending_elsewhere(tx: Transaction, limit: int, after: str = "") -> Sequence[OutgoingRecord]:
    """Payments under way to receivers on other servers, oldest first, from the one that follows id `after`."""
    rows = tx.execute(
        f"SELECT {COLUMNS} FROM outgoing_payment WHERE state = 'sending' AND incoming_payment_id IS NULL AND id > ?"
        " ORDER BY id LIMIT ?",
        (after, limit),
    )
    return [OutgoingRecord(*row) for row in rows]


def add_sent(tx: Transaction, payment_id: str, sent: int, delivered: int) -> None:
    """Counts a packet of a payment under way, whose money the ledger moves in this same unit.

    What was delivered is the receiver's word and may be any number: the sum stops at MAX_LEDGER. An attempt in which
    something arrives counts as the first, so that no number of restarts ends a payment that gets on.
    """
    tx.execute(
        "UPDATE outgoing_payment SET sent = sent + ?, delivered = min(delivered, ?) + ?,"
        " attempts = iif(? > 0, 1, attempts) WHERE id = ? AND state = 'sending'",
        (sent, MAX_LEDGER - delivered, delivered, delivered, payment_id),
    )


def count_attempt(tx: Transaction, payment_id: str) -> None:
    """One more attempt to reach a receiver elsewhere."""
    tx.execute("UPDATE outgoing_payment SET attempts = attempts + 1 WHERE id = ?", (payment_id,))


def end_outgoing(tx: Transaction, payment_id: str, sent: int, delivered: int, failure: str | None, now: int) -> None:
    """Ends a payment under way: completed, or failed when there is a failure."""
    tx.execute(
        "UPDATE outgoing_payment SET sent = ?, delivered = ?, state = ?, failure = ?, ended_at = ?"
        " WHERE id = ? AND state = 'sending'",
        (sent, delivered, "failed" if failure else "completed", failure, now, payment_id),
    )
