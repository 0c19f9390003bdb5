"""SQL of passkeys, and of the challenges that one has signed."""

from collections.abc import Sequence
from typing import Final

import msgspec

from payres.accounts.store.kinds import Kind
from payres.core.store.retention import Rule, purge
from payres.core.store.rows import Table, json_column, number
from payres.core.store.work import Transaction

CHALLENGES: Final = Rule("used_challenge", "expires_at", "hash")


class PasskeyRecord(msgspec.Struct, frozen=True):
    """A row of `passkey`, which is an owner's or an operator's."""

    id: str
    user_handle: bytes
    credential_id: bytes
    public_key: bytes
    sign_count: int
    is_backed_up: int
    transports: Sequence[str]
    name: str
    created_at: int
    owner_id: int | None = None
    operator_id: int | None = None
    last_used_at: int | None = None
    suspect_at: int | None = None


PASSKEY_TABLE = Table(PasskeyRecord, "passkey", transports=json_column("transports"))


def passkeys_of(tx: Transaction, kind: Kind, account_id: int) -> Sequence[PasskeyRecord]:
    """The passkeys of an account, the oldest first."""
    return PASSKEY_TABLE.list(tx, f"WHERE {kind.column} = ? ORDER BY id", account_id)


def count_passkeys(tx: Transaction, kind: Kind, account_id: int) -> int:
    """How many are taken: one that may have been copied is not."""
    return number(tx, f"SELECT count(*) FROM passkey WHERE {kind.column} = ? AND suspect_at IS NULL", account_id)


def use_challenge(tx: Transaction, challenge_hash: bytes, expires_at: int, now: int) -> bool:
    """Stores a challenge as used until it expires; False if it was before."""
    purge(tx, CHALLENGES, now)
    stored = "INSERT INTO used_challenge (hash, expires_at) VALUES (?, ?) ON CONFLICT DO NOTHING"
    return tx.execute(stored, (challenge_hash, expires_at)).rowcount == 1
