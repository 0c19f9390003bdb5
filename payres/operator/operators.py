"""Operators of the admin pages, and their sign-in.

Somebody with a shell on the server makes a link, which is valid once and for 15 minutes. Whoever opens it sets the
operator's password.
"""

from typing import Annotated, Final, NamedTuple

from payres.core.process.settings import local_url
from payres.core.protocol.clock import MINUTE, format_time, lasts
from payres.core.protocol.errors import NotFound
from payres.core.protocol.identifiers import hash_secret
from payres.core.protocol.urls import LINK_PATH, is_loopback
from payres.core.protocol.wire import Resource
from payres.core.store import server
from payres.core.store.work import Work
from payres.html import sign_in
from payres.html.sign_in import Account, Browser, SignedIn
from payres.html.store.sessions import delete_browsers, delete_sessions
from payres.operator.declarations import check_name, command, said
from payres.operator.store import operators
from payres.operator.store.operators import OF_OPERATORS, OPERATORS, OperatorRecord

LINK_LIFETIME: Final = 15 * MINUTE
ReadOnly = Annotated[bool, said("The operator can see everything and change nothing.")]


class ShownLink(Resource, frozen=True, kw_only=True):
    name: str
    role: str
    url: str
    expires_at: str


class Link(NamedTuple):
    """A link that lets an operator in once; `secret` is a part of its URL."""

    operator: OperatorRecord
    secret: str


@command("admin link", "--name ann", text=lambda made: str(made.url))
def show_link(
    work: Work,
    name: Annotated[str, said("The operator's name, as in the audit log.")] = "admin",
    read_only: ReadOnly = False,
) -> ShownLink:
    """Print a URL with which an operator sets a password.

    It is valid once, for 15 minutes. The operator's old password and sessions end at once, so this also locks somebody
    out.
    """
    made, settings, host = make_link(work, name, read_only=read_only), work.settings, work.urls.host
    is_reachable = is_loopback(host) or host in settings.admin_hosts.split(",")
    base = work.urls.base if is_reachable else local_url(settings.host, settings.port)
    if base != work.urls.base:
        work.warn(
            "Only this machine can reach the pages: open the URL here or through an SSH tunnel, or let others in"
            " with the setting admin_hosts"
        )
    url, expires_at = f"{base}{LINK_PATH}{made.secret}", format_time(made.operator.link_expires_at)
    return ShownLink(name=made.operator.name, role=made.operator.role, url=url, expires_at=expires_at)


def make_link(work: Work, name: str, *, read_only: bool) -> Link:
    """A link for an operator, who may be new. The old password, sessions and known browsers of the operator end.

    Raises InvalidRequest for the name.
    """
    check_name(name, "sign-in")
    secret, role = work.new_secret(), "read-only" if read_only else "full"
    operators.set_link(work, name, role, hash_secret(secret), work.now + LINK_LIFETIME, work.now)
    operator = operators.find_operator(work, name)
    assert operator is not None
    delete_sessions(work, OF_OPERATORS, operator.id)
    delete_browsers(work, OF_OPERATORS, operator.id)
    server.record(work, "admin.link", name, role=role)
    return Link(operator, secret)


def open_link(work: Work, secret: str) -> OperatorRecord:
    """The operator of a link. Raises NotFound for one that was used, has expired or never existed."""
    operator = operators.operator_of_link(work, hash_secret(secret))
    if operator is None or not lasts(operator.link_expires_at, work.now, LINK_LIFETIME):
        raise NotFound("This link was used or has expired; `payres admin link` makes another")
    return operator


def set_password(work: Work, secret: str, password_hash: str, browser: Browser) -> SignedIn:
    """Sets the password of the link's operator (see hash_password) and signs in with the browser.

    Raises NotFound as `open_link` does.
    """
    operator = open_link(work, secret)
    OPERATORS.update(work, operator.id, password_hash=password_hash, link_hash=None)
    work.actor = operator.actor
    server.record(work, "admin.set_password", operator.name)
    return sign_in.open_session(work, OF_OPERATORS, OPERATORS.by_id(work, operator.id), browser)


def replace_password(work: Work, name: str, role: str, password_hash: str | None) -> None:
    """Gives an operator the role and the password of another state of the database; None locks the operator out."""
    operator = operators.find_operator(work, name)
    assert operator is not None
    OPERATORS.update(work, operator.id, role=role, password_hash=password_hash, link_hash=None, unlocked_at=work.now)
    delete_sessions(work, OF_OPERATORS, operator.id)
    delete_browsers(work, OF_OPERATORS, operator.id)
    server.record(work, "admin.set_password" if password_hash else "admin.lock_out", name, role=role)


def find_account(work: Work, name: str, browser: Browser) -> tuple[Account, bytes | None]:
    """The operator of this name, or Nobody, and the hash of the browser if it is known."""
    return sign_in.find_account(work, OF_OPERATORS, name, operators.find_operator(work, name), browser)
