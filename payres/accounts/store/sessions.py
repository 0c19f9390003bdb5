"""SQL of sessions: the browsers in which somebody is signed in."""

from collections.abc import Sequence

import msgspec

from payres.accounts.limits import MAX_SESSIONS
from payres.accounts.store.kinds import Kind, delete_of, delete_surplus
from payres.accounts.store.owners import OF_OWNERS
from payres.accounts.store.sign_ins import NOWHERE, Seen
from payres.core.protocol.clock import lasts
from payres.core.store.retention import Rule, purge
from payres.core.store.rows import Table, insert_row, lasting, number
from payres.core.store.work import Transaction

SESSIONS = Rule("session", "expires_at", "id_hash")


class SessionRecord(msgspec.Struct, frozen=True):
    """A browser in which somebody is signed in to an account; an owner looks at a wallet. verified_at is when a second
    factor was last given."""

    account_id: int
    wallet_id: int | None
    created_at: int
    expires_at: int
    verified_at: int | None = None


class OpenSession(msgspec.Struct, frozen=True):
    """A session as whoever opened it knows it: when and with which browser, and where from."""

    id_hash: bytes
    created_at: int
    expires_at: int
    browser: str | None
    address: str | None


OPEN_SESSIONS = Table(OpenSession, "session")


def insert_session(
    tx: Transaction,
    kind: Kind,
    id_hash: bytes,
    account_id: int,
    now: int,
    wallet_id: int | None = None,
    verified_at: int | None = None,
    seen: Seen = NOWHERE,
) -> None:
    """Stores a new session, of an owner with the wallet looked at; deletes those that have ended, and the oldest of too
    many."""
    purge(tx, SESSIONS, now)
    values = {"id_hash": id_hash, kind.column: account_id, "created_at": now, "expires_at": now + kind.lifetime}
    insert_row(tx, "session", **values, wallet_address_id=wallet_id, verified_at=verified_at, **seen._asdict())
    delete_surplus(tx, "session", kind, account_id, MAX_SESSIONS)


def find_session(tx: Transaction, kind: Kind, id_hash: bytes, now: int) -> SessionRecord | None:
    """The session, unless it has ended."""
    columns = f"{kind.column}, wallet_address_id, created_at, expires_at, verified_at"
    found = f"SELECT {columns} FROM session WHERE id_hash = ? AND {kind.column} IS NOT NULL"
    row = tx.execute(found, (id_hash,)).fetchone()
    return SessionRecord(*row) if row is not None and lasts(row[3], now, kind.lifetime) else None


def change_session(tx: Transaction, kind: Kind, id_hash: bytes, **columns: int) -> None:
    """Sets columns of a session: until when it lasts, the wallet looked at, when a second factor was given."""
    changed = f"UPDATE session SET {', '.join(f'{name} = ?' for name in columns)} WHERE id_hash = ?"
    tx.execute(f"{changed} AND {kind.column} IS NOT NULL", (*columns.values(), id_hash))


def delete_session(tx: Transaction, kind: Kind, id_hash: bytes) -> None:
    tx.execute(f"DELETE FROM session WHERE id_hash = ? AND {kind.column} IS NOT NULL", (id_hash,))


def open_sessions(tx: Transaction, kind: Kind, account_id: int, now: int) -> Sequence[OpenSession]:
    """The sessions of an account that have not ended, the newest first."""
    found = OPEN_SESSIONS.list(tx, f"WHERE {kind.column} = ?", account_id)
    lasting = [one for one in found if lasts(one.expires_at, now, kind.lifetime)]
    return sorted(lasting, key=lambda one: one.created_at, reverse=True)


def count_sessions(tx: Transaction, kind: Kind, account_id: int, now: int) -> int:
    """In how many browsers somebody is signed in to the account."""
    valid, times = lasting("expires_at", now, kind.lifetime)
    return number(tx, f"SELECT count(*) FROM session WHERE {kind.column} = ? AND {valid}", account_id, *times)


def end_access(tx: Transaction, kind: Kind, account_id: int, forget_browsers: bool = True) -> None:
    """Ends the sessions, half ones too, and the link of an account, and what others ask of it; forgets its browsers
    unless told not to."""
    delete_of(tx, kind, account_id, "session", "half_sign_in", "password_link")
    if forget_browsers:
        delete_of(tx, kind, account_id, "known_browser")
    if kind is OF_OWNERS:  # who asks for the wallets had the old password
        own = "SELECT id FROM wallet_address WHERE owner_id = ?"
        tx.execute(f"DELETE FROM wallet_join WHERE joined_at IS NULL AND wallet_address_id IN ({own})", (account_id,))
