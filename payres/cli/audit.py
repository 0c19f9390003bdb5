"""`payres audit`: what operators changed."""

import click
import msgspec

from payres.admin import representations
from payres.admin.wire import AuditEntry
from payres.cli.groups import Group
from payres.cli.options import limit_option
from payres.cli.session import Session, with_session
from payres.store.audit import page_of_audit
from payres.store.pages import PageQuery


@click.group(cls=Group)
def audit() -> None:
    pass


@audit.command("list")
@limit_option
@with_session
def list_all(session: Session, limit: int) -> None:
    """List what was changed and by whom, newest first.

    \b
    Example: payres audit list --limit 10
    """
    records, _ = session.read(lambda work: page_of_audit(work, PageQuery(limit, None, "older")))
    entries = list(map(representations.audit_entry, records))
    session.show_list("entries", entries, _line, "Nothing has been changed yet")


def _line(entry: AuditEntry) -> str:
    details = ", ".join(f"{name} {_text(value)}" for name, value in entry.details.items())
    return f"{entry.created_at}  {entry.actor}  {entry.action}  {entry.object}{f': {details}' if details else ''}"


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
