"""SQL of codes of an app (TOTP), and of recovery codes."""

from collections.abc import Sequence

import msgspec

from payres.accounts.store.kinds import Kind, delete_of
from payres.core.store.rows import Rows, Table, insert_row, number
from payres.core.store.work import Transaction


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
RECOVERY_CODE_TABLE = Rows("recovery_code")


def find_totp(tx: Transaction, kind: Kind, account_id: int) -> TotpRecord | None:
    """The account's codes, also before they are confirmed."""
    return TOTP.find(tx, f"WHERE {kind.column} = ?", account_id)


def replace_totp(tx: Transaction, kind: Kind, account_id: int, secret: bytes, now: int) -> None:
    """Stores codes that are not confirmed, in place of earlier ones."""
    delete_of(tx, kind, account_id, "totp")
    insert_row(tx, "totp", **{kind.column: account_id}, secret=secret, created_at=now)


def replace_recovery_codes(tx: Transaction, kind: Kind, account_id: int, hashes: Sequence[bytes], now: int) -> None:
    """Stores recovery codes in place of all earlier ones."""
    delete_of(tx, kind, account_id, "recovery_code")
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
