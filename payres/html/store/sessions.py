"""SQL of sessions and of the browsers that somebody has signed in with."""

from typing import Any, Final, NamedTuple

import msgspec

from payres.core.protocol.clock import DAY, HOUR, MINUTE, lasts
from payres.core.protocol.limits import KNOWN_BROWSER_DAYS, MAX_KNOWN_BROWSERS
from payres.core.store.retention import BROWSERS, SESSIONS, Rule, purge
from payres.core.store.rows import Table, insert_row, number
from payres.core.store.wallets import WALLETS
from payres.core.store.work import Transaction

BROWSER_LIFETIME: Final = KNOWN_BROWSER_DAYS * DAY


class SessionRecord(msgspec.Struct, frozen=True):
    """A browser in which somebody is signed in to an account; created_at is stored for owners alone."""

    id_hash: bytes
    account_id: int
    expires_at: int
    created_at: int


class Kind(NamedTuple):
    """A kind of account with a password: what sentences call it, where accounts, sessions and known browsers are, and
    for how long a session lasts: without being used, and in use."""

    noun: str
    accounts: Table[Any]
    sessions: Table[SessionRecord]
    session_rule: Rule
    rule: Rule
    account: str
    lifetime: int
    longest: int


OF_WALLETS: Final = Kind(
    "wallet",
    WALLETS,
    Table(SessionRecord, "session", account_id="wallet_address_id"),
    SESSIONS,
    BROWSERS,
    "wallet_address_id",
    15 * MINUTE,
    12 * HOUR,
)


def insert_session(tx: Transaction, kind: Kind, id_hash: bytes, account_id: int, now: int) -> None:
    """Stores a new session and deletes those that have ended."""
    purge(tx, kind.session_rule, now)
    created = {"created_at": now} if kind is OF_WALLETS else {}
    values = {"id_hash": id_hash, kind.account: account_id, "expires_at": now + kind.lifetime} | created
    insert_row(tx, kind.session_rule.table, **values)


def find_session(tx: Transaction, kind: Kind, id_hash: bytes, now: int) -> SessionRecord | None:
    """The session, unless it has ended."""
    found = kind.sessions.find(tx, "WHERE id_hash = ?", id_hash)
    return found if found is not None and lasts(found.expires_at, now, kind.lifetime) else None


def extend_session(tx: Transaction, kind: Kind, id_hash: bytes, now: int) -> None:
    """Makes a session last as long as a new one from now on."""
    extended = f"UPDATE {kind.session_rule.table} SET expires_at = ? WHERE id_hash = ?"
    tx.execute(extended, (now + kind.lifetime, id_hash))


def delete_session(tx: Transaction, kind: Kind, id_hash: bytes) -> None:
    tx.execute(f"DELETE FROM {kind.session_rule.table} WHERE id_hash = ?", (id_hash,))


def delete_sessions(tx: Transaction, kind: Kind, account_id: int) -> None:
    """Signs an account out everywhere."""
    tx.execute(f"DELETE FROM {kind.session_rule.table} WHERE {kind.account} = ?", (account_id,))


def insert_browser(tx: Transaction, kind: Kind, id_hash: bytes, account_id: int, now: int) -> None:
    """Stores a browser as known to the account; deletes expired ones, and the oldest of too many."""
    table = kind.rule.table
    purge(tx, kind.rule, now)
    insert_row(tx, table, **{"id_hash": id_hash, kind.account: account_id, "expires_at": now + BROWSER_LIFETIME})
    surplus = tx.execute(
        f"SELECT id_hash FROM {table} WHERE {kind.account} = ? ORDER BY expires_at DESC LIMIT -1 OFFSET ?",
        (account_id, MAX_KNOWN_BROWSERS),
    ).fetchall()
    tx.executemany(f"DELETE FROM {table} WHERE id_hash = ?", surplus)


def knows_browser(tx: Transaction, kind: Kind, id_hash: bytes, account_id: int, now: int) -> bool:
    """Whether the account was signed in to with this browser, which is still known."""
    known = f"SELECT 1 FROM {kind.rule.table} WHERE id_hash = ? AND {kind.account} = ? AND expires_at > ?"
    return number(tx, known, id_hash, account_id, now) == 1


def delete_browser(tx: Transaction, kind: Kind, id_hash: bytes, account_id: int) -> None:
    tx.execute(f"DELETE FROM {kind.rule.table} WHERE id_hash = ? AND {kind.account} = ?", (id_hash, account_id))


def delete_browsers(tx: Transaction, kind: Kind, account_id: int) -> None:
    """Forgets all browsers of the account."""
    tx.execute(f"DELETE FROM {kind.rule.table} WHERE {kind.account} = ?", (account_id,))
