"""SQL of second factors: codes of an app (TOTP), recovery codes, half sign-ins and removals.

The accounts are of two kinds, as in `sessions`: a row has the column of its kind set.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from payres.accounts.store.sessions import Kind
from payres.core.protocol.clock import MINUTE, lasts
from payres.core.store.retention import Rule, purge
from payres.core.store.rows import Table, find_number, insert_row, number
from payres.core.store.work import Transaction

HALF_LIFETIME: Final = 10 * MINUTE
HALF_SIGN_INS = Rule("half_sign_in", "expires_at", "id_hash")


class TotpRecord(msgspec.Struct, frozen=True):
    """An account's codes. They count from confirmed_at on; `secret` is encrypted, last_step is that of the last code,
    and `wrong` counts wrong codes in a row."""

    id: int
    secret: bytes
    created_at: int
    confirmed_at: int | None
    last_step: int
    wrong: int


TOTP = Table(TotpRecord, "totp")


def find_totp(tx: Transaction, kind: Kind, account_id: int) -> TotpRecord | None:
    """The account's codes, also before they are confirmed."""
    return TOTP.find(tx, f"WHERE {kind.column} = ?", account_id)


def replace_totp(tx: Transaction, kind: Kind, account_id: int, secret: bytes, now: int) -> None:
    """Stores codes that are not confirmed, in place of earlier ones."""
    delete_totp(tx, kind, account_id)
    insert_row(tx, "totp", **{kind.column: account_id}, secret=secret, created_at=now)


def delete_totp(tx: Transaction, kind: Kind, account_id: int) -> None:
    tx.execute(f"DELETE FROM totp WHERE {kind.column} = ?", (account_id,))


def count_passkeys(tx: Transaction, kind: Kind, account_id: int) -> int:
    """How many are taken. One that may have been copied is not, and so it is no second factor either."""
    return number(tx, f"SELECT count(*) FROM passkey WHERE {kind.column} = ? AND suspect_at IS NULL", account_id)


def replace_recovery_codes(tx: Transaction, kind: Kind, account_id: int, hashes: Sequence[bytes], now: int) -> None:
    """Stores recovery codes in place of all earlier ones."""
    tx.execute(f"DELETE FROM recovery_code WHERE {kind.column} = ?", (account_id,))
    add_recovery_codes(tx, kind, account_id, hashes, now)


def add_recovery_codes(tx: Transaction, kind: Kind, account_id: int, hashes: Sequence[bytes], now: int) -> None:
    """Stores recovery codes beside those that there are."""
    stored = f"INSERT INTO recovery_code (hash, {kind.column}, created_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
    tx.executemany(stored, [(one, account_id, now) for one in hashes])


def count_recovery_codes(tx: Transaction, kind: Kind, account_id: int) -> int:
    """How many were not used."""
    return number(tx, f"SELECT count(*) FROM recovery_code WHERE {kind.column} = ? AND used_at IS NULL", account_id)


def use_recovery_code(tx: Transaction, kind: Kind, account_id: int, code_hash: bytes, now: int) -> bool:
    """Whether this is a recovery code of the account, which was not used before and now is."""
    used = f"UPDATE recovery_code SET used_at = ? WHERE hash = ? AND {kind.column} = ? AND used_at IS NULL"
    return tx.execute(used, (now, code_hash, account_id)).rowcount == 1


def delete_recovery_code(tx: Transaction, code_hash: bytes) -> None:
    tx.execute("DELETE FROM recovery_code WHERE hash = ?", (code_hash,))


def insert_half_sign_in(
    tx: Transaction, kind: Kind, id_hash: bytes, account_id: int, wallet_id: int | None, now: int
) -> None:
    """Stores that a right password waits for the second factor, and deletes what has waited too long."""
    purge(tx, HALF_SIGN_INS, now)
    values = {"id_hash": id_hash, kind.column: account_id, "created_at": now, "expires_at": now + HALF_LIFETIME}
    insert_row(tx, "half_sign_in", **values, wallet_address_id=wallet_id)


def find_half_sign_in(tx: Transaction, kind: Kind, id_hash: bytes, now: int) -> tuple[int, int | None] | None:
    """The account that waits for its second factor, and the wallet that an owner looks at; None when it is over."""
    found = f"SELECT {kind.column}, wallet_address_id, expires_at FROM half_sign_in WHERE id_hash = ?"
    row = tx.execute(f"{found} AND {kind.column} IS NOT NULL", (id_hash,)).fetchone()
    return (row[0], row[1]) if row is not None and lasts(row[2], now, HALF_LIFETIME) else None


def delete_half_sign_in(tx: Transaction, kind: Kind, id_hash: bytes, account_id: int) -> None:
    tx.execute(f"DELETE FROM half_sign_in WHERE id_hash = ? AND {kind.column} = ?", (id_hash, account_id))


def removal_due_at(tx: Transaction, kind: Kind, account_id: int, latest: int) -> int | None:
    """When the account's second factors are removed, at the latest then; None unless an operator wants that."""
    return find_number(tx, f"SELECT min(due_at, ?) FROM factor_removal WHERE {kind.column} = ?", latest, account_id)


def limit_removal(tx: Transaction, kind: Kind, account_id: int, latest: int) -> None:
    """Makes a removal due at the latest then."""
    tx.execute(f"UPDATE factor_removal SET due_at = min(due_at, ?) WHERE {kind.column} = ?", (latest, account_id))


def insert_removal(tx: Transaction, kind: Kind, account_id: int, now: int, due_at: int) -> None:
    insert_row(tx, "factor_removal", **{kind.column: account_id}, asked_at=now, due_at=due_at)


def delete_removal(tx: Transaction, kind: Kind, account_id: int) -> None:
    tx.execute(f"DELETE FROM factor_removal WHERE {kind.column} = ?", (account_id,))


def delete_factors(tx: Transaction, kind: Kind, account_id: int) -> None:
    """Removes all second factors of an account, and what waits for one."""
    for table in ("totp", "recovery_code", "passkey", "half_sign_in", "factor_removal"):
        tx.execute(f"DELETE FROM {table} WHERE {kind.column} = ?", (account_id,))
