"""SQL of the audit log: what operators changed, who did it, and when.

Each rule of the operator that changes something records it here in the same transaction, so that no command and no
endpoint has to.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from payres.store.rows import Table, json_column
from payres.store.work import Transaction, Work


class AuditRecord(msgspec.Struct, frozen=True):
    """A row of `audit`."""

    id: str
    created_at: int
    actor: str
    action: str
    object: str
    details: Mapping[str, Any]


AUDIT = Table(AuditRecord, "audit", details=json_column("details"))


def last_details(tx: Transaction, action: str, about: str, reference: str, before: str) -> Mapping[str, Any] | None:
    """What was recorded with an action under a reference, by the last such entry whose id is before this one."""
    of_reference = "action = ? AND object = ? AND details ->> 'reference' = ?"
    where = f"WHERE id < ? AND {of_reference} ORDER BY id DESC LIMIT 1"
    found = AUDIT.find(tx, where, before, action, about, reference)
    return None if found is None else found.details


def record(work: Work, action: str, about: str, **details: object) -> None:
    """Records that the actor of this unit did `action`, such as `wallet.deposit`, to `about`.

    `details` are shown too and never have a secret; None is left out.
    """
    given = {name: value for name, value in details.items() if value is not None}
    AUDIT.insert(work, AuditRecord(work.new_id(), work.now, work.actor, action, about, given))
