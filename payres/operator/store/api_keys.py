"""SQL of the keys of programs that use the operator's API."""

from collections.abc import Sequence

import msgspec

from payres.core.store.rows import Table, json_column


class ApiKeyRecord(msgspec.Struct, frozen=True):
    """A row of `api_key`; `made_by` is the key that created it, if any."""

    id: str
    name: str
    secret_hash: bytes
    scopes: Sequence[str]
    created_at: int
    expires_at: int | None
    revoked_at: int | None = None
    last_used_at: int | None = None
    made_by: str | None = None

    @property
    def actor(self) -> str:
        """The key's name in the audit log."""
        return f"api:{self.id}"


API_KEYS = Table(ApiKeyRecord, "api_key", scopes=json_column("scopes"))
