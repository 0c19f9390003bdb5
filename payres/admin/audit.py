"""The audit log."""

from payres.admin import representations
from payres.admin.representations import page_of
from payres.admin.wire import AuditEntry
from payres.store.audit import page_of_audit
from payres.store.pages import PageQuery
from payres.store.work import Work
from payres.wire import Page


def list_page(work: Work, page: PageQuery) -> Page[AuditEntry]:
    """Read what operators changed, and who did it."""
    return page_of(page_of_audit(work, page), representations.audit_entry)
