"""SQL of the audit log that only operators need."""

from collections.abc import Mapping
from typing import Any

from payres.core.store.audit import AUDIT
from payres.core.store.work import Transaction


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
