"""The audit log."""

from functools import partial

from payres.admin.representations import represent
from payres.admin.wire import AuditEntry
from payres.representations import page_of
from payres.store.audit import AUDIT
from payres.store.rows import PageQuery, select_page
from payres.store.work import Work
from payres.wire import Page, encode


def list_page(work: Work, page: PageQuery) -> Page[AuditEntry]:
    """Read what operators changed, and who did it."""
    return page_of(select_page(work, AUDIT, page), partial(represent, AuditEntry))


def describe_details(entry: AuditEntry) -> str:
    """What an entry says besides who did what to what, in a line."""
    said = (
        (name, value if isinstance(value, str) else encode(value).decode()) for name, value in entry.details.items()
    )
    return ", ".join(f"{name} {value}" for name, value in said)
