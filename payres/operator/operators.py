"""Operators of the admin pages, and their sign-in.

Somebody with a shell on the server makes a link, which is valid once and for 15 minutes. Whoever opens it sets the
operator's password.
"""

import hashlib
from typing import Annotated, Final, NamedTuple

from payres.clock import HOUR, MINUTE, format_time
from payres.errors import NotFound, SignInFailed
from payres.grants.sign_in import Browser, SignedIn, known_browser, remember, wrong_password
from payres.identifiers import hash_secret
from payres.operator.declarations import command
from payres.operator.inputs import check_name, said
from payres.settings import local_url
from payres.store import audit, operators
from payres.store.browsers import OF_OPERATORS, delete_browsers
from payres.store.operators import OPERATORS, OperatorRecord
from payres.store.work import Work
from payres.urls import LINK_PATH, is_loopback
from payres.wire import Resource

LINK_LIFETIME: Final = 15 * MINUTE
SESSION_LIFETIME: Final = 12 * HOUR
WHAT: Final = "operator"  # the account of a wrong password, in errors
ReadOnly = Annotated[bool, said("They may look at everything and change nothing.")]


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
    name: Annotated[str, said("Who it is for, as the audit log names them.")] = "admin",
    read_only: ReadOnly = False,
) -> ShownLink:
    """Print a URL with which an operator sets a password.

    It is valid once, for 15 minutes. The operator's old password and sessions end at once, so this also locks somebody
    out.
    """
    made, settings, host = make_link(work, name, read_only=read_only), work.settings, work.urls.host
    is_reachable = is_loopback(host) or host in settings.admin_hosts.split(",")
    base = settings.base_url if is_reachable else local_url(settings.host, settings.port)
    if base != settings.base_url:
        work.warn(
            "The pages are there for this machine alone: open the URL here or through an SSH tunnel, or let others in"
            " with the setting admin_hosts"
        )
    url, expires_at = f"{base}{LINK_PATH}{made.secret}", format_time(made.operator.link_expires_at)
    return ShownLink(name=made.operator.name, role=made.operator.role, url=url, expires_at=expires_at)


def make_link(work: Work, name: str, *, read_only: bool) -> Link:
    """A link for an operator, who may be new. An old password and old sessions end, and no browser is known any more.

    Raises InvalidRequest for the name.
    """
    check_name(name, "sign-in")
    secret, role = work.new_secret(), "read-only" if read_only else "full"
    operators.set_link(work, name, role, hash_secret(secret), work.now + LINK_LIFETIME, work.now)
    operator = operators.find_operator(work, name)
    assert operator is not None
    operators.delete_sessions_of_operator(work, operator.id)
    delete_browsers(work, OF_OPERATORS, operator.id)
    audit.record(work, "admin.link", name, role=role)
    return Link(operator, secret)


def open_link(work: Work, secret: str) -> OperatorRecord:
    """The operator of a link. Raises NotFound for one that was used, has expired or never existed."""
    operator = operators.operator_of_link(work, hash_secret(secret))
    if operator is None or work.now >= operator.link_expires_at:
        raise NotFound("This link was used or has expired; `payres admin link` makes another")
    return operator


def set_password(work: Work, secret: str, password_hash: str, browser: Browser) -> SignedIn:
    """Sets the password of the link's operator (see hash_password) and signs in with the browser.

    Raises NotFound as `open_link` does.
    """
    operator = open_link(work, secret)
    OPERATORS.update(work, operator.id, password_hash=password_hash, link_hash=None)
    work.actor = actor_of(operator)
    audit.record(work, "admin.set_password", operator.name)
    return _new_session(work, operator, browser)


def find_account(work: Work, name: str, browser: Browser) -> tuple[OperatorRecord, bytes | None]:
    """The operator of this name, and the hash of the browser if that is known.

    A name that nobody has gets an operator without a password, whose attempts are counted all the same.
    """
    found = operators.find_operator(work, name)
    if found is not None:
        return found, known_browser(work, OF_OPERATORS, found.id, browser)
    number = int.from_bytes(hashlib.sha256(name.encode("utf-8", "replace")).digest()[:8], "big")
    return OperatorRecord(-number, name, "read-only", None, 0, 0), None


def open_session(work: Work, verified: OperatorRecord, browser: Browser) -> SignedIn:
    """A session for the operator whose password matched `verified`, in place of the browser's own.

    Both secrets are always new, so that nobody can have planted them. Raises SignInFailed when the password was changed
    while it was being checked.
    """
    if OPERATORS.by_id(work, verified.id).password_hash != verified.password_hash:
        raise wrong_password(WHAT)
    return _new_session(work, verified, browser)


def find_session(work: Work, session: str) -> OperatorRecord | None:
    """The operator of a session."""
    return operators.operator_of_session(work, hash_secret(session), work.now)


def authenticate(work: Work, session: str) -> str:
    """The operator of a session, as the audit log names the actor. Raises SignInFailed for one that has ended."""
    operator = find_session(work, session)
    if operator is None:
        raise SignInFailed("You are signed out by now. Sign in again", reason="signed_out")
    return actor_of(operator)


def close_session(work: Work, session: str) -> None:
    """Signs the browser out."""
    operators.delete_session(work, hash_secret(session))


def actor_of(operator: OperatorRecord) -> str:
    """An operator as the audit log names the actor."""
    return f"page:{operator.name}"


def _new_session(work: Work, operator: OperatorRecord, browser: Browser) -> SignedIn:
    if browser.session is not None:
        operators.delete_session(work, hash_secret(browser.session))
    signed_in = remember(work, OF_OPERATORS, operator.id, browser)
    expires_at = work.now + SESSION_LIFETIME
    operators.insert_session(work, hash_secret(signed_in.session), operator.id, work.now, expires_at)
    return signed_in
