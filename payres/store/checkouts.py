"""SQL of payments from wallets on other servers that were started on a payment page here."""

from typing import Literal

import msgspec

from payres.clock import LATEST
from payres.store import secrets
from payres.store.retention import CHECKOUTS as RULE
from payres.store.retention import UNPAID_CHECKOUT, purge
from payres.store.rows import Table
from payres.store.work import Transaction

SECRET = "checkouts"  # noqa: S105 - the name of the secret that encrypts `pending`

State = Literal["asked", "returned", "made", "paid", "failed"]


class CheckoutRecord(msgspec.Struct, frozen=True):
    """A row of `checkout`. Times are microseconds; `amount` is in the minor unit of the incoming payment's asset."""

    id_hash: bytes
    incoming_payment_id: str
    browser_hash: bytes
    payer: str
    amount: int
    state: State
    changed_at: int
    purge_at: int = 0
    failure: str | None = None
    pending: bytes | None = None
    received_before: int | None = None


CHECKOUTS = Table(CheckoutRecord, "checkout")


def insert_checkout(tx: Transaction, record: CheckoutRecord, pending: str) -> None:
    """Stores a new checkout, and purges a few old ones."""
    purge(tx, RULE, record.changed_at)
    encrypted, purge_at = secrets.encrypt(tx, SECRET, pending), record.changed_at + UNPAID_CHECKOUT
    CHECKOUTS.insert(tx, msgspec.structs.replace(record, pending=encrypted, purge_at=purge_at))


def pending_of(tx: Transaction, record: CheckoutRecord) -> str | None:
    """The decrypted `pending` data; None once the checkout has ended."""
    return None if record.pending is None else secrets.decrypt(tx, SECRET, record.pending)


def change_checkout(
    tx: Transaction,
    record: CheckoutRecord,
    after: State,
    now: int,
    *,
    pending: str | None = None,
    failure: str | None = None,
    received_before: int | None = None,
) -> bool:
    """Changes the state; False if it is no longer as in `record`. The end of a checkout deletes its pending data."""
    encrypted = None if pending is None else secrets.encrypt(tx, SECRET, pending)
    has_ended = after in {"paid", "failed"}
    purge_at = LATEST if after == "paid" else 0  # the page is the payer's receipt, and shows the payee who paid
    changed = tx.execute(
        "UPDATE checkout SET state = ?, changed_at = ?, failure = ?, purge_at = max(purge_at, ?),"
        " pending = iif(?, NULL, coalesce(?, pending)), received_before = coalesce(?, received_before)"
        " WHERE id_hash = ? AND state = ?",
        (after, now, failure, purge_at, has_ended, encrypted, received_before, record.id_hash, record.state),
    )
    return changed.rowcount == 1
