"""The audit log, as operators read it. What changes something writes it: `payres.store.audit`."""

from collections.abc import Sequence
from typing import Any, Final

from payres.operator.declarations import command, endpoint, lists
from payres.operator.shapes import Column, Shape, represent
from payres.store.audit import AUDIT, AuditRecord
from payres.store.rows import PageBounds, PageQuery, select_page
from payres.store.work import Work
from payres.wire import Resource, encode


class AuditEntry(Resource, frozen=True, kw_only=True):
    id: str
    created_at: str
    actor: str
    action: str
    object: str
    details: dict[str, Any]


def entry(work: Work, record: AuditRecord) -> AuditEntry:
    return represent(AuditEntry, record)


def _details(entry: AuditEntry) -> str:
    """What an entry says besides who did what to what, in a line."""
    said = (
        (name, value if isinstance(value, str) else encode(value).decode()) for name, value in entry.details.items()
    )
    return ", ".join(f"{name} {value}" for name, value in said)


ENTRY: Final = Shape(
    entry,
    Column("Time (UTC)", "created_at", "time"),
    Column("Who", "actor", "long"),
    Column("Did what", "action"),
    Column("To what", "object", "long"),
    Column("Details", _details, "long"),
)


@endpoint("GET /audit-log", "audit:read", ENTRY)
@command("audit list", "--limit 10")
@lists(
    "entries",
    "Nothing was changed yet",
    "Audit log",
    about="What operators changed, with the command, the API or these pages.",
)
def list_entries(work: Work, page: PageQuery) -> tuple[Sequence[AuditRecord], PageBounds]:
    """List what was changed and by whom, newest first."""
    return select_page(work, AUDIT, page)
