"""SQL of access tokens, and the one query that every authorized request begins with."""

import msgspec

from payres.store.rows import Table, find_number
from payres.store.work import Damaged, Transaction


class TokenRecord(msgspec.Struct, frozen=True):
    """A row of `access_token`."""

    id: str
    grant_id: str
    value_hash: bytes
    created_at: int
    expires_at: int
    revoked_at: int | None


class TokenHolder(msgspec.Struct, frozen=True):
    """An access token with what must be known to judge a request made with it.

    grant_stays is 1 when the grant will not be purged, and then forever.
    """

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
    grant_stays: int = 0


TOKENS = Table(TokenRecord, "access_token")
HOLDERS = Table(
    TokenHolder,
    'access_token t JOIN "grant" g ON g.id = t.grant_id JOIN client c ON c.id = g.client_id',
    prefix="t.",
    token_id="t.id",  # noqa: S106 - a column
    grant_state="g.state",
    access="g.access",
    client_id="c.id",
    client_identity="c.identity",
    client_wallet_address="c.wallet_address",
    client_jwk="c.jwk",
    grant_stays="g.purge_at IS NULL",
)


def find_holder(tx: Transaction, value_hash: bytes) -> TokenHolder | None:
    """Found by the hash, so the time this takes says nothing about the token."""
    return HOLDERS.find(tx, "WHERE t.value_hash = ?", value_hash)


def authorization_revision(tx: Transaction) -> int:
    """A number that is another one once anything has changed that `find_holder` and the client's keys are read from,
    of a grant that stays. Raises Damaged."""
    revision = find_number(tx, "SELECT revision FROM authorization_revision WHERE id = 1")
    if revision is None:
        raise Damaged("authorization_revision has no row")
    return revision


def token_state(tx: Transaction, token_id: str) -> tuple[int, int | None, str]:
    """When the token expires, when it was revoked if it was, and the state of its grant.

    One that is no longer there has ended long ago.
    """
    row: tuple[int, int | None, str] | None = tx.execute(
        'SELECT t.expires_at, t.revoked_at, g.state FROM access_token t JOIN "grant" g ON g.id = t.grant_id'
        " WHERE t.id = ?",
        (token_id,),
    ).fetchone()
    return (0, 0, "revoked") if row is None else row


def revoke_token(tx: Transaction, token_id: str, now: int) -> bool:
    """Whether the token was valid."""
    cursor = tx.execute("UPDATE access_token SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", (now, token_id))
    return cursor.rowcount == 1


def revoke_tokens_of_grant(tx: Transaction, grant_id: str, now: int) -> None:
    tx.execute("UPDATE access_token SET revoked_at = ? WHERE grant_id = ? AND revoked_at IS NULL", (now, grant_id))
