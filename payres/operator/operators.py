"""Operators of the admin pages, and their sign-in.

Somebody with a shell on the server makes a link, which is valid once and for 15 minutes. Whoever opens it sets the
operator's password.
"""

from typing import Annotated

from payres.core.process.settings import local_url
from payres.core.protocol.clock import format_time
from payres.core.protocol.urls import LINK_PATH, is_loopback
from payres.core.protocol.wire import Resource
from payres.core.store import server
from payres.core.store.work import Work
from payres.html import sign_in
from payres.html.store.sessions import end_access
from payres.operator.declarations import CommandLine, check_name, operation, said
from payres.operator.store import operators
from payres.operator.store.operators import OF_OPERATORS, OPERATORS, OperatorRecord

ReadOnly = Annotated[bool, said("The operator can see everything and change nothing.")]


class ShownLink(Resource, frozen=True, kw_only=True):
    name: str
    role: str
    url: str
    expires_at: str


@operation(command=CommandLine("admin link", "--name ann", text=lambda made: str(made.url)))
def make_link(
    work: Work,
    name: Annotated[str, said("The operator's name, as in the audit log.")] = "admin",
    read_only: ReadOnly = False,
) -> ShownLink:
    """Print a URL with which an operator sets a password.

    It is valid once, for 15 minutes. The operator's old password and sessions end at once, so this also locks somebody
    out.
    """
    check_name(name, "sign-in")
    role = "read-only" if read_only else "full"
    operator = _replace(work, name, role, None)
    secret, expires_at = sign_in.make_link(work, OF_OPERATORS, operator.id)
    server.record(work, "admin.link", name, role=role)
    settings, host = work.settings, work.urls.host
    is_reachable = is_loopback(host) or host in settings.admin_hosts.split(",")
    base = work.urls.base if is_reachable else local_url(settings.host, settings.port)
    if base != work.urls.base:
        work.warn(
            "Only this machine can reach the pages: open the URL here or through an SSH tunnel, or let others in"
            " with the setting admin_hosts"
        )
    return ShownLink(name=name, role=role, url=f"{base}{LINK_PATH}{secret}", expires_at=format_time(expires_at))


def set_password(work: Work, operator: OperatorRecord, password_hash: str) -> None:
    """Sets the password of an operator who has followed a link (see hash_password)."""
    OPERATORS.update(work, operator.id, password_hash=password_hash)
    end_access(work, OF_OPERATORS, operator.id)  # the link; nobody is signed in without a password
    server.record(work, "admin.set_password", operator.name)


def replace_password(work: Work, name: str, role: str, password_hash: str | None) -> None:
    """Gives an operator the role and the password of another state of the database; None locks the operator out."""
    _replace(work, name, role, password_hash)
    server.record(work, "admin.set_password" if password_hash else "admin.lock_out", name, role=role)


def _replace(work: Work, name: str, role: str, password_hash: str | None) -> OperatorRecord:
    """An operator, who may be new, with this role and password. What the old password opened ends."""
    operators.put_operator(work, name, role, password_hash, work.now)
    operator = operators.find_operator(work, name)
    assert operator is not None
    end_access(work, OF_OPERATORS, operator.id)
    return operator
