"""SQL of access tokens, and the one query that every authorized request begins with."""

import msgspec

from payres.store.database import Transaction


class TokenRecord(msgspec.Struct, frozen=True):
    """A row of `access_token`."""

    id: str
    grant_id: str
    value_hash: bytes
    created_at: int
    expires_at: int
    revoked_at: int | None


class TokenHolder(msgspec.Struct, frozen=True):
    """An access token with what must be known to judge a request made with it."""

    token_id: str
    expires_at: int
    revoked_at: int | None
    grant_id: str
    grant_state: str
    access: str
    client_id: int
    client_identity: str
    client_wallet_address: str | None
    client_jwk: str | None

    def in_force(self, now: int) -> bool:
        """Whether the token is good: neither it nor its grant has ended."""
        return self.revoked_at is None and self.grant_state == "issued" and now < self.expires_at


COLUMNS = "id, grant_id, value_hash, created_at, expires_at, revoked_at"


def insert_token(tx: Transaction, token: TokenRecord) -> None:
    tx.execute(f"INSERT INTO access_token ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)", msgspec.structs.astuple(token))


def find_token(tx: Transaction, token_id: str) -> TokenRecord | None:
    row = tx.execute(f"SELECT {COLUMNS} FROM access_token WHERE id = ?", (token_id,)).fetchone()
    return TokenRecord(*row) if row else None


def find_holder(tx: Transaction, value_hash: bytes) -> TokenHolder | None:
    """Found by the hash, so the time this takes says nothing about the token."""
    row = tx.execute(
        "SELECT t.id, t.expires_at, t.revoked_at, g.id, g.state, g.access, c.id, c.identity, c.wallet_address, c.jwk"
        ' FROM access_token t JOIN "grant" g ON g.id = t.grant_id JOIN client c ON c.id = g.client_id'
        " WHERE t.value_hash = ?",
        (value_hash,),
    ).fetchone()
    return TokenHolder(*row) if row else None


def token_state(tx: Transaction, token_id: str) -> tuple[int, int | None, str]:
    """When the token expires, when it was revoked if it was, and the state of its grant."""
    row: tuple[int, int | None, str] = tx.execute(
        'SELECT t.expires_at, t.revoked_at, g.state FROM access_token t JOIN "grant" g ON g.id = t.grant_id'
        " WHERE t.id = ?",
        (token_id,),
    ).fetchone()
    return row


def revoke_token(tx: Transaction, token_id: str, now: int) -> bool:
    """Whether the token was in force."""
    cursor = tx.execute("UPDATE access_token SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", (now, token_id))
    return cursor.rowcount == 1


def revoke_tokens_of_grant(tx: Transaction, grant_id: str, now: int) -> None:
    tx.execute("UPDATE access_token SET revoked_at = ? WHERE grant_id = ? AND revoked_at IS NULL", (now, grant_id))
