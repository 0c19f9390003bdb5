"""SQL of clients, and of the keys of those without a wallet here."""

from collections.abc import Sequence
from typing import Final

import msgspec

from payres.clock import DAY, HOUR
from payres.store.rows import Table
from payres.store.work import Transaction

# Microseconds until a new client without a grant is purged. Its keys and nonces are good for minutes.
CLIENT_RETENTION: Final = DAY
CLIENTS_PER_PURGE: Final = 4

NEEDS_CLIENT: Final = " OR ".join(
    f'EXISTS (SELECT 1 FROM "{table}" WHERE client_id = :client)'
    for table in ("grant", "incoming_payment", "quote", "outgoing_payment", "idempotency_key")
)


class ClientRecord(msgspec.Struct, frozen=True):
    """A client. Exactly one of wallet_address (as first written) and jwk (JSON of its public members) is present."""

    id: int
    identity: str
    wallet_address: str | None
    jwk: str | None


class ClientKeyRecord(msgspec.Struct, frozen=True):
    """A key of a client without a wallet here.

    good_until (microseconds) is when one of another server is to be fetched again, None for what the client presented.
    """

    kid: str
    x: str
    good_until: int | None


CLIENTS = Table(ClientRecord, "client")
KEYS = Table(ClientKeyRecord, "client_key k JOIN client c ON c.id = k.client_id", prefix="k.")


def find_client(tx: Transaction, identity: str) -> ClientRecord | None:
    return CLIENTS.find(tx, "WHERE identity = ?", identity)


def ensure_client(
    tx: Transaction,
    identity: str,
    wallet_address: str | None,
    jwk: str | None,
    now: int,
    purge_at: int | None = None,
) -> ClientRecord:
    """The client, stored from its first request on; of a key that came with another kid, the newest counts.

    `purge_at` is when to see whether a new one is needed any more; None when nobody need look before it had a grant.
    """
    tx.execute(
        "INSERT INTO client (identity, wallet_address, jwk, created_at, purge_at) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET jwk = excluded.jwk WHERE jwk <> excluded.jwk",
        (identity, wallet_address, jwk, now, purge_at),
    )
    client = find_client(tx, identity)
    assert client is not None
    return client


def client_keys(tx: Transaction, identity: str) -> Sequence[ClientKeyRecord]:
    return KEYS.list(tx, "WHERE c.identity = ?", identity)


def replace_remote_keys(
    tx: Transaction, client_id: int, keys: Sequence[tuple[str, str]], now: int, good_until: int
) -> None:
    """Stores what was just fetched, as pairs of kid and x, in place of what was there."""
    tx.execute("DELETE FROM client_key WHERE client_id = ?", (client_id,))
    tx.executemany(
        "INSERT OR REPLACE INTO client_key (client_id, kid, x, fetched_at, good_until) VALUES (?, ?, ?, ?, ?)",
        [(client_id, kid, x, now, good_until) for kid, x in keys],
    )


def store_presented_key(tx: Transaction, client_id: int, kid: str, x: str, most: int, now: int) -> None:
    """Stores a kid that a client presented its key with; of all its kids the `most` presented last stay."""
    tx.execute(
        "INSERT OR REPLACE INTO client_key (client_id, kid, x, fetched_at) VALUES (?, ?, ?, ?)",
        (client_id, kid, x, now),
    )
    stored = tx.execute("SELECT kid, fetched_at FROM client_key WHERE client_id = ?", (client_id,)).fetchall()
    oldest_first = sorted(stored, key=lambda row: (row[0] == kid, row[1]))
    for surplus, _ in oldest_first[:-most]:
        tx.execute("DELETE FROM client_key WHERE client_id = ? AND kid = ?", (client_id, surplus))


def purge_clients(tx: Transaction, now: int) -> None:
    """Deletes a few of the clients that are due and that nothing refers to."""
    for (client_id,) in tx.execute(
        "SELECT id FROM client WHERE purge_at <= ? ORDER BY purge_at LIMIT ?", (now, CLIENTS_PER_PURGE)
    ).fetchall():
        purge_client(tx, client_id, now)


def purge_client(tx: Transaction, client_id: int, now: int) -> None:
    """Deletes the client unless something refers to it."""
    client = {"client": client_id}
    if tx.execute(f"SELECT {NEEDS_CLIENT}", client).fetchone()[0]:
        # The purge of the last of its grants and quotes comes here again.
        tx.execute("UPDATE client SET purge_at = NULL WHERE id = :client", client)
    elif tx.execute("SELECT EXISTS (SELECT 1 FROM signature_nonce WHERE client_id = :client)", client).fetchone()[0]:
        # Nobody may replay its signatures while they are valid.
        tx.execute("UPDATE client SET purge_at = :later WHERE id = :client", client | {"later": now + HOUR})
    else:
        tx.execute("DELETE FROM client_key WHERE client_id = :client", client)
        tx.execute("DELETE FROM client WHERE id = :client", client)
