"""Signing in to the operator's pages, by a link that sets a password or by name and password; and visits signed in."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from payres.admin.serving import ActorRequest
from payres.errors import DomainError, InsufficientAccess, SignInFailed
from payres.grants.sign_in import Guesser, SignedIn, csrf_token, hash_password
from payres.limits import MIN_PASSWORD_LENGTH
from payres.operator import operators
from payres.pages.forms import (
    OPERATOR,
    browser_of,
    check_sign_in,
    read_form,
    render_sign_in,
    set_signed_in,
    set_signed_out,
)
from payres.pages.html import redirect, render
from payres.rate_limiter import address_of
from payres.routes.context import context_of
from payres.routes.error_answers import note_error
from payres.store.operators import OperatorRecord

HOME: Final = "/admin"
WRONG: Final = "This name and this password do not belong together"
Form = Mapping[str, str]


class Visit(ActorRequest, frozen=True):
    """A request of an operator; `session` is the secret in the cookie."""

    operator: OperatorRecord
    session: str

    @property
    def segments(self) -> Mapping[str, str]:
        """What the path names."""
        found: Mapping[str, str] = self.request.path_params
        return found

    def show(self, template: str, status: int = 200, **values: Any) -> Response:
        """The page that a template makes of the values, in the section of the navigation that its path begins with."""
        section = "/".join(self.request.scope["path"].split("/")[1:3]).removeprefix("admin")
        common = {"operator": self.operator, "csrf": csrf_token(self.session), "section": section, "refresh": None}
        return render(self.request, f"admin/{template}", common | values, status)


# What one address shows to who is signed in.
Page = Callable[[Visit], Awaitable[Response]]


async def find_visit(request: Request) -> Visit | None:
    """The visit of whoever is signed in."""
    session = browser_of(request, OPERATOR).session
    if session is None:
        return None
    operator = await context_of(request).database.read(partial(operators.find_session, session=session))
    authenticate = partial(operators.authenticate, session=session)
    return Visit(request, authenticate, operator, session) if operator else None


async def sign_in(request: Request, form: Form) -> Response:
    """Takes a name and a password, and leads back to the page that was asked for."""
    database, name, browser = context_of(request).database, form.get("name", ""), browser_of(request, OPERATOR)
    account, known = await database.read(partial(operators.find_account, name=name, browser=browser))
    try:
        check_sign_in(request, form)
        await check_password(request, account, form.get("password", ""), known)
        signed_in = await database.write(partial(operators.open_session, verified=account, browser=browser))
    except InsufficientAccess as error:
        return show_sign_in(request, str(note_error(request, error)), name, error.status)
    except SignInFailed as error:
        note_error(request, error)
        return show_sign_in(request, WRONG, name)
    return _signed_in(request, signed_in, request.scope["raw_path"].decode("ascii"))


async def sign_out(visit: Visit) -> Response:
    """Ends the session."""
    await visit.write(partial(operators.close_session, session=visit.session))
    response = redirect(HOME)
    set_signed_out(visit.request, response, OPERATOR)
    return response


async def check_password(request: Request, account: OperatorRecord, password: str, known: bytes | None) -> None:
    """Raises SignInFailed unless it is the account's, TooManyRequests, Unavailable when too many are checked.

    `known` stands for the browser, if it was signed in with before or still is.
    """
    context = context_of(request)
    guesser = Guesser(address_of(request.scope), known)
    await context.operator_sign_in.check_password(account, password, context.clock.now(), guesser)


async def follow_link(request: Request) -> Response:
    """GET shows the form for a password, POST takes it."""
    secret = request.path_params["secret"]
    database = context_of(request).database
    operator = await database.read(partial(operators.open_link, secret=secret))
    if request.method != "POST":
        return _show_link(request, operator.name)
    form = await read_form(request)
    if form.get("password") != form.get("again"):
        return _show_link(request, operator.name, "The two passwords are not the same", 400)
    try:
        check_sign_in(request, form)
        hashed = await asyncio.to_thread(hash_password, form.get("password", ""))
    except DomainError as error:
        noted = note_error(request, error)
        return _show_link(request, operator.name, str(noted), noted.status)
    browser = browser_of(request, OPERATOR)
    unit = partial(operators.set_password, secret=secret, password_hash=hashed, browser=browser)
    return _signed_in(request, await database.write(unit), HOME)


def show_sign_in(request: Request, problem: str | None = None, name: str = "", status: int = 401) -> Response:
    """The form for name and password, where another page was asked for."""
    return render_sign_in(request, "admin/sign_in.html", {"problem": problem, "name": name}, status)


def _show_link(request: Request, name: str, problem: str | None = None, status: int = 200) -> Response:
    values = {"problem": problem, "name": name, "least": MIN_PASSWORD_LENGTH}
    return render_sign_in(request, "admin/link.html", values, status)


def _signed_in(request: Request, signed_in: SignedIn, path: str) -> Response:
    response = redirect(path)
    set_signed_in(request, response, signed_in, OPERATOR)
    return response
