"""SQL of quotes, incoming payments and outgoing payments."""

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, Literal

import msgspec

from payres.core.protocol.amounts import MAX_LEDGER, Asset, ProbedPath, Terms
from payres.core.protocol.clock import lasting, lasts
from payres.core.store.retention import EMPTY_PAYMENT
from payres.core.store.rows import Embedded, Row, Table, find_number, number
from payres.core.store.work import Transaction


class _PathColumn(msgspec.Struct, frozen=True):
    """The JSON in column `path`; rates are "n/d", and all numbers are text because they may be large."""

    low: str
    high: str
    max_packet: str
    sends_all: bool


_PATH = msgspec.json.Decoder(_PathColumn)


def _read(row: Row) -> Terms:
    receiver, incoming_payment_id, debit, fee, receive, code, scale, text = row
    path, sends_all = (None, False) if text is None else _read_path(text)
    return Terms(
        receiver=receiver,
        incoming_payment_id=incoming_payment_id,
        debit=int(debit),
        fee=int(fee),
        receive=int(receive),
        asset=Asset(code, scale),
        path=path,
        sends_all=sends_all,
    )


@lru_cache(maxsize=1024)
def _read_path(text: str) -> tuple[ProbedPath, bool]:
    """Cached: parsing fractions costs more than the rest of the row, and every packet reads its payment."""
    column = _PATH.decode(text)
    return ProbedPath(Fraction(column.low), Fraction(column.high), int(column.max_packet)), column.sends_all


def _write(terms: Terms) -> tuple[Any, ...]:
    """Amounts are text, which integer columns convert; a quote's may be any unsigned 64-bit integer."""
    return (
        terms.receiver,
        terms.incoming_payment_id,
        *(str(terms.debit), str(terms.fee), str(terms.receive)),
        terms.asset.code,
        terms.asset.scale,
        None if terms.path is None else path_column(terms.path, sends_all=terms.sends_all),
    )


def path_column(path: ProbedPath, *, sends_all: bool) -> str:
    """What column `path` has for terms over this path."""
    column = _PathColumn(str(path.low), str(path.high), str(path.max_packet), sends_all)
    return msgspec.json.encode(column).decode()


def _terms(*amounts: str) -> Embedded:
    return Embedded(
        ("receiver", "incoming_payment_id", *amounts, "receive_code", "receive_scale", "path"), _read, _write
    )


TERMS = _terms("debit", "fee", "receive")  # of payments
_TERMS_AS_TEXT = _terms("debit_value", "fee_value", "receive_value")


class QuoteRecord(msgspec.Struct, frozen=True):
    """A row of `quote`. purge_at (microseconds) is when to check whether it was used; None once it is known to be used.
    `wish` is the JSON of what the wallet's owner entered, in an owner's quote."""

    id: str
    wallet_address_id: int
    client_id: int
    terms: Terms
    created_at: int
    expires_at: int
    purge_at: int | None
    wish: str | None = None

    def lasts_at(self, now: int) -> bool:
        """Whether it can be used, as far as time goes."""
        return lasts(self.expires_at, now, self.expires_at - self.created_at)


QUOTES = Table(QuoteRecord, "quote", terms=_TERMS_AS_TEXT)
_IS_USED = "EXISTS (SELECT 1 FROM outgoing_payment WHERE quote_id = quote.id)"
_FIND_QUOTE_AND_USE = f"SELECT {QUOTES.columns}, {_IS_USED} FROM quote WHERE id = ?"


def find_quote_and_use(tx: Transaction, quote_id: str) -> tuple[QuoteRecord, bool] | None:
    """The quote, and whether a payment has used it."""
    row = tx.execute(_FIND_QUOTE_AND_USE, (quote_id,)).fetchone()
    return (QUOTES.record(row[:-1]), bool(row[-1])) if row else None


def payment_of(tx: Transaction, quote_id: str) -> str | None:
    """The id of the payment that used the quote."""
    row = tx.execute("SELECT id FROM outgoing_payment WHERE quote_id = ?", (quote_id,)).fetchone()
    return row[0] if row else None


def last_wishes(tx: Transaction, client_id: int, wallet_id: int, limit: int) -> Sequence[str]:
    """The wishes of the owner's last payments from a wallet, newest first."""
    paid = "SELECT q.wish FROM outgoing_payment o JOIN quote q ON q.id = o.quote_id WHERE q.wish IS NOT NULL"
    of_owner = "o.client_id = ? AND o.wallet_address_id = ? ORDER BY o.id DESC LIMIT ?"
    return [wish for (wish,) in tx.execute(f"{paid} AND {of_owner}", (client_id, wallet_id, limit))]


Direction = Literal["incoming", "outgoing"]


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


class OutgoingRecord(msgspec.Struct, frozen=True):
    """A row of `outgoing_payment`; `sent` is in the sender's asset, `delivered` in the receiver's.

    `received_before` is what the receiver had received when the payment began, minus what the payment had delivered by
    then; None until it begins. `estimated` is the part of `delivered` that is a guess: of packets whose fulfillment was
    fetched later, until it is compared with the receiver. The unresolved amounts, in the assets of `sent` and
    `delivered`, are of packets without a provable outcome, which were returned to the payer. `overlapped` is 1 if
    another payment of ours to its remote receiver has ended since this one was created.
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
    estimated: int = 0
    overlapped: int = 0

    @property
    def has_begun(self) -> bool:
        """Whether its remote receiver may have got something."""
        return self.received_before is not None or self.sent > 0

    @property
    def spent_debit(self) -> int:
        """What an ended payment counts against its grant's debit limit: sent and possibly sent."""
        return self.sent + self.unresolved_debit

    @property
    def spent_receive(self) -> int:
        """The same for its receive limit: delivered and possibly delivered, at most the quoted amount."""
        return min(self.delivered + self.unresolved_receive, self.terms.receive)

    @property
    def failed(self) -> bool:
        return self.state == "failed"


OUTGOING = Table(OutgoingRecord, "outgoing_payment", terms=TERMS)


def sending_remote(tx: Transaction, limit: int, after: str = "") -> Sequence[str]:
    """Ids of payments in flight to other servers, oldest first, after id `after`."""
    remote = "state = 'sending' AND incoming_payment_id IS NULL AND id > ? ORDER BY id LIMIT ?"
    return [row[0] for row in tx.execute(f"SELECT id FROM outgoing_payment WHERE {remote}", (after, limit))]


_IN_FLIGHT_TO: Final = "WHERE receiver = ? AND incoming_payment_id IS NULL AND ended_at IS NULL"


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


def has_completed(tx: Transaction, grant_id: str) -> bool:
    """Whether a payment under the grant has completed."""
    found = "SELECT EXISTS (SELECT 1 FROM outgoing_payment WHERE grant_id = ? AND state = 'completed')"
    return bool(number(tx, found, grant_id))


def last_payer(tx: Transaction, incoming_payment_id: str) -> str | None:
    """The local outgoing payment that last paid an incoming payment; None if the last payer is remote."""
    last = "SELECT outgoing_payment_id FROM transfer WHERE incoming_payment_id = ? ORDER BY id DESC LIMIT 1"
    row = tx.execute(last, (incoming_payment_id,)).fetchone()
    return row[0] if row else None
