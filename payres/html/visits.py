"""Requests of owners and operators: signing in and out, pages and forms. Every response is a page or a redirect."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from payres.core.http.context import Context, context_of
from payres.core.http.error_answers import note_error
from payres.core.http.requests import ActorRequest
from payres.core.process.rate_limiter import UNREADABLE, address_of
from payres.core.protocol.errors import DomainError, MethodNotAllowed, SignInFailed, TooManyRequests
from payres.core.store.work import Work
from payres.html import sign_in
from payres.html.forms import Cookies, browser_of, check_sign_in, read_form, set_signed_in, set_signed_out
from payres.html.html import PAGE_METHODS, redirect
from payres.html.sign_in import Account, Browser, Guesser, SignInGuard, check_csrf

Form = Mapping[str, str]
log = logging.getLogger("payres.sign_in")


class Visit(ActorRequest, frozen=True):
    """A request with a session; `session` is the secret in the cookie."""

    session: str

    @property
    def segments(self) -> Mapping[str, str]:
        """The path parameters."""
        found: Mapping[str, str] = self.request.path_params
        return found


V = TypeVar("V", bound=Visit)


class Side(NamedTuple):
    """How one kind of account signs in: its cookies, its password guard, the form field that names the account, and the
    functions that find the account, find the visit of a session (None if it is not valid) and show the sign-in form
    with an error and the given name. `signed_out` is the redirect after signing out."""

    cookies: Cookies
    guard: Callable[[Context], SignInGuard]
    field: str
    find_account: Callable[[Work, str, Browser], tuple[Account, bytes | None]]
    find_visit: Callable[[Request, str], Awaitable[Any]]
    show_sign_in: Callable[[Request, DomainError | None, str | None], Response]
    signed_out: str


async def answer(
    request: Request,
    side: Side,
    show: Callable[[V], Awaitable[Response]],
    act: Callable[[V, Form], Awaitable[Response]],
) -> Response:
    """The page or the action of its form, if signed in; else the sign-in form."""
    is_form = request.method == "POST"
    form = await read_form(request) if is_form else {}
    if form.get("choice") == "sign-in":
        return await _sign_in(request, side, form)
    session = browser_of(request, side.cookies).session
    visit = await side.find_visit(request, session) if session else None
    if visit is None:
        return side.show_sign_in(request, sign_in.signed_out() if is_form else None, None)
    try:
        if is_form:
            return await _carry_out(visit, side, form, act)
        if request.method not in {"GET", "HEAD"}:
            raise MethodNotAllowed(PAGE_METHODS)
        return await show(visit)
    except SignInFailed as error:  # the session ended during the request
        return side.show_sign_in(request, error, None)


async def open_session(
    request: Request, cookies: Cookies, guard: SignInGuard, account: Account, known: bytes | None, form: Form
) -> sign_in.SignedIn:
    """Checks the password and opens a session; `known` is the browser's hash if the account knows it.

    Raises InsufficientAccess, SignInFailed, TooManyRequests, Unavailable.
    """
    check_sign_in(request, form)
    await check_password(request, guard, account, form.get("password", ""), known)
    browser = browser_of(request, cookies)
    unit = partial(sign_in.open_session, kind=cookies.kind, verified=account, browser=browser)
    return await context_of(request).database.write(unit)


async def check_password(
    request: Request, guard: SignInGuard, account: Account, password: str, known: bytes | None
) -> None:
    """Raises SignInFailed for a wrong password, TooManyRequests, Unavailable if too many checks are running.

    `known` identifies the browser, if the account knows it or it is signed in.
    """
    guesser = Guesser(address_of(request.scope), known)
    try:
        await guard.check_password(account, password, context_of(request).clock.now(), guesser)
    except (SignInFailed, TooManyRequests):
        # deploy/fail2ban.conf matches it. No name that was typed: that may be a password, or forge a line.
        client = guesser.address or "this machine"
        if request.client is not None and client not in {"this machine", UNREADABLE}:
            client = request.client.host.partition("%")[0]  # not the network; a zone may be any text
        log.warning("sign-in failed from %s: %s", client, getattr(account, "actor", "no such account"))
        raise


async def _sign_in(request: Request, side: Side, form: Form) -> Response:
    """Signs in by name and password, and redirects to the requested page."""
    context, name, browser = context_of(request), form.get(side.field, ""), browser_of(request, side.cookies)
    account, known = await context.database.read(lambda work: side.find_account(work, name, browser))
    try:
        signed_in = await open_session(request, side.cookies, side.guard(context), account, known, form)
    except DomainError as error:
        noted = note_error(request, error)
        response = side.show_sign_in(request, noted, name)
        response.headers.update(noted.headers)
        return response
    query = request.scope["query_string"]
    response = redirect((request.scope["raw_path"] + (b"?" + query if query else b"")).decode("ascii"))
    set_signed_in(request, response, signed_in, side.cookies)
    return response


async def _carry_out(visit: V, side: Side, form: Form, act: Callable[[V, Form], Awaitable[Response]]) -> Response:
    check_csrf(visit.session, form.get("csrf", ""))
    if form.get("choice") != "sign-out":
        return await act(visit, form)
    await visit.write(partial(sign_in.close_session, kind=side.cookies.kind, session=visit.session))
    response = redirect(side.signed_out)
    set_signed_out(visit.request, response, side.cookies)
    return response
