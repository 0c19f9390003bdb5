"""SQL of the keys of programs that use the operator's API."""

from collections.abc import Sequence

import msgspec

from payres.store.pages import PageBounds, PageQuery, select_page
from payres.store.rows import Table
from payres.store.work import Transaction


class ApiKeyRecord(msgspec.Struct, frozen=True):
    """A row of `api_key`. scopes is a JSON array."""

    id: str
    name: str
    secret_hash: bytes
    scopes: str
    created_at: int
    expires_at: int | None
    revoked_at: int | None = None
    last_used_at: int | None = None


API_KEYS = Table(ApiKeyRecord, "api_key")


def insert_api_key(tx: Transaction, key: ApiKeyRecord) -> None:
    API_KEYS.insert(tx, key)


def find_api_key(tx: Transaction, key_id: str) -> ApiKeyRecord | None:
    return API_KEYS.find(tx, "WHERE id = ?", key_id)


def list_api_keys(tx: Transaction) -> Sequence[ApiKeyRecord]:
    """All keys, newest first."""
    return API_KEYS.list(tx, "ORDER BY id DESC")


def page_of_api_keys(tx: Transaction, query: PageQuery) -> tuple[Sequence[ApiKeyRecord], PageBounds]:
    """A page, newest first."""
    return select_page(tx, API_KEYS, query, {})


def revoke_api_key(tx: Transaction, key_id: str, now: int) -> None:
    tx.execute("UPDATE api_key SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", (now, key_id))


def note_use(tx: Transaction, key_id: str, now: int) -> None:
    tx.execute("UPDATE api_key SET last_used_at = ? WHERE id = ?", (now, key_id))
