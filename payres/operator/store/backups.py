"""SQL of backups, restores and takeovers, which the audit log has."""

from typing import NamedTuple

from payres.core.store.rows import find_number
from payres.core.store.work import Transaction


def last_backup(tx: Transaction, now: int) -> int | None:
    """When the last backup was made, not counting those of a clock that was ahead."""
    backups = "FROM audit WHERE action = 'database.backup' AND created_at <= ?"
    return find_number(tx, f"SELECT created_at {backups} ORDER BY id DESC LIMIT 1", now)


def maker_of_backup(tx: Transaction, path: str) -> str | None:
    """Who made the backup with this path, if the audit log says so."""
    sql = "SELECT actor FROM audit WHERE action = 'database.backup' AND object = ? ORDER BY id DESC LIMIT 1"
    row = tx.execute(sql, (path,)).fetchone()
    return None if row is None else str(row[0])


def last_restore(tx: Transaction) -> int | None:
    sql = "SELECT created_at FROM audit WHERE action = 'database.restore' ORDER BY id DESC LIMIT 1"
    return find_number(tx, sql)


class Takeover(NamedTuple):
    """Another server was found at the base URL, with a later state of this database: its `restored_at`."""

    found_at: int
    base_url: str
    restored_at: str


def takeover(tx: Transaction) -> Takeover | None:
    """The last takeover in the audit log since the database was last restored."""
    row = tx.execute(
        "SELECT created_at, object, details ->> 'restoredAt' FROM audit WHERE action = 'database.superseded'"
        " AND created_at >= ? ORDER BY id DESC LIMIT 1",
        (last_restore(tx) or 0,),
    ).fetchone()
    return None if row is None else Takeover(*row)
