"""`payres admin`: who may use the admin pages."""

import click

from payres.cli.commands import Group
from payres.cli.session import JsonObject, warn, writes
from payres.clock import format_time
from payres.operator import operators
from payres.settings import local_url
from payres.store.work import Work
from payres.urls import LINK_PATH, is_loopback


@click.group(cls=Group)
def admin() -> None:
    """The pages are at /admin; docs/operators-api.md is about them."""


def _reachable(work: Work) -> str:
    """The URL under which the pages can be opened: the base URL if `admin_hosts` has its name."""
    settings, host = work.settings, work.urls.host
    if is_loopback(host) or host in settings.admin_hosts.split(","):
        return settings.base_url
    return local_url(settings.host, settings.port)


@admin.command(example="payres admin link --name ann")
@click.option("--name", default="admin", show_default=True, help="Who it is for, as the audit log names them.")
@click.option("--read-only", is_flag=True, help="They may look at everything and change nothing.")
@writes(lambda made: made["url"])
def link(work: Work, name: str, read_only: bool) -> JsonObject:
    """Print a URL with which an operator sets a password.

    It is valid once, for 15 minutes. The operator's old password and sessions end at once, so this also locks somebody
    out.
    """
    made = operators.make_link(work, name, read_only=read_only)
    url = f"{_reachable(work)}{LINK_PATH}{made.secret}"
    if not url.startswith(work.settings.base_url):
        warn(
            "The pages are there for this machine alone: open the URL here or through an SSH tunnel, or let others in"
            " with the setting admin_hosts"
        )
    expires_at = format_time(made.operator.link_expires_at)
    return {"name": made.operator.name, "role": made.operator.role, "url": url, "expiresAt": expires_at}
