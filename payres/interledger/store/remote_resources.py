"""SQL of what this server has made on other servers and has to end there."""

from typing import Final, Literal

import msgspec

from payres.agenda.store.agenda import DueKind
from payres.core.protocol.clock import DAY
from payres.core.store import server_secrets
from payres.core.store.rows import Table
from payres.core.store.work import Transaction

SECRET: Final = "elsewhere"  # noqa: S105 - the name of the secret that encrypts `token`
LONGEST: Final = DAY  # from a time to the end that is due then


class RemoteResourceRecord(msgspec.Struct, frozen=True):
    """A row of `made_elsewhere`. Its id is that of the outgoing payment that pays the incoming payment at `url`, or, in
    hexadecimal, of the checkout whose grant is continued there with `token`. Times are microseconds."""

    id: str
    kind: Literal["incoming-payment", "grant"]
    url: str
    noted_at: int
    token: bytes | None = None
    due_at: int | None = None
    attempts: int = 0
    refusals: int = 0
    problem: str | None = None


REMOTE_RESOURCES: Final = Table(RemoteResourceRecord, "made_elsewhere")
DUE: Final = DueKind(
    name="elsewhere",
    table="made_elsewhere",
    due="due_at",
    key=("id",),
    party="substr(url, 1, 7 + instr(substr(url || '/', 9), '/'))",  # the server
    at_once=8,
    of_party=2,
    longest=LONGEST,
)


def note_bill(tx: Transaction, payment_id: str, url: str, now: int) -> None:
    """Notes that the incoming payment at `url` was made for this outgoing payment, whose end ends it too."""
    REMOTE_RESOURCES.insert(tx, RemoteResourceRecord(payment_id, "incoming-payment", url, now))


def note_grant(tx: Transaction, id: str, url: str, token: str, now: int, due_at: int) -> None:
    """Notes a grant, which is cancelled at `due_at` by its continuation, unless that is made due earlier; or its new
    token."""
    encrypted = server_secrets.encrypt(tx, SECRET, token)
    if not tx.execute("UPDATE made_elsewhere SET token = ? WHERE id = ?", (encrypted, id)).rowcount:
        REMOTE_RESOURCES.insert(tx, RemoteResourceRecord(id, "grant", url, now, encrypted, due_at))


def token_of(tx: Transaction, record: RemoteResourceRecord) -> str:
    """The token that continues a grant."""
    return "" if record.token is None else server_secrets.decrypt(tx, SECRET, record.token)


def make_due(tx: Transaction, id: str, now: int) -> None:
    """Lets what was made be ended now, if anything was."""
    tx.execute("UPDATE made_elsewhere SET due_at = ? WHERE id = ?", (now, id))


def is_being_paid(tx: Transaction, url: str) -> bool:
    """Whether a payment is under way to the incoming payment at `url`."""
    return tx.execute("SELECT 1 FROM made_elsewhere WHERE url = ? AND due_at IS NULL", (url,)).fetchone() is not None


def postpone(tx: Transaction, id: str, due_at: int, problem: str, refusals: int) -> None:
    """Counts an attempt that has failed, after so many refusals in a row."""
    attempt = "due_at = ?, problem = ?, refusals = ?, attempts = attempts + 1"
    tx.execute(f"UPDATE made_elsewhere SET {attempt} WHERE id = ?", (due_at, problem, refusals, id))


def forget(tx: Transaction, id: str) -> None:
    """Deletes the row, with its token."""
    tx.execute("DELETE FROM made_elsewhere WHERE id = ?", (id,))
