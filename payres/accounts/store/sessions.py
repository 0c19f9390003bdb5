"""SQL of sessions, of the browsers that somebody has signed in with, and of links that set a password.

The accounts are of two kinds. A row has one column set, that of its kind, so a secret of one kind finds nothing of the
other.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from payres.accounts.limits import KNOWN_BROWSER_DAYS, MAX_KEPT_SIGN_INS, MAX_KNOWN_BROWSERS, MAX_SESSIONS
from payres.core.protocol.clock import DAY, HOUR, MINUTE, lasting, lasts
from payres.core.protocol.visible import visible_name
from payres.core.store.retention import Rule, purge
from payres.core.store.rows import Table, find_number, insert_row, number
from payres.core.store.wallets import WALLETS, WalletRecord
from payres.core.store.work import Transaction

BROWSER_LIFETIME: Final = KNOWN_BROWSER_DAYS * DAY
TRUSTED_LIFETIME: Final = 30 * DAY  # for which a browser is not asked for the second factor
SESSIONS = Rule("session", "expires_at", "id_hash")
BROWSERS = Rule("known_browser", "expires_at", "id_hash")
JOIN_DELAY: Final = DAY  # in which the owner of a wallet can say no to who asks for it
JOIN_LASTS: Final = 7 * DAY  # after that, in which the wallet can be connected
JOINS_KEPT: Final = 30 * DAY
JOINS = Rule("wallet_join", "purge_at", "wallet_address_id")
SIGN_INS = Rule("sign_in", "at", "id", after=90 * DAY)  # addresses say where somebody was


class OwnerRecord(msgspec.Struct, frozen=True):
    """The owner of a wallet: the first of several, unless another was asked for. `name` is the path of the first;
    `called` has a line for each wallet, its public name or else its path.

    Wrong passwords before unlocked_at no longer count.
    """

    id: int
    name: str
    wallet_id: int
    password_hash: str | None
    unlocked_at: int | None = None
    called: str = ""

    @property
    def names(self) -> Sequence[str]:
        """What the wallets are called, made safe to show."""
        return [visible_name(one, None) or self.name for one in self.called.split("\n")]

    @property
    def has_several(self) -> bool:
        return "\n" in self.called

    @property
    def actor(self) -> str:
        """The owner as the audit log names the actor."""
        return f"owner:{self.name}"


class SessionRecord(msgspec.Struct, frozen=True):
    """A browser in which somebody is signed in to an account; an owner looks at a wallet. verified_at is when a second
    factor was last given."""

    account_id: int
    wallet_id: int | None
    created_at: int
    expires_at: int
    verified_at: int | None = None


class Seen(NamedTuple):
    """From where somebody signs in: the address, and the browser in words."""

    address: str | None = None
    browser: str | None = None


NOWHERE: Final = Seen()  # what nobody has looked at, such as a command


class OpenSession(msgspec.Struct, frozen=True):
    """A session as whoever opened it knows it: when and with which browser, and where from."""

    id_hash: bytes
    created_at: int
    expires_at: int
    browser: str | None
    address: str | None


class SignInRecord(msgspec.Struct, frozen=True):
    """A sign-in, or one that failed: with what, from which address and browser."""

    at: int
    way: str
    address: str | None
    browser: str | None

    @property
    def failed(self) -> bool:
        return self.way.startswith("wrong ")


class Kind(NamedTuple):
    """A kind of account with a password: what sentences call it, where the accounts are, the column that names one, for
    how long a session lasts (without being used, and in use) and a link, and the command that makes a link."""

    noun: str
    accounts: Table[Any]
    column: str
    lifetime: int
    longest: int
    link_lifetime: int
    link_command: str


OWNERS = Table(
    OwnerRecord,
    "owner o JOIN wallet_address w ON w.owner_id = o.id",
    prefix="o.",
    name="(SELECT path FROM wallet_address WHERE owner_id = o.id ORDER BY id LIMIT 1)",
    wallet_id="w.id",
    called="(SELECT group_concat(coalesce(nullif(public_name, ''), path), char(10)) FROM"
    " (SELECT public_name, path FROM wallet_address WHERE owner_id = o.id ORDER BY id))",
)
OPEN_SESSIONS = Table(OpenSession, "session")
LAST_SIGN_INS = Table(SignInRecord, "sign_in")
OF_OWNERS: Final = Kind("wallet", OWNERS, "owner_id", 15 * MINUTE, 12 * HOUR, HOUR, "payres wallet reset-link")


def owner_at(tx: Transaction, path: str) -> OwnerRecord | None:
    """The owner of the wallet with this path, if there is one."""
    return OWNERS.find(tx, "WHERE w.path = ?", path)


def owner_of(tx: Transaction, wallet_id: int) -> OwnerRecord:
    """The owner of a wallet."""
    owner = OWNERS.find(tx, "WHERE w.id = ?", wallet_id)
    assert owner is not None, "every wallet has an owner"
    return owner


def wallets_of(tx: Transaction, owner_id: int) -> Sequence[WalletRecord]:
    """The wallets of an owner, oldest first."""
    return WALLETS.list(tx, "WHERE w.owner_id = ? ORDER BY w.id", owner_id)


def account_at(tx: Transaction, kind: Kind, account_id: int, wallet_id: int | None) -> Any:
    """The account, of an owner with this wallet looked at; None if there is none, or the wallet is another's."""
    if wallet_id is None:
        return kind.accounts.get(tx, account_id)
    return OWNERS.find(tx, "WHERE o.id = ? AND w.id = ?", account_id, wallet_id)


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
    more = {"verified_at": verified_at, "address": seen.address, "browser": seen.browser}
    insert_row(tx, "session", **values, wallet_address_id=wallet_id, **more)
    _delete_surplus(tx, "session", kind, account_id, MAX_SESSIONS)


def find_session(tx: Transaction, kind: Kind, id_hash: bytes, now: int) -> SessionRecord | None:
    """The session, unless it has ended."""
    columns = f"{kind.column}, wallet_address_id, created_at, expires_at, verified_at"
    found = f"SELECT {columns} FROM session WHERE id_hash = ? AND {kind.column} IS NOT NULL"
    row = tx.execute(found, (id_hash,)).fetchone()
    return SessionRecord(*row) if row is not None and lasts(row[3], now, kind.lifetime) else None


def extend_session(tx: Transaction, kind: Kind, id_hash: bytes, now: int) -> None:
    """Makes a session last as long as a new one from now on."""
    extended = f"UPDATE session SET expires_at = ? WHERE id_hash = ? AND {kind.column} IS NOT NULL"
    tx.execute(extended, (now + kind.lifetime, id_hash))


def look_at(tx: Transaction, id_hash: bytes, wallet_id: int) -> None:
    """Makes the owner of a session look at another wallet."""
    tx.execute(
        "UPDATE session SET wallet_address_id = ? WHERE id_hash = ? AND owner_id IS NOT NULL", (wallet_id, id_hash)
    )


def verify_session(tx: Transaction, kind: Kind, id_hash: bytes, now: int) -> None:
    """Notes that a second factor was given in a session."""
    tx.execute(f"UPDATE session SET verified_at = ? WHERE id_hash = ? AND {kind.column} IS NOT NULL", (now, id_hash))


def delete_session(tx: Transaction, kind: Kind, id_hash: bytes) -> None:
    tx.execute(f"DELETE FROM session WHERE id_hash = ? AND {kind.column} IS NOT NULL", (id_hash,))


def delete_sessions(tx: Transaction, kind: Kind, account_id: int) -> None:
    """Signs an account out everywhere."""
    tx.execute(f"DELETE FROM session WHERE {kind.column} = ?", (account_id,))


def open_sessions(tx: Transaction, kind: Kind, account_id: int, now: int) -> Sequence[OpenSession]:
    """The sessions of an account that have not ended, the newest first."""
    found = OPEN_SESSIONS.list(tx, f"WHERE {kind.column} = ?", account_id)
    lasting = [one for one in found if lasts(one.expires_at, now, kind.lifetime)]
    return sorted(lasting, key=lambda one: one.created_at, reverse=True)


def last_sign_ins(tx: Transaction, kind: Kind, account_id: int, now: int) -> Sequence[SignInRecord]:
    """The last sign-ins of an account, also those that failed, the newest first."""
    found = LAST_SIGN_INS.list(tx, f"WHERE {kind.column} = ? ORDER BY id DESC", account_id)
    return [one for one in found if one.at > now - SIGN_INS.after]


def count_sessions(tx: Transaction, kind: Kind, account_id: int, now: int) -> int:
    """In how many browsers somebody is signed in to the account."""
    valid, times = lasting("expires_at", now, kind.lifetime)
    return number(tx, f"SELECT count(*) FROM session WHERE {kind.column} = ? AND {valid}", account_id, *times)


def insert_browser(
    tx: Transaction, kind: Kind, id_hash: bytes, account_id: int, now: int, trusted_until: int | None = None
) -> None:
    """Stores a browser as known to the account, and until then trusted; deletes expired ones, and the oldest of too
    many."""
    purge(tx, BROWSERS, now)
    values = {"id_hash": id_hash, kind.column: account_id, "expires_at": now + BROWSER_LIFETIME}
    values["trusted_until"] = trusted_until
    insert_row(tx, "known_browser", **values)
    _delete_surplus(tx, "known_browser", kind, account_id, MAX_KNOWN_BROWSERS)


def _delete_surplus(tx: Transaction, table: str, kind: Kind, account_id: int, most: int) -> None:
    """Deletes those of an account that were unused for longest, of more than so many."""
    kept = f"SELECT id_hash FROM {table} WHERE {kind.column} = ? ORDER BY expires_at DESC LIMIT -1 OFFSET ?"
    surplus = tx.execute(kept, (account_id, most)).fetchall()
    tx.executemany(f"DELETE FROM {table} WHERE id_hash = ?", surplus)


def knows_browser(tx: Transaction, kind: Kind, id_hash: bytes, account_id: int, now: int) -> bool:
    """Whether the account was signed in to with this browser, which is still known."""
    known = f"SELECT 1 FROM known_browser WHERE id_hash = ? AND {kind.column} = ? AND expires_at > ?"
    return number(tx, known, id_hash, account_id, now) == 1


def trusted_until(tx: Transaction, kind: Kind, id_hash: bytes, account_id: int, now: int) -> int | None:
    """Until when a browser is trusted, which is then not asked for the second factor; None if it is not."""
    found = f"SELECT trusted_until FROM known_browser WHERE id_hash = ? AND {kind.column} = ?"
    until = find_number(tx, found, id_hash, account_id)
    return until if until is not None and lasts(until, now, TRUSTED_LIFETIME) else None


def delete_browser(tx: Transaction, kind: Kind, id_hash: bytes, account_id: int) -> None:
    tx.execute(f"DELETE FROM known_browser WHERE id_hash = ? AND {kind.column} = ?", (id_hash, account_id))


def forget_others(tx: Transaction, kind: Kind, account_id: int, own: bytes | None) -> None:
    """Forgets every browser that the account knows but its own."""
    tx.execute(f"DELETE FROM known_browser WHERE {kind.column} = ? AND id_hash IS NOT ?", (account_id, own))


def replace_link(tx: Transaction, kind: Kind, link_hash: bytes, account_id: int, expires_at: int) -> None:
    """Stores a link that sets the account's password, in place of an earlier one."""
    tx.execute(
        f"INSERT OR REPLACE INTO password_link (link_hash, {kind.column}, expires_at) VALUES (?, ?, ?)",
        (link_hash, account_id, expires_at),
    )


def account_of_link(tx: Transaction, kind: Kind, link_hash: bytes, now: int) -> int | None:
    """The id of the account of a link that has not expired; None for a link of the other kind too."""
    found = f"SELECT {kind.column}, expires_at FROM password_link WHERE link_hash = ?"
    row = tx.execute(found, (link_hash,)).fetchone()
    return row[0] if row is not None and lasts(row[1], now, kind.link_lifetime) else None


def end_access(tx: Transaction, kind: Kind, account_id: int, forget_browsers: bool = True) -> None:
    """Ends the sessions, half ones too, and the link of an account, and what others ask of it; forgets its browsers
    unless told not to."""
    for table in ("session", "half_sign_in", "password_link", "known_browser")[: 4 if forget_browsers else 3]:
        tx.execute(f"DELETE FROM {table} WHERE {kind.column} = ?", (account_id,))
    if kind is OF_OWNERS:  # who asks for the wallets had the old password
        own = "SELECT id FROM wallet_address WHERE owner_id = ?"
        tx.execute(f"DELETE FROM wallet_join WHERE joined_at IS NULL AND wallet_address_id IN ({own})", (account_id,))


class JoinRecord(msgspec.Struct, frozen=True):
    """A row of `wallet_join`, with the path of the wallet, and the owner that it has now."""

    wallet_address_id: int
    owner_id: int
    due_at: int
    joined_at: int | None
    email: str | None
    language: str | None
    time_zone: str | None
    path: str
    holder_id: int

    def waits(self, now: int) -> bool:
        """Whether the holder can still say no."""
        return lasts(self.due_at, now, JOIN_DELAY)


_JOIN: Final = "wallet_join j JOIN wallet_address w ON w.id = j.wallet_address_id"
JOIN_TABLE: Final = Table(JoinRecord, _JOIN, "j.", path="w.path", holder_id="w.owner_id")


def join_of(tx: Transaction, wallet_id: int) -> JoinRecord | None:
    """What was asked for a wallet last, or how it came to its owner."""
    return JOIN_TABLE.find(tx, "WHERE j.wallet_address_id = ?", wallet_id)


def open_joins(tx: Transaction, owner_id: int, now: int) -> Sequence[JoinRecord]:
    """What an owner asks for, or is asked for, that is neither done nor over."""
    columns = ("j.owner_id", "w.owner_id")
    found = [one for of in columns for one in JOIN_TABLE.list(tx, f"WHERE {of} = ? AND joined_at IS NULL", owner_id)]
    return [one for one in found if one.waits(now) or lasts(one.due_at + JOIN_LASTS, now, JOIN_LASTS)]


def store_join(tx: Transaction, wallet_id: int, owner_id: int, seen: Seen, now: int, is_done: bool) -> None:
    """Stores that an owner asks for a wallet, or that it came, in place of an earlier row; deletes a few old ones.
    Where notices went before is kept from the one to the other, and from that to the next."""
    purge(tx, JOINS, now)
    last = join_of(tx, wallet_id)
    of_now = "SELECT email, language, time_zone FROM mail_address WHERE owner_id = (SELECT owner_id FROM wallet_address"
    notices = tx.execute(f"{of_now} WHERE id = ?)", (wallet_id,)).fetchone() or (None, None, None)
    if last is not None and (is_done or last.joined_at):
        notices = last.email, last.language, last.time_zone
    delete_join(tx, wallet_id)
    values = {"wallet_address_id": wallet_id, "owner_id": owner_id, "due_at": now + JOIN_DELAY}
    values |= {"purge_at": now + JOINS_KEPT} | ({"joined_at": now} if is_done else {})
    more = dict(zip(("email", "language", "time_zone"), notices, strict=True))
    insert_row(tx, "wallet_join", **values, **seen._asdict(), **more)


def delete_join(tx: Transaction, wallet_id: int) -> None:
    tx.execute("DELETE FROM wallet_join WHERE wallet_address_id = ?", (wallet_id,))


def insert_sign_in(tx: Transaction, kind: Kind, account_id: int, way: str, now: int, seen: Seen) -> None:
    """Notes a sign-in, or one that failed; forgets old ones, and all but the last that ended so: guesses push out no
    sign-in that one of them has led to."""
    purge(tx, SIGN_INS, now)
    values = {kind.column: account_id, "at": now, "way": way, "address": seen.address, "browser": seen.browser}
    insert_row(tx, "sign_in", **values)
    ended_so = f"SELECT id FROM sign_in WHERE {kind.column} = ? AND (way LIKE 'wrong %') = (? LIKE 'wrong %')"
    surplus = tx.execute(
        f"{ended_so} ORDER BY id DESC LIMIT -1 OFFSET ?", (account_id, way, MAX_KEPT_SIGN_INS)
    ).fetchall()
    tx.executemany("DELETE FROM sign_in WHERE id = ?", surplus)


# What an owner has besides wallets, and ends with the owner.
ENDS: Final = (
    *("session", "known_browser", "password_link", "half_sign_in"),
    *("totp", "recovery_code", "passkey", "factor_removal", "sign_in"),
    *("mail_address", "mail_choice"),
)


def take_over(tx: Transaction, owner_id: int, other_id: int) -> None:
    """Gives the wallets of the other to the owner, and deletes the other with all that signs in to it."""
    tx.execute("UPDATE wallet_address SET owner_id = ? WHERE owner_id = ?", (owner_id, other_id))
    tx.execute("UPDATE mail SET owner_id = ? WHERE owner_id = ?", (owner_id, other_id))  # those for the other's address
    tx.execute("DELETE FROM wallet_join WHERE owner_id = ? AND joined_at IS NULL", (other_id,))
    tx.execute("UPDATE wallet_join SET owner_id = ? WHERE owner_id = ?", (owner_id, other_id))
    for table in ENDS:
        tx.execute(f"DELETE FROM {table} WHERE owner_id = ?", (other_id,))
    tx.execute("DELETE FROM owner WHERE id = ?", (other_id,))
