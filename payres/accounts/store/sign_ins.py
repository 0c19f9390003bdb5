"""SQL of the last sign-ins, which an account can look at."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from payres.accounts.limits import MAX_KEPT_SIGN_INS
from payres.accounts.store.kinds import Kind
from payres.core.protocol.clock import DAY
from payres.core.store.retention import Rule, purge
from payres.core.store.rows import Table, insert_row
from payres.core.store.work import Transaction

SIGN_INS = Rule("sign_in", "at", "id", after=90 * DAY)  # addresses say where somebody was


class Seen(NamedTuple):
    """From where somebody signs in: the address, and the browser in words."""

    address: str | None = None
    browser: str | None = None


NOWHERE: Final = Seen()  # what nobody has looked at, such as a command


class SignInRecord(msgspec.Struct, frozen=True):
    """A sign-in, or one that failed: with what, from which address and browser."""

    at: int
    way: str
    address: str | None
    browser: str | None

    @property
    def failed(self) -> bool:
        return self.way.startswith("wrong ")


LAST_SIGN_INS = Table(SignInRecord, "sign_in")


def last_sign_ins(tx: Transaction, kind: Kind, account_id: int, now: int) -> Sequence[SignInRecord]:
    """The last sign-ins of an account, also those that failed, the newest first."""
    found = LAST_SIGN_INS.list(tx, f"WHERE {kind.column} = ? ORDER BY id DESC", account_id)
    return [one for one in found if one.at > now - SIGN_INS.after]


def insert_sign_in(tx: Transaction, kind: Kind, account_id: int, way: str, now: int, seen: Seen) -> None:
    """Notes a sign-in, or one that failed; forgets old ones, and all but the last that ended so: guesses push out no
    sign-in that one of them has led to."""
    purge(tx, SIGN_INS, now)
    insert_row(tx, "sign_in", **{kind.column: account_id}, at=now, way=way, **seen._asdict())
    ended_so = f"SELECT id FROM sign_in WHERE {kind.column} = ? AND (way LIKE 'wrong %') = (? LIKE 'wrong %')"
    last = f"{ended_so} ORDER BY id DESC LIMIT -1 OFFSET ?"
    surplus = tx.execute(last, (account_id, way, MAX_KEPT_SIGN_INS)).fetchall()
    tx.executemany("DELETE FROM sign_in WHERE id = ?", surplus)
