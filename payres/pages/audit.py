"""The audit log: what operators changed."""

from typing import Final

import msgspec

from payres.admin.wire import AuditEntry
from payres.pages.listing import Listing, page_for
from payres.pages.tables import Cell, Column, long, text, time


def _details(entry: AuditEntry) -> Cell:
    def said(value: object) -> str:
        return value if isinstance(value, str) else msgspec.json.encode(value).decode()

    return Cell(", ".join(f"{name} {said(value)}" for name, value in entry.details.items()), "long")


COLUMNS: Final = (
    Column("Time (UTC)", time("created_at")),
    Column("Who", long("actor")),
    Column("Did what", text("action")),
    Column("To what", long("object")),
    Column("Details", _details),
)
LIST: Final = page_for(
    Listing(
        "Audit log",
        "audit.list_page",
        COLUMNS,
        "Nothing was changed yet",
        "What operators changed, with the command, the API or these pages.",
    )
)
