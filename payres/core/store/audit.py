"""SQL of the audit log: who changed what. Rules that change something write their entry in the same transaction."""

from collections.abc import Mapping
from typing import Any

import msgspec

from payres.core.store.rows import Table, json_column
from payres.core.store.work import Work


class AuditRecord(msgspec.Struct, frozen=True):
    """A row of `audit`."""

    id: str
    created_at: int
    actor: str
    action: str
    object: str
    details: Mapping[str, Any]


AUDIT = Table(AuditRecord, "audit", details=json_column("details"))


def record(work: Work, action: str, about: str, **details: object) -> None:
    """Records that the actor of this unit did `action`, such as `wallet.deposit`, to `about`.

    `details` are visible to operators and never contain secrets; None values are omitted.
    """
    given = {name: value for name, value in details.items() if value is not None}
    AUDIT.insert(work, AuditRecord(work.new_id(), work.now, work.actor, action, about, given))
    work.recorded += 1
