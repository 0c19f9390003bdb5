"""SQL of the operators who use the admin pages, and of their signed-in browsers."""

import msgspec

from payres.store.rows import Table, insert_row
from payres.store.work import Transaction


class OperatorRecord(msgspec.Struct, frozen=True):
    """A row of `operator`; role is `full` or `read-only`."""

    id: int
    name: str
    role: str
    password_hash: str | None
    link_expires_at: int
    unlocked_at: int

    @property
    def may_change(self) -> bool:
        """Whether the role is more than to look."""
        return self.role == "full"


OPERATORS = Table(OperatorRecord, "operator")
OF_SESSION = Table(OperatorRecord, "operator_session s JOIN operator o ON o.id = s.operator_id", prefix="o.")


def find_operator(tx: Transaction, name: str) -> OperatorRecord | None:
    return OPERATORS.find(tx, "WHERE name = ?", name)


def operator_of_link(tx: Transaction, link_hash: bytes) -> OperatorRecord | None:
    """Whose link this is, used no more than once but perhaps expired."""
    return OPERATORS.find(tx, "WHERE link_hash = ?", link_hash)


def set_link(tx: Transaction, name: str, role: str, link_hash: bytes, expires_at: int, now: int) -> None:
    """Gives an operator, who may be new, a link in place of the password."""
    tx.execute(
        "INSERT INTO operator (name, role, link_hash, link_expires_at, unlocked_at) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (name) DO UPDATE SET role = excluded.role, password_hash = NULL, link_hash = excluded.link_hash,"
        " link_expires_at = excluded.link_expires_at, unlocked_at = excluded.unlocked_at",
        (name, role, link_hash, expires_at, now),
    )


def operator_of_session(tx: Transaction, id_hash: bytes, now: int) -> OperatorRecord | None:
    """Who is signed in."""
    return OF_SESSION.find(tx, "WHERE s.id_hash = ? AND s.expires_at > ?", id_hash, now)


def insert_session(tx: Transaction, id_hash: bytes, operator_id: int, now: int, expires_at: int) -> None:
    """Stores a new session and deletes those that have ended."""
    tx.execute("DELETE FROM operator_session WHERE expires_at <= ?", (now,))
    insert_row(tx, "operator_session", id_hash=id_hash, operator_id=operator_id, expires_at=expires_at)


def use_form(tx: Transaction, form_id: str, now: int, oldest: int) -> bool:
    """Whether a form is carried out for the first time. Deletes records from before `oldest`."""
    tx.execute("DELETE FROM operator_form WHERE used_at < ?", (oldest,))
    used = tx.execute("INSERT INTO operator_form (id, used_at) VALUES (?, ?) ON CONFLICT DO NOTHING", (form_id, now))
    return used.rowcount == 1


def delete_session(tx: Transaction, id_hash: bytes) -> None:
    tx.execute("DELETE FROM operator_session WHERE id_hash = ?", (id_hash,))


def delete_sessions_of_operator(tx: Transaction, operator_id: int) -> None:
    """Signs the operator out everywhere."""
    tx.execute("DELETE FROM operator_session WHERE operator_id = ?", (operator_id,))
