"""SQL of payments: incoming ones, outgoing ones, both together as operators see them, and refunds."""

from collections.abc import Sequence
from typing import Any, Final, Literal, cast

import msgspec

from payres.amounts import MAX_LEDGER
from payres.store.quotes import TERMS
from payres.store.rows import PageBounds, PageQuery, Table, find_number, number, select_page
from payres.store.work import Transaction
from payres.terms import Terms

Direction = Literal["incoming", "outgoing"]
State = Literal["pending", "expired", "sending", "completed", "failed"]


class IncomingRecord(msgspec.Struct, frozen=True):
    """A row of `incoming_payment`. incoming_value is decimal text or None; metadata is JSON text or None.

    partial_event_at is when the last event of a partial payment was written, listed its place in what the owner sees.
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
    tx: Transaction,
    payment_id: str,
    amount: int,
    completed_at: int | None,
    partial_event_at: int | None,
    listed: str | None = None,
) -> None:
    """Counts what the ledger has just credited; completed_at when that was the last of it, listed when the first."""
    # What stays is left out, so that SQLite need not look at the indexes of what is to expire and what is listed.
    new = {name: value for name, value in {"completed_at": completed_at, "listed": listed}.items() if value is not None}
    columns = "".join(f", {name} = ?" for name in new)
    tx.execute(
        f"UPDATE incoming_payment SET received = received + ?, partial_event_at = ?{columns}"
        " WHERE id = ? AND completed_at IS NULL",
        (amount, partial_event_at, *new.values(), payment_id),
    )


def complete_incoming(tx: Transaction, payment_id: str, now: int) -> None:
    """Takes no more money from now on. What has received none is listed no more."""
    columns = "completed_at = ?, listed = iif(received > 0, listed, NULL)"
    tx.execute(f"UPDATE incoming_payment SET {columns} WHERE id = ? AND completed_at IS NULL", (now, payment_id))


def expired_without_event(tx: Transaction, now: int, limit: int) -> Sequence[IncomingRecord]:
    """Payments that have expired and without an event of that, the earliest first."""
    where = "WHERE completed_at IS NULL AND expiry_event_at IS NULL AND expires_at <= ? ORDER BY expires_at LIMIT ?"
    return INCOMING.list(tx, where, now, limit)


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


def has_completed(tx: Transaction, grant_id: str) -> bool:
    """Whether a payment under the grant has arrived."""
    found = "SELECT EXISTS (SELECT 1 FROM outgoing_payment WHERE grant_id = ? AND state = 'completed')"
    return bool(number(tx, found, grant_id))


class PaymentRecord(msgspec.Struct, frozen=True):
    """An incoming or an outgoing payment. amount is the incoming amount, or the debit amount; moved is what was
    received, or sent. state is `open` for an incoming payment that was not completed: `expires_at` says whether it
    still accepts money.

    Only outgoing payments have `receiver`.
    """

    id: str
    direction: Direction
    wallet_address_id: int
    client_id: int
    grant_id: str | None
    quote_id: str | None
    state: str
    amount: str | None
    moved: int
    receiver: str | None
    failure: str | None
    metadata: str | None
    created_at: int
    ended_at: int | None
    expires_at: int | None

    def state_at(self, now: int) -> State:
        if self.state == "open":
            return "expired" if self.expires_at is not None and now >= self.expires_at else "pending"
        return cast("State", self.state)


# The casts give each column one affinity, without which SQLite would sort all payments for each page.
_BOTH = """(
  SELECT id, 'outgoing' AS direction, wallet_address_id, client_id, grant_id, quote_id, state,
    cast(debit AS text) AS amount, sent AS moved, receiver, incoming_payment_id, failure, metadata, created_at,
    ended_at, cast(NULL AS integer) AS expires_at
  FROM outgoing_payment
  UNION ALL
  SELECT id, 'incoming', wallet_address_id, client_id, cast(NULL AS text), cast(NULL AS text),
    cast(iif(completed_at IS NULL, 'open', 'completed') AS text), incoming_value, received, cast(NULL AS text),
    cast(NULL AS text), cast(NULL AS text), metadata, created_at, completed_at, expires_at
  FROM incoming_payment
) p"""
PAYMENTS = Table(PaymentRecord, _BOTH, prefix="p.")
_COUNTERPART_HERE = """? IN (
  SELECT wallet_address_id FROM incoming_payment WHERE id = p.incoming_payment_id
  UNION ALL SELECT o.wallet_address_id FROM transfer t JOIN outgoing_payment o ON o.id = t.outgoing_payment_id
  WHERE t.incoming_payment_id = p.id
)"""


def page_of_payments(
    tx: Transaction,
    query: PageQuery,
    now: int,
    *,
    wallet_id: int | None = None,
    direction: Direction | None = None,
    state: State | None = None,
    since: int | None = None,
    until: int | None = None,
    counterpart: int | str | None = None,
    least: int | None = None,
    most: int | None = None,
    failure: str | None = None,
) -> tuple[Sequence[PaymentRecord], PageBounds]:
    """A page, newest first. An index leads to the payments of a wallet; other filters are applied to each row.

    Times are microseconds, amounts are in the minor unit of the wallet. A counterpart is a wallet here by its id, or on
    another server by the beginning of its URLs.
    """
    conditions: dict[str, Any] = {
        "p.wallet_address_id = ?": wallet_id,
        "p.direction = ?": direction,
        "p.created_at >= ?": since,
        "p.created_at < ?": until,
        "instr(p.receiver, ?) = 1" if isinstance(counterpart, str) else _COUNTERPART_HERE: counterpart,
        "p.moved >= ?": least,
        "p.moved <= ?": most,
        "instr(lower(p.failure), lower(?)) > 0": failure,
        **_state_conditions(state, now),
    }
    given = {condition: value for condition, value in conditions.items() if value is not None}
    return select_page(tx, PAYMENTS, query, given)


def payments_in_order(
    tx: Transaction, after: str, before: str, since: int, until: int, wallet_id: int | None, rows: int
) -> Sequence[PaymentRecord]:
    """The first so many with an id between these two, of a time, and of one wallet if it is given; oldest first."""
    where, values = "p.id > ? AND p.id < ? AND p.created_at >= ? AND p.created_at < ?", [after, before, since, until]
    if wallet_id is not None:
        where, values = f"{where} AND p.wallet_address_id = ?", [*values, wallet_id]
    return PAYMENTS.list(tx, f"WHERE {where} ORDER BY p.id LIMIT ?", *values, rows)


# The outgoing payments `o` here that paid an incoming payment; and what of one was not sent back yet.
_PAYERS: Final = """(
  SELECT DISTINCT outgoing_payment_id AS id FROM transfer
  WHERE incoming_payment_id = ? AND outgoing_payment_id IS NOT NULL
) payer JOIN outgoing_payment o ON o.id = payer.id"""
_OPEN_PART: Final = "o.delivered - coalesce((SELECT sum(amount) FROM refund WHERE outgoing_payment_id = o.id), 0)"


def payers_of(tx: Transaction, incoming_payment_id: str, limit: int) -> Sequence[str]:
    """The ids of the newest outgoing payments here that paid an incoming payment, newest first."""
    rows = tx.execute(f"SELECT o.id FROM {_PAYERS} ORDER BY o.id DESC LIMIT ?", (incoming_payment_id, limit))
    return [payment_id for (payment_id,) in rows]


def last_payer(tx: Transaction, incoming_payment_id: str) -> str | None:
    """The outgoing payment here that paid an incoming payment last; None when that is remote."""
    last = "SELECT outgoing_payment_id FROM transfer WHERE incoming_payment_id = ? ORDER BY id DESC LIMIT 1"
    row = tx.execute(last, (incoming_payment_id,)).fetchone()
    return row[0] if row else None


def delivered_here(tx: Transaction, incoming_payment_id: str) -> int:
    """What outgoing payments here have paid into an incoming payment."""
    return number(tx, f"SELECT sum(o.delivered) FROM {_PAYERS}", incoming_payment_id)


def open_parts(tx: Transaction, incoming_payment_id: str) -> Sequence[tuple[str, int]]:
    """The ids of the outgoing payments here that paid an incoming payment, newest first, each with what of it was not
    sent back yet; without those that were sent back."""
    found = f"SELECT o.id, {_OPEN_PART} AS part FROM {_PAYERS} WHERE part > 0 ORDER BY o.id DESC"
    return tx.execute(found, (incoming_payment_id,)).fetchall()


def open_part(tx: Transaction, payment_id: str) -> int:
    """The same of one of them."""
    return number(tx, f"SELECT {_OPEN_PART} FROM outgoing_payment o WHERE o.id = ?", payment_id)


def _state_conditions(state: State | None, now: int) -> dict[str, Any]:
    if state == "pending":
        return {"p.state = 'open' AND p.expires_at > ?": now}
    if state == "expired":
        return {"p.state = 'open' AND p.expires_at <= ?": now}
    return {"p.state = ?": state}


RefundState = Literal["sending", "completed", "failed"]


class RefundRecord(msgspec.Struct, frozen=True):
    """A refund, to the wallet here whose outgoing payment it undoes, or by a return payment to a wallet address.

    `amount` is what shall leave the receiver's wallet. `counted` of it counts as sent back: all while it is on its way,
    in the end what has been sent, or may have been. `returned` has arrived, in the asset of who gets it.
    """

    id: str
    incoming_payment_id: str
    outgoing_payment_id: str | None
    return_payment_id: str | None
    wallet_address: str | None
    amount: int
    counted: int
    returned: int
    reference: str
    state: RefundState
    failure: str | None
    created_at: int
    ended_at: int | None


# What of refund `r` counts as sent back, by its return payment `p`, if it has one.
REFUND_COUNTED: Final = (
    "CASE coalesce(p.state, '') WHEN '' THEN r.amount WHEN 'sending' THEN p.debit ELSE p.sent + p.unresolved_debit END"
)
REFUNDS: Final = Table(
    RefundRecord,
    "refund r LEFT JOIN outgoing_payment p ON p.id = r.return_payment_id",
    prefix="r.",
    counted=REFUND_COUNTED,
    returned="coalesce(r.returned, p.delivered)",
    state="coalesce(p.state, 'completed')",
    failure="p.failure",
    ended_at="iif(p.id IS NULL, r.created_at, p.ended_at)",
)


def refunds_of(tx: Transaction, direction: Direction, payment_id: str, limit: int) -> Sequence[RefundRecord]:
    """The newest refunds that an incoming payment sent back, or that came back to an outgoing one; oldest first."""
    newest = f"WHERE r.{direction}_payment_id = ? ORDER BY r.id DESC LIMIT ?"
    return REFUNDS.list(tx, newest, payment_id, limit)[::-1]


def refunds_under(tx: Transaction, payment_id: str, reference: str) -> Sequence[RefundRecord]:
    """Those of an incoming payment under a reference, oldest first."""
    found = REFUNDS.list(tx, "WHERE r.incoming_payment_id = ? AND r.reference = ?", payment_id, reference)
    return sorted(found, key=lambda refund: refund.id)


def count_under(tx: Transaction, payment_id: str, reference: str) -> int:
    """How many these are."""
    where = "WHERE incoming_payment_id = ? AND reference = ?"
    return number(tx, f"SELECT count(*) FROM refund {where}", payment_id, reference)


def sent_back(tx: Transaction, payment_id: str, remote: bool = False) -> int:
    """What of an incoming payment counts as sent back; or only what goes to wallet addresses that were named."""
    condition = " AND r.outgoing_payment_id IS NULL" if remote else ""
    where = f"WHERE r.incoming_payment_id = ?{condition}"
    return number(tx, f"SELECT sum({REFUND_COUNTED}) FROM {REFUNDS.source} {where}", payment_id)


def came_back(tx: Transaction, payment_id: str) -> int:
    """What came back to the payer of an outgoing payment."""
    return number(tx, "SELECT sum(returned) FROM refund WHERE outgoing_payment_id = ?", payment_id)


def refund_by_return_payment(tx: Transaction, payment_id: str) -> RefundRecord | None:
    """The refund that an outgoing payment sends, if it does."""
    return REFUNDS.find(tx, "WHERE r.return_payment_id = ?", payment_id)
