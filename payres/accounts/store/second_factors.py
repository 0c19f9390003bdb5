"""SQL of half sign-ins, which wait for a second step, and of the removal of all second steps."""

from typing import Final

from payres.accounts.store.kinds import Kind
from payres.core.protocol.clock import DAY, MINUTE, lasts
from payres.core.store.retention import Rule, purge
from payres.core.store.rows import Rows, find_number, insert_row
from payres.core.store.work import Transaction

HALF_LIFETIME: Final = 10 * MINUTE
REMOVAL_DELAY: Final = DAY  # in which the owner can say no
HALF_SIGN_IN_TABLE = Rows("half_sign_in")
REMOVALS = Rows("factor_removal")
HALF_SIGN_INS = Rule("half_sign_in", "expires_at", "id_hash")


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


def removal_due_at(tx: Transaction, kind: Kind, account_id: int, now: int) -> int | None:
    """When the account's second factors are removed, in a day at the latest; None unless an operator wants that."""
    found = f"SELECT min(due_at, ?) FROM factor_removal WHERE {kind.column} = ?"
    return find_number(tx, found, now + REMOVAL_DELAY, account_id)


def limit_removal(tx: Transaction, kind: Kind, account_id: int, latest: int) -> None:
    """Makes a removal due at the latest then."""
    tx.execute(f"UPDATE factor_removal SET due_at = min(due_at, ?) WHERE {kind.column} = ?", (latest, account_id))


def removal_reason(tx: Transaction, kind: Kind, account_id: int) -> str | None:
    """What the operator wrote who asked for the removal of the account's second factors."""
    found = tx.execute(f"SELECT why FROM factor_removal WHERE {kind.column} = ?", (account_id,)).fetchone()
    return found[0] if found else None
