"""SQL of the audit log that only operators need."""

from collections.abc import Mapping, Sequence
from typing import Any

from payres.core.protocol.clock import CORRECTION, DAY
from payres.core.protocol.identifiers import first_identifier
from payres.core.store.audit import AUDIT, AuditRecord
from payres.core.store.rows import PageBounds, PageQuery, lasting, select_page
from payres.core.store.work import Transaction, Work


def entries_of_day(work: Work, actor: str, action: str) -> Sequence[AuditRecord]:
    """What the actor did in the last 24 hours."""
    recent, times = lasting("created_at", work.now - DAY, DAY)
    first = first_identifier(work.now - DAY - CORRECTION)
    return AUDIT.list(work, f"WHERE id >= ? AND actor = ? AND action = ? AND {recent}", first, actor, action, *times)


def page_of_audit(
    tx: Transaction, query: PageQuery, parts: Mapping[str, str | None], since: int | None, until: int | None
) -> tuple[Sequence[AuditRecord], PageBounds]:
    """A page of entries with these parts in their columns, in whatever case, made in this time (microseconds)."""
    named = {f"instr(lower({column}), lower(?)) > 0": part for column, part in parts.items()}
    return select_page(tx, AUDIT, query, {**named, "created_at >= ?": since, "created_at < ?": until})


def newest_with(tx: Transaction, about: str, member: str) -> AuditRecord | None:
    """The newest entry of this object that has the member in its details, among the last thousand of all."""
    newest = "id IN (SELECT id FROM audit ORDER BY id DESC LIMIT 1000)"
    where = f"WHERE {newest} AND object = ? AND details ->> ? NOTNULL ORDER BY id DESC LIMIT 1"
    return AUDIT.find(tx, where, about, member)


def next_after(tx: Transaction, id: str) -> AuditRecord | None:
    return AUDIT.find(tx, "WHERE id > ? ORDER BY id LIMIT 1", id)


def last_details(tx: Transaction, action: str, about: str, reference: str, before: str) -> Mapping[str, Any] | None:
    """The details of the newest entry with this action, object and reference whose id is below `before`."""
    of_reference = "action = ? AND object = ? AND details ->> 'reference' = ?"
    where = f"WHERE id < ? AND {of_reference} ORDER BY id DESC LIMIT 1"
    found = AUDIT.find(tx, where, before, action, about, reference)
    return None if found is None else found.details


def count_changes(tx: Transaction) -> int:
    """The rows that were changed so far on this connection."""
    [count] = tx.execute("SELECT total_changes()").fetchone()
    return int(count)
