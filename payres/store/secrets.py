"""SQL of the server's own secrets, made at first use; and encryption under them."""

import os
import secrets

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from payres.store.migrations import UnusableDatabase
from payres.store.work import Transaction

NONCE_BYTES = 12


def ensure_secret(tx: Transaction, name: str) -> bytes:
    """The named secret: 32 random bytes from the first call on. Needs a writing transaction."""
    tx.execute("INSERT INTO secret (name, value) VALUES (?, ?) ON CONFLICT DO NOTHING", (name, secrets.token_bytes(32)))
    return existing_secret(tx, name)


def existing_secret(tx: Transaction, name: str) -> bytes:
    """The named secret, which a server has made. Raises UnusableDatabase when none has."""
    row = tx.execute("SELECT value FROM secret WHERE name = ?", (name,)).fetchone()
    if row is None:
        raise UnusableDatabase("No server has had this database yet: start the primary server, and try again")
    return bytes(row[0])


def encrypt(tx: Transaction, name: str, text: str) -> bytes:
    """A text encrypted under the named secret. Needs a writing transaction."""
    nonce = os.urandom(NONCE_BYTES)
    return nonce + AESGCM(ensure_secret(tx, name)).encrypt(nonce, text.encode(), None)


def decrypt(tx: Transaction, name: str, encrypted: bytes) -> str:
    """The text that was encrypted under the named secret."""
    return AESGCM(existing_secret(tx, name)).decrypt(encrypted[:NONCE_BYTES], encrypted[NONCE_BYTES:], None).decode()
