"""`payres audit`: what operators changed."""

from collections.abc import Sequence

import click

from payres.admin import audit as endpoints
from payres.admin.audit import describe_details
from payres.admin.wire import AuditEntry
from payres.cli.commands import Group
from payres.cli.options import limit_option
from payres.cli.session import lists
from payres.store.rows import PageQuery
from payres.store.work import Work


@click.group(cls=Group)
def audit() -> None:
    pass


def _line(entry: AuditEntry) -> str:
    details = describe_details(entry)
    return f"{entry.created_at}  {entry.actor}  {entry.action}  {entry.object}{f': {details}' if details else ''}"


@audit.command("list", example="payres audit list --limit 10")
@limit_option
@lists("entries", _line, "Nothing has been changed yet")
def list_all(work: Work, limit: int) -> Sequence[AuditEntry]:
    """List what was changed and by whom, newest first."""
    return endpoints.list_page(work, PageQuery(limit)).result
