"""SQL of idempotency keys, and of the answers that are kept under them."""

import msgspec

from payres.store.database import Transaction


class KeptAnswer(msgspec.Struct, frozen=True):
    """A row of `idempotency_key`: a request that created something, and its answer.

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


COLUMNS = "client_id, key, path, body_hash, members, status, answer, created_at"


def find_answer(tx: Transaction, client_id: int, key: str) -> KeptAnswer | None:
    row = tx.execute(
        f"SELECT {COLUMNS} FROM idempotency_key WHERE client_id = ? AND key = ?", (client_id, key)
    ).fetchone()
    return KeptAnswer(*row) if row else None


def keep_answer(tx: Transaction, kept: KeptAnswer) -> None:
    """Keeps an answer under the client's key, instead of what was there."""
    tx.execute(
        f"INSERT OR REPLACE INTO idempotency_key ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        msgspec.structs.astuple(kept),
    )


def delete_answers_until(tx: Transaction, time: int, limit: int) -> int:
    """Forgets the oldest answers of those kept at `time` or before, at most `limit` of them; returns how many."""
    oldest = tx.execute(
        "SELECT id FROM idempotency_key WHERE created_at <= ? ORDER BY created_at LIMIT ?", (time, limit)
    ).fetchall()
    for row in oldest:
        tx.execute("DELETE FROM idempotency_key WHERE id = ?", row)
    return len(oldest)
