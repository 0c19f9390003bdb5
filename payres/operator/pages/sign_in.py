"""Signing in to the operator's pages, by a link that sets a password or by name and password."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from payres.core.http.context import context_of
from payres.core.http.error_answers import note_error
from payres.core.protocol.errors import DomainError
from payres.core.protocol.limits import MIN_PASSWORD_LENGTH
from payres.core.store.work import Work
from payres.html import visits
from payres.html.forms import Cookies, browser_of, check_sign_in, read_form, render_sign_in, set_signed_in
from payres.html.html import redirect, render
from payres.html.sign_in import PasswordGate, authenticate, csrf_token, find_session
from payres.html.visits import Side
from payres.operator import operators
from payres.operator.operators import find_account
from payres.operator.services import operator_of
from payres.operator.store.operators import OF_OPERATORS, OPERATORS, OperatorRecord

HOME: Final = "/admin"
OPERATOR: Final = Cookies(OF_OPERATORS, "payres_admin", "payres_admin_known_", "strict")
WRONG: Final = "This name and this password do not belong together"


class Visit(visits.Visit, frozen=True):
    """A request of a signed-in operator."""

    operator: OperatorRecord

    def show(self, template: str, status: int = 200, **values: Any) -> Response:
        """Renders a template below admin/; the path selects the section of the navigation."""
        section = "/".join(self.request.scope["path"].split("/")[1:3]).removeprefix("admin")
        common = {"operator": self.operator, "csrf": csrf_token(self.session), "section": section, "refresh": None}
        return render(self.request, f"admin/{template}", common | values, status)


Page = Callable[[Visit], Awaitable[Response]]


async def find_visit(request: Request, session: str) -> Visit | None:
    """The visit of a session; None if it is not valid."""

    def unit(work: Work) -> OperatorRecord | None:
        found = find_session(work, OF_OPERATORS, session)
        return OPERATORS.by_id(work, found.account_id) if found else None

    operator = await context_of(request).database.read(unit)
    authentic = partial(authenticate, kind=OF_OPERATORS, session=session)
    return Visit(request, authentic, session, operator) if operator else None


async def follow_link(request: Request) -> Response:
    """The page of a sign-in link: GET shows the password form, POST sets the password and signs in."""
    secret = request.path_params["secret"]
    context, find = context_of(request), partial(operators.open_link, secret=secret)
    database = context.database
    operator = await database.read(find)
    if request.method != "POST":
        return _show_link(request, operator.name)
    form = await read_form(request)
    if form.get("password") != form.get("again"):
        return _show_link(request, operator.name, "The two passwords are not the same", 400)
    try:
        check_sign_in(request, form)
        key = (OF_OPERATORS.noun, operator.id)
        hashed = await context.part(PasswordGate).hash(form.get("password", ""), key, partial(database.read, find))
    except DomainError as error:
        noted = note_error(request, error)
        response = _show_link(request, operator.name, str(noted), noted.status)
        response.headers.update(noted.headers)
        return response
    browser = browser_of(request, OPERATOR)
    unit = partial(operators.set_password, secret=secret, password_hash=hashed, browser=browser)
    signed_in, response = await database.write(unit), redirect(HOME)
    set_signed_in(request, response, signed_in, OPERATOR)
    return response


def show_sign_in(request: Request, error: DomainError | None = None, name: str | None = None) -> Response:
    """The sign-in form in place of the requested page."""
    is_wrong = error is not None and error.details.get("reason") == "wrong_password"
    values = {"problem": WRONG if is_wrong else error and str(error), "name": name or ""}
    return render_sign_in(request, "admin/sign_in.html", values, error.status if error else 401)


SIDE: Final = Side(
    OPERATOR,
    lambda context: operator_of(context).sign_in,
    "name",
    find_account,
    find_visit,
    show_sign_in,
    signed_out=HOME,
)


def _show_link(request: Request, name: str, problem: str | None = None, status: int = 200) -> Response:
    values = {"problem": problem, "name": name, "least": MIN_PASSWORD_LENGTH}
    return render_sign_in(request, "admin/link.html", values, status)
