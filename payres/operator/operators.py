"""Operators of the admin pages, and their sign-in.

Somebody with a shell on the server, or an operator who may do everything, makes a link, which is valid once and for 15
minutes. Whoever opens it sets the operator's password. The API has none of this: a program with a key would let itself
in as a person, beyond the scopes of its key.
"""

from collections.abc import Sequence
from typing import Annotated, Final, Literal

from payres.core.process.settings import local_url
from payres.core.protocol.clock import format_time
from payres.core.protocol.errors import InsufficientAccess, WrongState, require
from payres.core.protocol.urls import LINK_PATH, is_loopback
from payres.core.protocol.wire import Resource
from payres.core.store import server
from payres.core.store.work import Work
from payres.html import sign_in
from payres.html.store.sessions import delete_sessions, end_access
from payres.operator.declarations import CommandLine, Listing, Name, OperationForm, check_name, operation, said
from payres.operator.shapes import Column, Shape, Time, fact, represent
from payres.operator.store import operators
from payres.operator.store.operators import OF_OPERATORS, OPERATORS, OperatorRecord, find_operator

Role = Annotated[Literal["full", "read-only"], said("full may do everything, read-only may look at everything.")]
ACCESS: Final = "this is about who may do what"
LET_IN: Final = "It sets a password, works once, and for 15 minutes. Hand it over yourself."
MAY_LOOK: Final = "You may look at everything and change nothing"
NONE: Final = "Nobody can sign in to the pages yet: `payres admin link` lets the first one in"
ReadOnly = Annotated[bool, said("The operator can see everything and change nothing.")]


class ShownLink(Resource, frozen=True, kw_only=True):
    name: str
    role: str
    url: str
    expires_at: str


class Operator(Resource, frozen=True, kw_only=True):
    """`state` is `active` with a password, `invited` with a link that sets one, else `locked out`; `sessions` is the
    number of browsers that are signed in."""

    name: str
    role: str
    state: str
    link_expires_at: Time | None
    sessions: int
    last_sign_in_at: Time | None


def operator(work: Work, record: OperatorRecord) -> Operator:
    until, sessions, last = operators.access_of(work, record.id, work.now)
    state = "active" if record.password_hash else "invited" if until else "locked out"
    shown = {"state": state, "link_expires_at": until and format_time(until), "sessions": sessions}
    return represent(Operator, record, **shown, last_sign_in_at=last and format_time(last))


def require_operator(work: Work, name: str) -> OperatorRecord:
    """Raises NotFound."""
    return require(find_operator(work, name), f"There is no operator {name}", "`payres admin list` shows all")


OPERATOR: Final = Shape(
    operator,
    Column("Name", "name", section="operators"),
    Column("Role", "role"),
    Column("State", "state", "state"),
    Column("Link until (UTC)", "link_expires_at", "time"),
    Column("Browsers signed in", "sessions", "number"),
    Column("Last sign-in (UTC)", "last_sign_in_at", "time"),
    read=require_operator,
    page="/operators/{name}",
)
LINK: Final = Shape(
    lambda _, made: made,
    fact("Link", "url", "secret"),
    Column("Role", "role"),
    Column("Works until (UTC)", "expires_at", "time"),
    name=lambda made: made.name,
)


@operation(
    shows=OPERATOR,
    command=CommandLine("admin list"),
    listing=Listing(
        *("operators", NONE, "Operators", "/operators"),
        "Who may use these pages. If nobody can sign in any more, `payres admin link` on the server helps.",
    ),
)
def list_operators(work: Work) -> Sequence[OperatorRecord]:
    """List operators, with open links and signed-in browsers."""
    return OPERATORS.list(work, "ORDER BY name")


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


@operation(
    shows=LINK,
    form=OperationForm(
        "Make the link",
        title="New operator",
        path="/new-operator",
        lists="/operators",
        will=LET_IN,
        moves_money=True,
        because=ACCESS,
    ),
    shows_secret=True,
)
def add_operator(work: Work, name: Name, role: Role) -> ShownLink:
    """Let somebody in who is no operator yet. The audit log shows the name."""
    if find_operator(work, name) is not None:
        raise WrongState(f"There is an operator {name} already, whose page makes a new link", field="name")
    return make_link(work, name, role == "read-only")


@operation(
    shows=LINK,
    form=OperationForm(
        "Make the link",
        OPERATOR,
        title="New link",
        path="/operators/{name}/link",
        will=[LET_IN, "The password ends now, and every browser is signed out."],
        moves_money=True,
        because=ACCESS,
    ),
    shows_secret=True,
)
def renew_link(work: Work, name: str) -> ShownLink:
    """Make a new link for an operator, who keeps the role."""
    found = require_operator(work, name)
    _require_another(work, found)
    return make_link(work, name, found.role == "read-only")


@operation(
    shows=OPERATOR,
    command=CommandLine("admin role NAME ROLE", "ann read-only"),
    form=OperationForm(
        "Change the role",
        OPERATOR,
        "{name} is {role} now",
        path="/operators/{name}/role",
        changes=True,
        moves_money=True,
        because=ACCESS,
    ),
)
def set_role(work: Work, name: str, role: Role) -> OperatorRecord:
    """Let an operator do everything, or look only. It takes effect at once, and signs nobody out."""
    found = require_operator(work, name)
    if role != "full":
        _require_another(work, found)
    OPERATORS.update(work, found.id, role=role)
    server.record(work, "admin.role", name, role=role)
    return require_operator(work, name)


@operation(
    shows=OPERATOR,
    command=CommandLine("admin sign-out NAME", "ann"),
    form=OperationForm(
        "Sign out everywhere",
        OPERATOR,
        "{name} is signed out in every browser",
        path="/operators/{name}/sign-out",
        is_over=lambda one: not one.sessions,
        presses=True,
    ),
)
def sign_out(work: Work, name: str) -> OperatorRecord:
    """Sign an operator out in every browser. The password stays."""
    found = require_operator(work, name)
    delete_sessions(work, OF_OPERATORS, found.id)
    server.record(work, "admin.sign_out", name)
    return found


@operation(
    command=CommandLine("admin remove NAME", "ann", text=lambda one: f"{one.name} is no operator any more"),
    form=OperationForm(
        "Remove",
        OPERATOR,
        "{name} is no operator any more",
        "Remove this operator",
        back="/operators",
        will="Sessions, links and the password end. What was done in this name stays in the audit log.",
        ends=True,
    ),
)
def remove_operator(work: Work, name: str) -> Operator:
    """Remove an operator. Sessions and links end; the audit log keeps the name."""
    found = require_operator(work, name)
    _require_another(work, found)
    shown = operator(work, found)
    end_access(work, OF_OPERATORS, found.id)
    operators.delete_operator(work, found.id)
    server.record(work, "admin.remove", name, role=found.role)
    return shown


def _require_another(work: Work, leaving: OperatorRecord) -> None:
    """Raises WrongState in the pages if nobody else could do everything there. Who has a shell can make a link."""
    others = [one for one in OPERATORS.list(work, "WHERE id <> ?", leaving.id) if one.may_change and one.password_hash]
    if not others and work.actor.startswith("page:"):
        raise WrongState(f"{leaving.name} is the last who may do everything here: let somebody else in first")


def require_change(work: Work, session: str) -> str:
    """Who is signed in, as the audit log names the actor. Raises SignInFailed for a session that has ended, and
    InsufficientAccess for who may look only."""
    actor = sign_in.authenticate(work, OF_OPERATORS, session)
    found = find_operator(work, actor.partition(":")[2])
    if found is None or not found.may_change:
        raise InsufficientAccess(MAY_LOOK, reason="action")
    return actor


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
