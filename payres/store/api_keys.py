"""SQL of the keys of programs that use the operator's API."""

from collections.abc import Sequence

import msgspec

from payres.store.rows import Table, json_column
from payres.store.work import Transaction


class ApiKeyRecord(msgspec.Struct, frozen=True):
    """A row of `api_key`."""

    id: str
    name: str
    secret_hash: bytes
    scopes: Sequence[str]
    created_at: int
    expires_at: int | None
    revoked_at: int | None = None
    last_used_at: int | None = None

    @property
    def actor(self) -> str:
        """The key as the audit log names the actor."""
        return f"api:{self.id}"


API_KEYS = Table(ApiKeyRecord, "api_key", scopes=json_column("scopes"))


def list_api_keys(tx: Transaction) -> Sequence[ApiKeyRecord]:
    """All keys, newest first."""
    return API_KEYS.list(tx, "ORDER BY id DESC")
