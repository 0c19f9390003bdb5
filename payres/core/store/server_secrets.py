"""SQL of the server's secrets, and what is encrypted with them."""

import os
import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from payres.core.store.migrations import UnusableDatabase
from payres.core.store.work import Damaged, Transaction

NONCE_BYTES = 12


def ensure_secret(tx: Transaction, name: str, value: bytes | None = None) -> bytes:
    """The named secret, created if needed: 32 random bytes, or this value. Needs a writing transaction."""
    made = value or secrets.token_bytes(32)
    tx.execute("INSERT INTO secret (name, value) VALUES (?, ?) ON CONFLICT DO NOTHING", (name, made))
    return existing_secret(tx, name)


def existing_secret(tx: Transaction, name: str) -> bytes:
    """The named secret, which a server must have created. Raises UnusableDatabase if missing."""
    found = find_secret(tx, name)
    if found is None:
        raise UnusableDatabase("No server has had this database yet: start the primary server, and try again")
    return found


def encrypt(tx: Transaction, name: str, text: str) -> bytes:
    """Encrypts a text with the named secret. Needs a writing transaction."""
    nonce = os.urandom(NONCE_BYTES)
    return nonce + AESGCM(ensure_secret(tx, name)).encrypt(nonce, text.encode(), None)


def decrypt(tx: Transaction, name: str, encrypted: bytes) -> str:
    """Decrypts a text with the named secret. Raises Damaged if the secret is missing or does not match."""
    secret = find_secret(tx, name)
    if secret is None:
        raise Damaged(f"the secret {name} does not exist")
    try:
        return AESGCM(secret).decrypt(encrypted[:NONCE_BYTES], encrypted[NONCE_BYTES:], None).decode()
    except (InvalidTag, ValueError) as error:
        raise Damaged(f"a value encrypted with the secret {name}, or the secret itself, was changed") from error


def find_secret(tx: Transaction, name: str) -> bytes | None:
    """The named value."""
    row = tx.execute("SELECT value FROM secret WHERE name = ?", (name,)).fetchone()
    return None if row is None else bytes(row[0])
