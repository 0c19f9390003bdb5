"""SQL of the operators who use the admin pages."""

from typing import ClassVar, Final

import msgspec

from payres.accounts.store.browsers import BROWSER_LIFETIME
from payres.accounts.store.kinds import Kind, delete_of
from payres.accounts.store.sessions import count_sessions
from payres.core.protocol.clock import HOUR, MINUTE
from payres.core.store.rows import Table, find_number, lasting
from payres.core.store.work import Transaction


class OperatorRecord(msgspec.Struct, frozen=True):
    """A row of `operator`; role is `full` or `read-only`."""

    id: int
    name: str
    role: str
    password_hash: str | None
    unlocked_at: int
    wallet_id: ClassVar[None] = None

    @property
    def may_change(self) -> bool:
        return self.role == "full"

    @property
    def actor(self) -> str:
        return f"page:{self.name}"


OPERATORS = Table(OperatorRecord, "operator")
OF_OPERATORS: Final = Kind("operator", OPERATORS, "operator_id", 12 * HOUR, 12 * HOUR, 15 * MINUTE, "payres admin link")


def find_operator(tx: Transaction, name: str) -> OperatorRecord | None:
    return OPERATORS.find(tx, name=name)


def access_of(tx: Transaction, operator_id: int, now: int) -> tuple[int | None, int, int | None]:
    """Until when an operator's link is valid, the number of valid sessions, and the last sign-in."""
    valid, times = lasting("expires_at", now, OF_OPERATORS.link_lifetime)
    link = f"SELECT expires_at FROM password_link WHERE operator_id = ? AND {valid}"
    last = (
        "SELECT coalesce((SELECT max(at) FROM sign_in WHERE operator_id = :id AND way NOT LIKE 'wrong %'),"
        " (SELECT max(expires_at) - :lifetime FROM known_browser WHERE operator_id = :id))"
    )
    row = tx.execute(last, {"id": operator_id, "lifetime": BROWSER_LIFETIME}).fetchone()
    sessions = count_sessions(tx, OF_OPERATORS, operator_id, now)
    return find_number(tx, link, operator_id, *times), sessions, row[0]


def delete_operator(tx: Transaction, operator_id: int) -> None:
    """Deletes an operator with the last sign-ins; access and second factors have ended."""
    delete_of(tx, OF_OPERATORS, operator_id, "sign_in")
    tx.execute("DELETE FROM operator WHERE id = ?", (operator_id,))


def put_operator(tx: Transaction, name: str, role: str, password_hash: str | None, now: int) -> None:
    """Gives an operator, who may be new, a role and a password or none; earlier wrong passwords no longer count."""
    tx.execute(
        "INSERT INTO operator (name, role, password_hash, unlocked_at) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (name) DO UPDATE SET role = excluded.role, password_hash = excluded.password_hash,"
        " unlocked_at = excluded.unlocked_at",
        (name, role, password_hash, now),
    )
