"""SQL of idempotency keys, and of the responses that are cached under them."""

import msgspec

from payres.store.work import Transaction


class CachedResponse(msgspec.Struct, frozen=True):
    """A row of `idempotency_key`: a request that created something, the SHA-256 of it, and the body of its response."""

    client_id: int
    key: str
    path: str
    body_hash: bytes
    response: bytes
    created_at: int


COLUMNS = "client_id, key, path, body_hash, response, created_at"


def find_response(tx: Transaction, client_id: int, key: str) -> CachedResponse | None:
    row = tx.execute(
        f"SELECT {COLUMNS} FROM idempotency_key WHERE client_id = ? AND key = ?", (client_id, key)
    ).fetchone()
    return CachedResponse(*row) if row else None


def store_response(tx: Transaction, cached: CachedResponse) -> None:
    """Stores a response under the client's key, in place of an older one."""
    tx.execute(
        f"INSERT OR REPLACE INTO idempotency_key ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)",
        msgspec.structs.astuple(cached),
    )


def delete_responses_until(tx: Transaction, time: int, limit: int) -> None:
    """Deletes the oldest responses of those stored at `time` or before, at most `limit` of them."""
    oldest = tx.execute(
        "SELECT id FROM idempotency_key WHERE created_at <= ? ORDER BY created_at LIMIT ?", (time, limit)
    ).fetchall()
    tx.executemany("DELETE FROM idempotency_key WHERE id = ?", oldest)
