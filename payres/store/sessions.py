"""SQL of the browsers of wallet owners: those that are signed in, and those that a wallet knows."""

from typing import Final

from payres.clock import DAY
from payres.limits import KNOWN_BROWSER_DAYS, MAX_KNOWN_BROWSERS
from payres.store.retention import BROWSERS, SESSIONS, purge
from payres.store.rows import find_number, insert_row, number
from payres.store.work import Transaction

BROWSER_LIFETIME: Final = KNOWN_BROWSER_DAYS * DAY


def insert_session(tx: Transaction, id_hash: bytes, wallet_id: int, now: int, expires_at: int) -> None:
    """Stores a new session and deletes those that have ended."""
    purge(tx, SESSIONS, now)
    insert_row(tx, "session", id_hash=id_hash, wallet_address_id=wallet_id, created_at=now, expires_at=expires_at)


def session_wallet(tx: Transaction, id_hash: bytes, now: int) -> int | None:
    """The id of the wallet address whose owner is signed in, or None."""
    return find_number(tx, "SELECT wallet_address_id FROM session WHERE id_hash = ? AND expires_at > ?", id_hash, now)


def delete_session(tx: Transaction, id_hash: bytes) -> None:
    tx.execute("DELETE FROM session WHERE id_hash = ?", (id_hash,))


def delete_sessions_of_wallet(tx: Transaction, wallet_id: int) -> None:
    """Signs the owner out everywhere."""
    tx.execute("DELETE FROM session WHERE wallet_address_id = ?", (wallet_id,))


def insert_browser(tx: Transaction, id_hash: bytes, wallet_id: int, now: int) -> None:
    """Stores that the wallet knows a browser, and deletes those that it knew for too long, or too many."""
    purge(tx, BROWSERS, now)
    insert_row(tx, "known_browser", id_hash=id_hash, wallet_address_id=wallet_id, expires_at=now + BROWSER_LIFETIME)
    surplus = tx.execute(
        "SELECT id_hash FROM known_browser WHERE wallet_address_id = ? ORDER BY expires_at DESC LIMIT -1 OFFSET ?",
        (wallet_id, MAX_KNOWN_BROWSERS),
    ).fetchall()
    tx.executemany("DELETE FROM known_browser WHERE id_hash = ?", surplus)


def knows_browser(tx: Transaction, id_hash: bytes, wallet_id: int, now: int) -> bool:
    """Whether the wallet's owner has signed in with this browser, and it is still known."""
    known = "SELECT 1 FROM known_browser WHERE id_hash = ? AND wallet_address_id = ? AND expires_at > ?"
    return number(tx, known, id_hash, wallet_id, now) == 1


def delete_browser(tx: Transaction, id_hash: bytes, wallet_id: int) -> None:
    tx.execute("DELETE FROM known_browser WHERE id_hash = ? AND wallet_address_id = ?", (id_hash, wallet_id))


def delete_browsers_of_wallet(tx: Transaction, wallet_id: int) -> None:
    """Makes every browser unknown to the wallet."""
    tx.execute("DELETE FROM known_browser WHERE wallet_address_id = ?", (wallet_id,))
