"""SQL of clients: the keys of those without a wallet here, the nonces of their signatures (against replay), and the
responses cached under their idempotency keys.
"""

from collections.abc import Sequence

import msgspec

from payres.core.store.retention import NONCES, purge
from payres.core.store.rows import Table
from payres.core.store.work import Transaction


class Client(msgspec.Struct, frozen=True):
    """A client. Exactly one of wallet_address (as first written) and jwk (JSON of its public members) is present."""

    identity: str
    wallet_address: str | None
    jwk: str | None


class ClientRecord(Client, frozen=True):
    """A row of `client`."""

    id: int


class ClientKeyRecord(msgspec.Struct, frozen=True):
    """A key of a client without a wallet here.

    good_until (microseconds) is the expiry of a key fetched from another server; None for a presented key.
    """

    kid: str
    x: str
    good_until: int | None


CLIENTS = Table(ClientRecord, "client", key="id")
KEYS = Table(ClientKeyRecord, "client_key k JOIN client c ON c.id = k.client_id", prefix="k.")


def ensure_client(
    tx: Transaction, identity: str, wallet_address: str | None, jwk: str | None, now: int, purge_at: int | None = None
) -> ClientRecord:
    """The client, stored on its first request. If its key came with another kid, the newest JWK is kept.

    `purge_at` is when to check whether a new client is still needed; None leaves the check to the purge of its grants.
    """
    tx.execute(
        "INSERT INTO client (identity, wallet_address, jwk, created_at, purge_at) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET jwk = excluded.jwk WHERE jwk <> excluded.jwk",
        (identity, wallet_address, jwk, now, purge_at),
    )
    client = CLIENTS.find(tx, identity=identity)
    assert client is not None
    return client


def client_keys(tx: Transaction, identity: str) -> Sequence[ClientKeyRecord]:
    return KEYS.list(tx, "WHERE c.identity = ?", identity)


def replace_remote_keys(
    tx: Transaction, client_id: int, keys: Sequence[tuple[str, str]], now: int, good_until: int
) -> None:
    """Replaces the client's keys by those just fetched, pairs of kid and x."""
    tx.execute("DELETE FROM client_key WHERE client_id = ?", (client_id,))
    tx.executemany(
        "INSERT OR REPLACE INTO client_key (client_id, kid, x, fetched_at, good_until) VALUES (?, ?, ?, ?, ?)",
        [(client_id, kid, x, now, good_until) for kid, x in keys],
    )


def store_presented_key(tx: Transaction, client_id: int, kid: str, x: str, most: int, now: int) -> None:
    """Stores a kid that the client presented its key with; only the `most` newest of its kids are kept."""
    tx.execute(
        "INSERT OR REPLACE INTO client_key (client_id, kid, x, fetched_at) VALUES (?, ?, ?, ?)",
        (client_id, kid, x, now),
    )
    stored = tx.execute("SELECT kid, fetched_at FROM client_key WHERE client_id = ?", (client_id,)).fetchall()
    oldest_first = sorted(stored, key=lambda row: (row[0] == kid, row[1]))
    for surplus, _ in oldest_first[:-most]:
        tx.execute("DELETE FROM client_key WHERE client_id = ? AND kid = ?", (client_id, surplus))


def use_nonce(tx: Transaction, client_id: int, kid: str, nonce: str, expires_at: int, now: int) -> bool:
    """Whether the nonce was unused with this key, or only used in a signature that expired before `now`.

    `now` is when the request arrived, so that waiting, for example for the client's keys, changes nothing. `expires_at`
    is when its signature expires.
    """
    purge(tx, NONCES, now)
    cursor = tx.execute(
        "INSERT INTO signature_nonce (client_id, kid, nonce, expires_at) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (client_id, kid, nonce) DO UPDATE SET expires_at = excluded.expires_at"
        " WHERE signature_nonce.expires_at < ?",
        (client_id, kid, nonce, expires_at, now),
    )
    return cursor.rowcount == 1


class CachedResponse(msgspec.Struct, frozen=True):
    """A row of `idempotency_key`: a request that created something, its SHA-256, and the body of its response.

    The request came from a client or an operator's API key; the id of the other is None.
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
        return RESPONSES.find(tx, client_id=client_id, key=key)
    return RESPONSES.find(tx, api_key_id=api_key_id, key=key)
