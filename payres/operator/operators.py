"""Operators of the admin pages, and their sign-in.

Somebody with a shell on the server, or an operator who may do everything, makes a link, which is valid once and for 15
minutes. Whoever opens it sets the operator's password. The API has none of this: a program with a key would let itself
in as a person, beyond the scopes of its key.
"""

from collections.abc import Sequence
from typing import Annotated, Final

from payres.accounts import password_links
from payres.accounts.second_factors import delete_factors, factors_of, remove_factors
from payres.accounts.store.kinds import Account, delete_of
from payres.accounts.store.sessions import end_access
from payres.accounts.visits import TAKES_AWAY
from payres.core.process.settings import local_url
from payres.core.protocol.clock import format_time
from payres.core.protocol.errors import InvalidRequest, WrongState, require
from payres.core.protocol.urls import LINK_PATH, is_loopback
from payres.core.protocol.wire import AssetCode, Resource, require_amount
from payres.core.store import audit
from payres.core.store.accounts import ASSETS, list_assets
from payres.core.store.work import Work
from payres.operator.declared import look_overs
from payres.operator.declared.declarations import FOR_GOOD, CommandLine, Listing, OperationForm, operation
from payres.operator.declared.inputs import DecimalText, check_name, said
from payres.operator.declared.shapes import Cell, Column, Shape, Time, decimals, fact, represent
from payres.operator.roles import WORDS, Role
from payres.operator.settings import OperatorSettings
from payres.operator.store import operators
from payres.operator.store.operators import NO_REFUNDS, OF_OPERATORS, OPERATORS, Limit, OperatorRecord

RoleName = Annotated[Role, said("What the operator may do.", choices=WORDS)]
RefundLimit = Annotated[
    DecimalText | None,
    said(
        "For support, which without it sends nothing back. In a day, four times as much.",
        label="Sends back of one payment, at most",
    ),
]
RefundCurrency = Annotated[
    AssetCode | None,
    said("That of this amount; payments in others count by the rate.", metavar="CODE", label="In the currency"),
]


class ShownLink(Resource, frozen=True, kw_only=True):
    name: str
    role: str
    url: str
    expires_at: str


class Operator(Resource, frozen=True, kw_only=True):
    """`state` is `active` with a password, `invited` with a link that sets one, else `locked out`; `sessions` is the
    number of browsers that are signed in, `second_step` what they were asked for beside the password. Support sends
    back `refund_limit` of a payment at most."""

    name: str
    role: str
    refund_limit: str | None
    refund_currency: str | None
    state: str
    second_step: str | None
    link_expires_at: Time | None
    sessions: int
    last_sign_in_at: Time | None


def operator(work: Work, record: OperatorRecord) -> Operator:
    until, sessions, last = operators.access_of(work, record.id, work.now)
    state = "active" if record.password_hash else "invited" if until else "locked out"
    factors = factors_of(work, OF_OPERATORS, record.id)
    steps = ", ".join(sorted(one.name for one in factors.asked)) or None
    found: dict[str, object] = {"state": state, "second_step": steps, "sessions": sessions, "refund_limit": None}
    asset = ASSETS.by_id(work, record.refund_asset_id).asset if record.refund_asset_id else None
    found |= {"refund_currency": asset and asset.code}
    found |= decimals(asset, refund_limit=record.refund_limit) if asset else {}
    return represent(Operator, record, **found, link_expires_at=until, last_sign_in_at=last)


def require_operator(work: Work, name: str) -> OperatorRecord:
    """Raises NotFound."""
    return require(OPERATORS.find(work, name=name), f"There is no operator {name}", "`payres admin list` shows all")


OPERATOR: Final = Shape(
    operator,
    Column("Name", "name", section="operators"),
    Column("Role", "role"),
    Column("Sends back, at most", lambda one: Cell(one.refund_limit or "", "number", unit=one.refund_currency or "")),
    Column("State", "state", "state"),
    Column("Second step", "second_step"),
    Column("Link until (UTC)", "link_expires_at", "time"),
    Column("Browsers signed in", lambda one: one.sessions or None),
    Column("Last sign-in (UTC)", "last_sign_in_at", "time"),
    read=require_operator,
    page="/operators/{name}",
)
LINK: Final = Shape(
    None,
    fact("Link", "url", "secret"),
    Column("Role", "role"),
    Column("Works until (UTC)", "expires_at", "time"),
    name=lambda made: made.name,
)


@operation(
    shows=OPERATOR,
    command=CommandLine("admin list"),
    listing=Listing(
        *("operators", "Nobody can sign in to the pages yet", "Operators"),
        page="/operators",
        menu="Server",
        advice="`payres admin link` lets the first one in",
    ),
)
def list_operators(work: Work) -> Sequence[OperatorRecord]:
    """List operators, with open links and signed-in browsers."""
    return sorted(OPERATORS.list(work), key=lambda one: one.name)


@operation(
    shows=LINK,
    command=CommandLine("admin link", "--name ann", text="{url}"),
    form=OperationForm(
        "Make the link",
        title="New operator",
        lists="/operators",
        needs=("name", "role"),
        will="You get a link. It works once, for 15 minutes. Hand it over yourself.",
        weighs=look_overs.of_operator,
    ),
    scope="operators:write",
    shows_secret=True,
)
def make_link(
    work: Work,
    name: Annotated[str, said("The audit log shows it. It stays.")] = "admin",
    role: RoleName = "full",
    refund_limit: RefundLimit = None,
    refund_currency: RefundCurrency = None,
) -> ShownLink:
    """Print a URL with which an operator sets a password.

    It is valid once, for 15 minutes. The operator's old password and sessions end at once, so this also locks somebody
    out. Made on the server, it removes the second factors too.
    """
    check_name(name, "sign-in")
    if set(name) == {"."}:  # another path in the address of its page
        raise InvalidRequest("A sign-in name is not dots alone", field="name")
    known = OPERATORS.find(work, name=name)
    if known is not None and known.password_hash and is_page(work):
        raise WrongState(f"{name} can sign in already: that operator's page makes a new link", field="name")
    made = _link(work, name, role, _limit(work, role, refund_limit, refund_currency))
    if not is_page(work):  # who has a shell can do everything
        remove_factors(work, OF_OPERATORS, require_operator(work, name))
    return made


@operation(
    shows=LINK,
    form=OperationForm("Make the link", OPERATOR, title="New sign-in link", path="/operators/{name}/link"),
    scope="operators:write",
    audits="admin.link",
    shows_secret=True,
)
def renew_link(work: Work, name: str) -> ShownLink:
    """Make a new sign-in link for an operator who lost the password.

    The old password, the sessions and an earlier link end at once; second steps stay. You get a link. It works once,
    for 15 minutes. Hand it over yourself.
    """
    found = require_operator(work, name)
    _require_another(work, found)
    return _link(work, name, found.role, found.limit)


def _link(work: Work, name: str, role: str, limit: Limit) -> ShownLink:
    """A link that sets a password, in place of the one before."""
    operator = _replace(work, name, role, None, limit)
    secret, expires_at = password_links.make_link(work, OF_OPERATORS, operator.id)
    audit.record(work, "admin.link", name, role=role)
    settings, host = work.settings, work.urls.host
    is_reachable = is_loopback(host) or host in settings.of(OperatorSettings).admin_hosts.split(",")
    base = work.urls.base if is_reachable else local_url(settings.host, settings.port)
    if base != work.urls.base:
        work.environment.warn(
            "Only this machine can reach the pages: open the URL here or through an SSH tunnel, or let others in"
            " with the setting admin_hosts"
        )
    return ShownLink(name=name, role=role, url=f"{base}{LINK_PATH}{secret}", expires_at=format_time(expires_at))


@operation(
    shows=OPERATOR,
    command=CommandLine("admin role NAME ROLE", "ann reads\nben support --refund-limit 50.00 --refund-currency USD"),
    form=OperationForm("Change the role", OPERATOR, "{name} has the role {role} now", changes=True),
    scope="operators:write",
)
def set_role(
    work: Work, name: str, role: RoleName, refund_limit: RefundLimit = None, refund_currency: RefundCurrency = None
) -> OperatorRecord:
    """Let an operator do everything, help owners, or look only. It takes effect at once, and signs nobody out."""
    found = require_operator(work, name)
    if role != "full":
        _require_another(work, found)
    OPERATORS.update(work, found.id, role=role, **_limit(work, role, refund_limit, refund_currency)._asdict())
    return require_operator(work, name)


def _limit(work: Work, role: str, amount: str | None, currency: str | None) -> Limit:
    """What support may send back. Raises InvalidRequest, InvalidAmount."""
    if role != "support" or amount is None:
        return NO_REFUNDS
    found = [one for one in list_assets(work) if currency in {None, one.code}]
    if not found or len({one.code for one in found}) > 1:
        raise InvalidRequest("Name the currency of the amount, one that a wallet here has", field="refundCurrency")
    return Limit(require_amount(amount, found[0].asset), found[0].id)


@operation(
    shows=OPERATOR,
    command=CommandLine("admin sign-out NAME", "ann"),
    form=OperationForm(
        "Sign out everywhere",
        OPERATOR,
        "{name} is signed out in every browser",
        is_over=lambda one: not one.sessions,
        presses=True,
        unasked=TAKES_AWAY,
    ),
    scope="operators:write",
)
def sign_out(work: Work, name: str) -> OperatorRecord:
    """Sign an operator out in every browser. The password stays."""
    found = require_operator(work, name)
    delete_of(work, OF_OPERATORS, found.id, "session")
    return found


@operation(
    command=CommandLine("admin remove NAME", "ann", text="{name} is no operator any more"),
    form=OperationForm(
        "Remove",
        OPERATOR,
        "{name} is no operator any more",
        "Remove this operator",
        back="/operators",
        because=FOR_GOOD,
        ends=True,
    ),
    scope="operators:write",
)
def remove_operator(work: Work, name: str) -> Operator:
    """Remove an operator. Sessions and links end; the audit log keeps the name."""
    found = require_operator(work, name)
    _require_another(work, found)
    shown = operator(work, found)
    end_access(work, OF_OPERATORS, found.id)
    delete_factors(work, OF_OPERATORS, found.id)
    operators.delete_operator(work, found.id)
    audit.record(work, "admin.remove", name, role=found.role)
    return shown


def _require_another(work: Work, leaving: OperatorRecord) -> None:
    """Raises WrongState in the pages if nobody else could do everything there. Who has a shell can make a link."""
    full = [one.id for one in OPERATORS.list(work) if one.role == "full" and one.password_hash]
    if is_page(work) and full in ([], [leaving.id]):
        raise WrongState(f"{leaving.name} is the last who may do everything here: let somebody else in first")


def is_page(work: Work) -> bool:
    """Whether an operator acts in the pages, and not at a shell."""
    return work.actor.startswith("page:")


def set_password(work: Work, operator: Account, password_hash: str) -> None:
    """Sets the password of an operator who has followed a link (see hash_password)."""
    OPERATORS.update(work, operator.id, password_hash=password_hash)
    end_access(work, OF_OPERATORS, operator.id)  # the link; nobody is signed in without a password
    audit.record(work, "admin.set_password", operator.name)


def replace_password(work: Work, name: str, role: str, password_hash: str | None, limit: Limit = NO_REFUNDS) -> None:
    """Gives an operator the role and the password of another state of the database; None locks the operator out."""
    _replace(work, name, role, password_hash, limit)
    audit.record(work, "admin.set_password" if password_hash else "admin.lock_out", name, role=role)


def _replace(work: Work, name: str, role: str, password_hash: str | None, limit: Limit) -> OperatorRecord:
    """An operator, who may be new, with this role and password. What the old password opened ends."""
    operators.put_operator(work, name, role, password_hash, work.now, limit)
    operator = require_operator(work, name)
    end_access(work, OF_OPERATORS, operator.id)
    return operator
