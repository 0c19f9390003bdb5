"""SQL of payments from wallets on other servers that were started on a payment page here."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Final, Literal

import msgspec

from payres.agenda.store.agenda import DueKind
from payres.core.protocol.clock import DAY, HOUR, LATEST, MINUTE, SECOND, is_due
from payres.core.store import server_secrets
from payres.core.store.retention import Rule, purge
from payres.core.store.rows import Table
from payres.core.store.work import Transaction
from payres.interledger.store import remote_resources
from payres.people.limits import MAX_CHECKOUTS, MAX_CHECKOUTS_OF_SERVER

SECRET = "checkouts"  # noqa: S105 - the name of the secret that encrypts `pending`
UNPAID = DAY  # how long one is kept, after it was created
TRY_FOR: Final = HOUR  # from the beginning; afterwards nothing is created any more
LONGEST_PAUSE = 5 * MINUTE  # between attempts
LEASE = 10 * SECOND  # longer than an attempt; then it is repeated, if what it came to could not be stored

Stage = Literal["asked", "returned", "made", "paid", "failed"]


class CheckoutRecord(msgspec.Struct, frozen=True):
    """A row of `checkout`. Times are microseconds; `amount` is in the minor unit of the incoming payment's asset."""

    id_hash: bytes
    incoming_payment_id: str
    browser_hash: bytes
    payer: str
    amount: int
    state: Stage
    changed_at: int
    purge_at: int = 0
    failure: str | None = None
    pending: bytes | None = None
    received_before: int | None = None
    due_at: int | None = None
    attempts: int = 0
    silent: str | None = None
    payment: str | None = None

    @property
    def begun_at(self) -> int:
        """When the payer was sent to their wallet; for one that is not paid."""
        return self.purge_at - UNPAID

    def is_due(self, now: int) -> bool:
        """Whether its next step is due."""
        return self.due_at is not None and is_due(self.due_at, now, LONGEST_PAUSE)


CHECKOUTS = Table(CheckoutRecord, "checkout")
RULE = Rule("checkout", "purge_at", "id_hash")
# The next steps of payments from other wallets; payers of a slow server do not delay those of others.
STEPS = DueKind(
    name="checkout",
    table="checkout",
    due="due_at",
    key=("id_hash",),
    label="hex(checkout.id_hash)",
    party="substr(payer, 1, 7 + instr(substr(payer || '/', 9), '/'))",  # the server
    at_once=MAX_CHECKOUTS,
    of_party=MAX_CHECKOUTS_OF_SERVER,
    longest=LONGEST_PAUSE,
)
# The ends of their pages.
ENDS = DueKind(
    name="checkout-end",
    table="checkout",
    due="purge_at",
    key=("id_hash",),
    label="hex(checkout.id_hash)",
    party="0",
    at_once=1,
    of_party=1,
    longest=None,
)


_OF_BROWSER: Final = "WHERE incoming_payment_id = ? AND browser_hash = ? AND state"


def gone_on(tx: Transaction, incoming_payment_id: str, browser_hash: bytes) -> str:
    """Names, in a text for a form, the checkouts of a browser for an incoming payment that were paid or may have been;
    "" for none. It is no time, because the clock may be set back while the form is open."""
    found = f"SELECT id_hash FROM checkout {_OF_BROWSER} IN ('made', 'paid') ORDER BY id_hash"
    rows = tx.execute(found, (incoming_payment_id, browser_hash)).fetchall()
    return sha256(b"".join(id_hash for (id_hash,) in rows)).hexdigest() if rows else ""


def insert_checkout(
    tx: Transaction, record: CheckoutRecord, pending: str, continuation: tuple[str, str], shown: str = ""
) -> bool:
    """Stores a new checkout, and purges a few old ones. Others of the browser for the same payment, for which nothing
    was created yet, are given up: otherwise both could be paid. False, and nothing is stored, if one of them has gone
    on that the form did not show: `shown` is what `gone_on` was then. `continuation` is the URL and the token by which
    the grant is cancelled when the checkout ends, or is kept no longer."""
    now, whose = record.changed_at, (record.incoming_payment_id, record.browser_hash)
    if gone_on(tx, *whose) not in {"", shown}:
        return False
    purge(tx, RULE, now)
    replaced = tx.execute(
        "UPDATE checkout SET state = 'failed', failure = 'replaced', pending = NULL, due_at = NULL, changed_at = ?"
        f" {_OF_BROWSER} = 'returned' RETURNING hex(id_hash)",
        (now, *whose),
    )
    for (id,) in replaced.fetchall():
        remote_resources.make_due(tx, id, now)
    encrypted, purge_at = server_secrets.encrypt(tx, SECRET, pending), now + UNPAID
    CHECKOUTS.insert(tx, msgspec.structs.replace(record, pending=encrypted, purge_at=purge_at))
    remote_resources.note_grant(tx, id_of(record), *continuation, now, purge_at)
    return True


def id_of(record: CheckoutRecord) -> str:
    """The id of a checkout as text."""
    return record.id_hash.hex().upper()


def is_open(tx: Transaction, id: str, now: int) -> bool:
    """Whether the checkout with this id, as text, may still need its grant."""
    of = "WHERE hex(id_hash) = ? AND purge_at > ? AND state IN ('asked', 'returned', 'made')"
    return CHECKOUTS.find(tx, of, id, now) is not None


def pending_of(tx: Transaction, record: CheckoutRecord) -> str | None:
    """The decrypted `pending` data; None once the checkout has ended."""
    return None if record.pending is None else server_secrets.decrypt(tx, SECRET, record.pending)


def change_checkout(
    tx: Transaction,
    record: CheckoutRecord,
    after: Stage,
    now: int,
    *,
    pending: str | None = None,
    failure: str | None = None,
    received_before: int | None = None,
    due_at: int | None = None,
    attempts: int = 0,
    payment: str | None = None,
) -> bool:
    """Changes the state, or the pending data in the same state; False if it is no longer as in `record`. The end of a
    checkout deletes its pending data, and cancels its grant."""
    encrypted = None if pending is None else server_secrets.encrypt(tx, SECRET, pending)
    has_ended = after in {"paid", "failed"}
    purge_at = LATEST if after == "paid" else 0  # the page is the payer's receipt, and shows the payee who paid
    changed = tx.execute(
        "UPDATE checkout SET state = ?, changed_at = iif(state = ?, changed_at, ?), failure = ?,"
        " purge_at = max(purge_at, ?), pending = iif(?, NULL, coalesce(?, pending)),"
        " received_before = coalesce(?, received_before), due_at = ?, attempts = ?, silent = iif(?, silent, NULL),"
        " payment = coalesce(?, payment)"
        " WHERE id_hash = ? AND state = ?",
        (
            *(after, after, now, failure, purge_at, has_ended, encrypted, received_before),
            *(None if has_ended else due_at, attempts, failure == "silent", payment, record.id_hash, record.state),
        ),
    )
    if has_ended and changed.rowcount:
        remote_resources.make_due(tx, id_of(record), now)
    return changed.rowcount == 1


def begin_attempt(tx: Transaction, record: CheckoutRecord) -> bool:
    """Counts an attempt before its first request. False if the state is no longer as in `record`."""
    changed = tx.execute(
        "UPDATE checkout SET attempts = attempts + 1 WHERE id_hash = ? AND state = ?", (record.id_hash, record.state)
    )
    return changed.rowcount == 1


def note_failure(tx: Transaction, record: CheckoutRecord, due_at: int, silent: str | None) -> None:
    """Sets the time of the next attempt, and the server that did not answer in this one."""
    tx.execute(
        "UPDATE checkout SET due_at = ?, silent = ? WHERE id_hash = ? AND state = ?",
        (due_at, silent, record.id_hash, record.state),
    )


def end_page(tx: Transaction, id_hash: bytes, now: int) -> None:
    """Deletes a checkout that is kept no longer."""
    tx.execute("DELETE FROM checkout WHERE id_hash = ? AND purge_at <= ?", (id_hash, now))


def checkouts_of(tx: Transaction, incoming_payment_id: str, limit: int) -> Sequence[CheckoutRecord]:
    """The newest checkouts of an incoming payment whose payers have returned, newest first."""
    return CHECKOUTS.list(
        tx,
        "WHERE incoming_payment_id = ? AND state <> 'asked' ORDER BY changed_at DESC LIMIT ?",
        incoming_payment_id,
        limit,
    )
