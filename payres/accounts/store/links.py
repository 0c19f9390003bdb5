"""SQL of links that set a password, one of an account at most."""

from payres.accounts.store.kinds import Kind
from payres.core.protocol.clock import lasts
from payres.core.store.work import Transaction


def replace_link(tx: Transaction, kind: Kind, link_hash: bytes, account_id: int, expires_at: int) -> None:
    """Stores a link that sets the account's password, in place of an earlier one."""
    stored = f"INSERT OR REPLACE INTO password_link (link_hash, {kind.column}, expires_at) VALUES (?, ?, ?)"
    tx.execute(stored, (link_hash, account_id, expires_at))


def delete_link(tx: Transaction, kind: Kind, link_hash: bytes) -> None:
    tx.execute(f"DELETE FROM password_link WHERE link_hash = ? AND {kind.column} IS NOT NULL", (link_hash,))


def account_of_link(tx: Transaction, kind: Kind, link_hash: bytes, now: int) -> int | None:
    """The id of the account of a link that has not expired; None for a link of the other kind too."""
    found = f"SELECT {kind.column}, expires_at FROM password_link WHERE link_hash = ?"
    row = tx.execute(found, (link_hash,)).fetchone()
    return row[0] if row is not None and lasts(row[1], now, kind.link_lifetime) else None
