"""SQL of the server's own secrets, made at first use and kept in the database file."""

import secrets

from payres.store.database import Transaction


def ensure_secret(tx: Transaction, name: str, length: int = 32) -> bytes:
    """The named secret: random bytes from the first call on. Needs a writing transaction."""
    tx.execute(
        "INSERT INTO secret (name, value) VALUES (?, ?) ON CONFLICT DO NOTHING", (name, secrets.token_bytes(length))
    )
    value: bytes = tx.execute("SELECT value FROM secret WHERE name = ?", (name,)).fetchone()[0]
    return value
