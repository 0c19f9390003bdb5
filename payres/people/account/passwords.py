"""An owner's password: changing it, and resetting it by a link from the operator."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from payres.core.http.context import context_of
from payres.core.http.error_answers import note_error
from payres.core.protocol.errors import (
    InsufficientAccess,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    SignInFailed,
    TooManyRequests,
    Unavailable,
)
from payres.core.protocol.identifiers import hash_secret
from payres.core.protocol.limits import MAX_PASSWORD_LENGTH, MIN_PASSWORD_LENGTH
from payres.core.store.wallets import WalletRecord
from payres.html.error_sentences import problem_of
from payres.html.forms import browser_of, check_sign_in, read_form, render_sign_in, set_signed_in
from payres.html.html import PAGE_METHODS, language_of, redirect
from payres.html.sign_in import PasswordGate
from payres.html.store.sessions import OF_WALLETS
from payres.html.visits import Form, check_password
from payres.people.account.visits import HOME, Visit
from payres.people.rules import passwords
from payres.people.services import people_of

LENGTHS: Final = {"least": MIN_PASSWORD_LENGTH, "most": MAX_PASSWORD_LENGTH}
Problems = Mapping[str, str]  # by form field


async def show(visit: Visit) -> Response:
    """GET /settings/password."""
    return _show(visit, {}, 200)


def _show(visit: Visit, problems: Problems, status: int) -> Response:
    return visit.show("password.html", status, problems=problems, least=MIN_PASSWORD_LENGTH)


async def change(visit: Visit, form: Form) -> Response:
    """Changes the password, which signs out every other browser."""
    wallet = visit.wallet
    session = hash_secret(visit.session)  # a signed-in browser is exempt from the limit on guesses
    try:
        await check_password(visit.request, people_of(visit.context).sign_in, wallet, form.get("current", ""), session)
        hashed, problems = await _hashed(visit.request, form, wallet, lambda: visit.read(lambda work: None))
    except (SignInFailed, TooManyRequests, Unavailable) as error:
        noted = note_error(visit.request, error)
        return _show(visit, {"current": problem_of(visit.language, noted)}, noted.status)
    if hashed is None:
        return _show(visit, problems, 400)
    browser = browser_of(visit.request)
    unit = partial(passwords.change_password, verified=wallet, password_hash=hashed, browser=browser)
    signed_in = await visit.write(unit)
    response = redirect("/settings?done=password")
    set_signed_in(visit.request, response, signed_in)
    return response


async def reset(request: Request) -> Response:
    """The page of a reset link: GET shows the form, POST sets the password and signs in."""
    database, secret = context_of(request).database, request.path_params["secret"]
    find = partial(passwords.open_link, secret=secret)
    try:
        wallet = await database.read(find)
        if request.method != "POST":
            if request.method not in {"GET", "HEAD"}:
                raise MethodNotAllowed(PAGE_METHODS)
            return _show_reset(request, wallet, {}, 200)
        form = await read_form(request)
        try:
            check_sign_in(request, form)
            hashed, problems = await _hashed(request, form, wallet, partial(database.read, find))
        except (InsufficientAccess, Unavailable) as error:
            problem = problem_of(language_of(request), note_error(request, error))
            response = _show_reset(request, wallet, {"": problem}, error.status)
            response.headers.update(error.headers)
            return response
        if hashed is None:
            return _show_reset(request, wallet, problems, 400)
        unit = partial(passwords.reset_password, secret=secret, password_hash=hashed, browser=browser_of(request))
        signed_in = await database.write(unit)
    except NotFound as error:
        return _show_reset(request, None, {}, note_error(request, error).status)
    response = redirect(HOME)
    set_signed_in(request, response, signed_in)
    return response


def _show_reset(request: Request, wallet: WalletRecord | None, problems: Problems, status: int) -> Response:
    """The form, or without a wallet the message that the link is no longer valid."""
    values = {"wallet": wallet, "problems": problems, "least": MIN_PASSWORD_LENGTH}
    return render_sign_in(request, "account/reset.html", values, status)


async def _hashed(
    request: Request, form: Form, wallet: WalletRecord, check: Callable[[], Awaitable[object]]
) -> tuple[str | None, Problems]:
    """The hash of the new password, or the problems. See PasswordGate."""
    language, gate = language_of(request), context_of(request).part(PasswordGate)
    if form.get("password") != form.get("again"):
        return None, {"again": language.say("The two passwords are not the same. Type the new one twice.")}
    try:
        return await gate.hash(form.get("password", ""), (OF_WALLETS.noun, wallet.id), check), {}
    except InvalidRequest:
        return None, {"password": language.say("A password has {least} to {most} characters.", **LENGTHS)}
