"""SQL of the operators who use the admin pages, and of the keys of programs that use the operator's API."""

from collections.abc import Sequence
from typing import Final

import msgspec

from payres.core.protocol.clock import DAY, HOUR
from payres.core.store.retention import Rule, purge
from payres.core.store.rows import Table, insert_row, json_column
from payres.core.store.work import Transaction
from payres.html.store.sessions import OF_WALLETS, Kind, SessionRecord


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
        """Whether the role allows changes."""
        return self.role == "full"

    @property
    def actor(self) -> str:
        """The operator as the audit log names the actor."""
        return f"page:{self.name}"


OPERATORS = Table(OperatorRecord, "operator")
OF_OPERATORS: Final = Kind(
    "operator",
    OPERATORS,
    Table(SessionRecord, "operator_session", account_id="operator_id", created_at="0"),
    Rule("operator_session", "expires_at", "id_hash"),
    Rule("operator_browser", "expires_at", "id_hash"),
    "operator_id",
    12 * HOUR,
    12 * HOUR,
)
FORMS = Rule("operator_form", "used_at", "id", after=DAY)  # longer than a session lasts


def find_operator(tx: Transaction, name: str) -> OperatorRecord | None:
    return OPERATORS.find(tx, "WHERE name = ?", name)


def operator_of_link(tx: Transaction, link_hash: bytes) -> OperatorRecord | None:
    """The operator of an unused link, which may have expired."""
    return OPERATORS.find(tx, "WHERE link_hash = ?", link_hash)


def set_link(tx: Transaction, name: str, role: str, link_hash: bytes, expires_at: int, now: int) -> None:
    """Replaces an operator's password by a link. Creates the operator if needed."""
    tx.execute(
        "INSERT INTO operator (name, role, link_hash, link_expires_at, unlocked_at) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (name) DO UPDATE SET role = excluded.role, password_hash = NULL, link_hash = excluded.link_hash,"
        " link_expires_at = excluded.link_expires_at, unlocked_at = excluded.unlocked_at",
        (name, role, link_hash, expires_at, now),
    )


def end_all(tx: Transaction) -> None:
    """Signs everybody out, and ends every link that sets a password."""
    for kind in (OF_WALLETS, OF_OPERATORS):
        tx.execute(f"DELETE FROM {kind.session_rule.table}")
    tx.execute("DELETE FROM password_link")
    tx.execute("UPDATE operator SET link_hash = NULL")


def is_used(tx: Transaction, form_id: str) -> bool:
    """Whether a form was already submitted."""
    return tx.execute("SELECT 1 FROM operator_form WHERE id = ?", (form_id,)).fetchone() is not None


def use_form(tx: Transaction, form_id: str, now: int) -> None:
    """Stores that a form was submitted."""
    purge(tx, FORMS, now)
    insert_row(tx, "operator_form", id=form_id, used_at=now)


class ApiKeyRecord(msgspec.Struct, frozen=True):
    """A row of `api_key`; `made_by` is the key that created it, if any."""

    id: str
    name: str
    secret_hash: bytes
    scopes: Sequence[str]
    created_at: int
    expires_at: int | None
    revoked_at: int | None = None
    last_used_at: int | None = None
    made_by: str | None = None

    @property
    def actor(self) -> str:
        """The key's name in the audit log."""
        return f"api:{self.id}"


API_KEYS = Table(ApiKeyRecord, "api_key", scopes=json_column("scopes"))


def list_api_keys(tx: Transaction) -> Sequence[ApiKeyRecord]:
    """All keys, newest first."""
    return API_KEYS.list(tx, "ORDER BY id DESC")


def keys_made_with(tx: Transaction, key_id: str) -> Sequence[ApiKeyRecord]:
    """The keys created with this one."""
    return API_KEYS.list(tx, "WHERE made_by = ? ORDER BY id", key_id)
