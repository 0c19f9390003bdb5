"""What answers a place: its page, or the action of its form, for who is signed in; before that what signs in, and what
asks for a second step."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

from payres.accounts import sessions
from payres.accounts.asking import PASSWORDS
from payres.accounts.cookies import browser_of, set_signed_out
from payres.accounts.second_step import signed_out
from payres.accounts.sessions import HalfSignIn, SignedIn
from payres.accounts.sign_in import Entered, SignIn
from payres.accounts.visits import Act, Place, Unasked, Visit
from payres.core.protocol.errors import DomainError, MethodNotAllowed, SignInFailed
from payres.html.forms import Form, carried, carrying, here, not_of_page, read_form
from payres.html.html import PAGE_METHODS, redirect

V = TypeVar("V", bound=Visit)


async def answer(
    signs: SignIn[V],
    request: Request,
    show: Callable[[V], Awaitable[Response]],
    act: Callable[[V, Form], Awaitable[Response]],
    again: Mapping[str, Act] = {},
    secrets: Collection[str] = (),
) -> Response:
    """The page or the action of its form, if signed in; else the sign-in form, which carries along what was typed in
    one that is shown `again`, but for passwords and these `secrets`."""
    is_form = request.method == "POST"
    form = await read_form(request) if is_form else {}
    if (entered := await signs.by_form(request, form)) is not None:
        return await _enter(signs, request, entered, form, again)
    open_fields = {name: text for name, text in form.items() if name not in PASSWORDS and name not in secrets}
    typed = carrying(open_fields) if form.get("choice") in again else {}
    session = browser_of(request, signs.cookies).session
    visit = await signs.find_visit(request, session) if session else None
    if visit is None:
        half = None if is_form else await signs.asking.find_half(request)
        if half is not None:
            return signs.asking.half(request, here(request), half, 401)
        return signs.show_sign_in(request, signed_out() if is_form else None, typed)
    try:
        if is_form:
            return await _carry_out(signs, visit, form, act)
        if request.method not in {"GET", "HEAD"}:
            raise MethodNotAllowed(PAGE_METHODS)
        return await show(visit)
    except SignInFailed as error:  # the session ended during the request
        return signs.show_sign_in(request, error, typed)


async def _enter(
    signs: SignIn[V], request: Request, entered: Entered, form: Form, again: Mapping[str, Act]
) -> Response:
    """The page in the session that was opened, with what was typed before; nothing of that is done unseen."""
    response, typed = redirect(here(request)), carried(form)
    if isinstance(entered, HalfSignIn) and typed:
        response = signs.asking.half(request, here(request), entered, form=form)
    elif isinstance(entered, SignedIn) and typed.get("choice") in again:
        visit = await signs.find_visit(request, entered.session)
        with suppress(DomainError):  # such as a thing that is gone: its page says so
            response = await again[typed["choice"]](visit, typed) if visit else response
    return signs.enter(request, response, entered)


async def answer_place(
    signs: SignIn[V],
    request: Request,
    place: Place,
    first: Callable[[V, Form], Awaitable[Response | None]] | None = None,
) -> Response:
    """The page of a place, or the action of its form; before that the page that asks for a second step. `first` may
    answer a form before either."""

    async def show(visit: V) -> Response:
        if place.asks and await signs.asking.is_stale(request, visit.session):
            return await signs.asking.again(request, visit.session, {})
        return await place.show(visit)

    async def act(visit: V, form: Form) -> Response:
        choice = form.get("choice", "")
        if first is not None and (answered := await first(visit, form)) is not None:
            return answered
        if choice not in place.acts:
            raise not_of_page()
        found = place.acts[choice]
        if not isinstance(found, Unasked) and await signs.asking.is_stale(request, visit.session):
            return await signs.asking.again(request, visit.session, form)
        return await found(visit, form)

    return await answer(signs, request, show, act, place.again)


async def _carry_out(signs: SignIn[V], visit: V, form: Form, act: Callable[[V, Form], Awaitable[Response]]) -> Response:
    sessions.check_csrf(visit.session, form.get("csrf", ""))
    if form.get("choice") == "verify":
        found = await signs.asking.verified(visit.request, visit.session, form)
        return found if isinstance(found, Response) else await act(visit, found)
    if form.get("choice") != "sign-out":
        return await act(visit, form)
    await visit.write(partial(sessions.close_session, kind=signs.cookies.kind, session=visit.session))
    response = redirect(signs.outside)
    set_signed_out(visit.request, response, signs.cookies)
    return response
