"""SQL of idempotency keys, and of the responses that are cached under them."""

import msgspec

from payres.store.rows import Table
from payres.store.work import Transaction


class CachedResponse(msgspec.Struct, frozen=True):
    """A row of `idempotency_key`: a request that created something, the SHA-256 of it, and the body of its response.

    It is a client's, or of a program with an API key of the operator; the other of the two is None.
    """

    client_id: int | None
    api_key_id: str | None
    key: str
    path: str
    body_hash: bytes
    response: bytes
    created_at: int


RESPONSES = Table(CachedResponse, "idempotency_key")


def find_response(tx: Transaction, client_id: int | None, api_key_id: str | None, key: str) -> CachedResponse | None:
    if client_id is not None:
        return RESPONSES.find(tx, "WHERE client_id = ? AND key = ?", client_id, key)
    return RESPONSES.find(tx, "WHERE api_key_id = ? AND key = ?", api_key_id, key)


def delete_responses_until(tx: Transaction, time: int, limit: int) -> None:
    """Deletes the oldest responses of those stored at `time` or before, at most `limit` of them."""
    oldest = tx.execute(
        "SELECT id FROM idempotency_key WHERE created_at <= ? ORDER BY created_at LIMIT ?", (time, limit)
    ).fetchall()
    tx.executemany("DELETE FROM idempotency_key WHERE id = ?", oldest)
