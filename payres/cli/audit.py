"""`payres audit`: what operators changed."""

import click
import msgspec

from payres.admin import audit as endpoints
from payres.admin.wire import AuditEntry
from payres.cli.groups import Group
from payres.cli.options import limit_option
from payres.cli.session import Session, with_session
from payres.store.pages import PageQuery


@click.group(cls=Group)
def audit() -> None:
    pass


@audit.command("list", example="payres audit list --limit 10")
@limit_option
@with_session
def list_all(session: Session, limit: int) -> None:
    """List what was changed and by whom, newest first."""
    found = session.read(lambda work: endpoints.list_page(work, PageQuery(limit))).result
    session.show_list("entries", found, _line, "Nothing has been changed yet")


def _line(entry: AuditEntry) -> str:
    details = ", ".join(f"{name} {_text(value)}" for name, value in entry.details.items())
    return f"{entry.created_at}  {entry.actor}  {entry.action}  {entry.object}{f': {details}' if details else ''}"


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
