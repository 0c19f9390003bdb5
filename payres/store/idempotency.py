"""SQL of idempotency keys and the responses that are cached under them."""

import msgspec

from payres.store.database import Transaction
from payres.store.rows import Table


class KeptAnswer(msgspec.Struct, frozen=True):
    """A row of `idempotency_key`: a request that created something, and its cached response.

    body_hash is the SHA-256 of the request's body; members is JSON text that tells what differs in another.
    """

    client_id: int
    key: str
    path: str
    body_hash: bytes
    members: str
    status: int
    answer: bytes
    created_at: int


ANSWERS = Table(KeptAnswer, "idempotency_key")


def find_answer(tx: Transaction, client_id: int, key: str) -> KeptAnswer | None:
    return ANSWERS.find(tx, "WHERE client_id = ? AND key = ?", client_id, key)


def keep_answer(tx: Transaction, kept: KeptAnswer) -> None:
    """Caches a response under the client's key, in place of what was there."""
    tx.execute(f"INSERT OR REPLACE {ANSWERS.into}", msgspec.structs.astuple(kept))


def delete_answers_until(tx: Transaction, time: int, limit: int) -> int:
    """Deletes the oldest responses of those cached at `time` or before, at most `limit` of them; returns how many."""
    oldest = tx.execute(
        "SELECT id FROM idempotency_key WHERE created_at <= ? ORDER BY created_at LIMIT ?", (time, limit)
    ).fetchall()
    for row in oldest:
        tx.execute("DELETE FROM idempotency_key WHERE id = ?", row)
    return len(oldest)
