"""SQL of the signed-in browsers of wallet owners."""

from payres.clock import DAY
from payres.store.rows import insert_row
from payres.store.work import Transaction

REMEMBERED = 30 * DAY


def insert_session(tx: Transaction, id_hash: bytes, wallet_id: int, now: int, expires_at: int) -> None:
    """Stores a new session and deletes those whose browsers were not used for long."""
    tx.execute("DELETE FROM session WHERE expires_at <= ?", (now - REMEMBERED,))
    insert_row(tx, "session", id_hash=id_hash, wallet_address_id=wallet_id, created_at=now, expires_at=expires_at)


def session_wallet(tx: Transaction, id_hash: bytes, now: int) -> int | None:
    """The id of the wallet address whose owner is signed in, or None."""
    row = tx.execute(
        "SELECT wallet_address_id FROM session WHERE id_hash = ? AND expires_at > ?", (id_hash, now)
    ).fetchone()
    return row[0] if row else None


def knows_browser(tx: Transaction, id_hash: bytes, wallet_id: int, now: int) -> bool:
    """Whether the owner has signed in with this browser lately, also when that session has ended."""
    row = tx.execute(
        "SELECT 1 FROM session WHERE id_hash = ? AND wallet_address_id = ? AND created_at > ?",
        (id_hash, wallet_id, now - REMEMBERED),
    ).fetchone()
    return row is not None


def delete_session(tx: Transaction, id_hash: bytes) -> None:
    tx.execute("DELETE FROM session WHERE id_hash = ?", (id_hash,))


def delete_sessions_of_wallet(tx: Transaction, wallet_id: int) -> None:
    """Signs the owner out everywhere."""
    tx.execute("DELETE FROM session WHERE wallet_address_id = ?", (wallet_id,))
