"""SQL of idempotency keys, and of the responses that are cached under them."""

import msgspec

from payres.store.rows import Table
from payres.store.work import Transaction


class CachedResponse(msgspec.Struct, frozen=True):
    """A row of `idempotency_key`: a request that created something, the SHA-256 of it, and the body of its response."""

    client_id: int
    key: str
    path: str
    body_hash: bytes
    response: bytes
    created_at: int


RESPONSES = Table(CachedResponse, "idempotency_key")


def find_response(tx: Transaction, client_id: int, key: str) -> CachedResponse | None:
    return RESPONSES.find(tx, "WHERE client_id = ? AND key = ?", client_id, key)


def store_response(tx: Transaction, cached: CachedResponse) -> None:
    """Stores a response under the client's key, in place of an older one."""
    tx.execute(f"INSERT OR REPLACE {RESPONSES.into}", msgspec.structs.astuple(cached))


def delete_responses_until(tx: Transaction, time: int, limit: int) -> None:
    """Deletes the oldest responses of those stored at `time` or before, at most `limit` of them."""
    oldest = tx.execute(
        "SELECT id FROM idempotency_key WHERE created_at <= ? ORDER BY created_at LIMIT ?", (time, limit)
    ).fetchall()
    tx.executemany("DELETE FROM idempotency_key WHERE id = ?", oldest)
