"""SQL of the audit log."""

from collections.abc import Sequence

import msgspec

from payres.store.pages import PageBounds, PageQuery, select_page
from payres.store.rows import Table
from payres.store.work import Transaction


class AuditRecord(msgspec.Struct, frozen=True):
    """A row of `audit`. details is a JSON object."""

    id: str
    created_at: int
    actor: str
    action: str
    object: str
    details: str


AUDIT = Table(AuditRecord, "audit")


def insert_audit(tx: Transaction, record: AuditRecord) -> None:
    AUDIT.insert(tx, record)


def page_of_audit(tx: Transaction, query: PageQuery) -> tuple[Sequence[AuditRecord], PageBounds]:
    """A page, newest first."""
    return select_page(tx, AUDIT, query, {})


def last_entry(tx: Transaction, action: str, among: int) -> AuditRecord | None:
    """The newest entry of an action among so many of the newest."""
    newest = (
        f"WHERE id IN (SELECT id FROM audit ORDER BY id DESC LIMIT {among:d}) AND action = ? ORDER BY id DESC LIMIT 1"
    )
    return AUDIT.find(tx, newest, action)
