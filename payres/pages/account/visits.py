"""Visits of a wallet's owner: signing in, what a page gets, and how it is shown."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from payres.admin.serving import ActorRequest
from payres.errors import DomainError, SignInFailed, Unavailable
from payres.grants.sign_in import Guesser, csrf_token, open_session
from payres.owner import sessions
from payres.owner.sessions import Owner
from payres.pages.error_sentences import problem_of
from payres.pages.forms import (
    browser_of,
    check_sign_in,
    render_sign_in,
    set_signed_in,
    set_signed_out,
)
from payres.pages.html import language_of, redirect, render
from payres.pages.language import Language
from payres.rate_limiter import address_of
from payres.routes.context import context_of
from payres.routes.error_answers import note_error
from payres.store.wallets import WalletRecord

HOME: Final = "/account"
Form = Mapping[str, str]


class Visit(ActorRequest, frozen=True):
    """A request of a wallet's owner; `session` is the secret in the cookie."""

    wallet: WalletRecord
    session: str
    language: Language
    is_renewed: bool = False  # so that the cookie lasts as long as the session

    @property
    def segments(self) -> Mapping[str, str]:
        """What the path names."""
        found: Mapping[str, str] = self.request.path_params
        return found

    def show(
        self, template: str, status: int = 200, *, tab: str = "", refresh: int | None = None, **values: Any
    ) -> Response:
        """The page that a template below account/ makes of the values.

        `tab` is the path of the tab it belongs to; without one it is a task, in one narrow column. It looks again after
        `refresh` seconds.
        """
        common = {"wallet": self.wallet, "name": self.wallet.name, "csrf": csrf_token(self.session), "tab": tab}
        response = render(self.request, f"account/{template}", common | values, status)
        if refresh is not None:
            response.headers["Refresh"] = str(refresh)
        return response


# What one address shows, and what a form on it does.
Page = Callable[[Visit], Awaitable[Response]]
Act = Callable[[Visit, Form], Awaitable[Response]]


async def find_visit(request: Request) -> Visit | None:
    """The visit of whoever is signed in; its session is made longer when that is due."""
    session = browser_of(request).session
    if session is None:
        return None
    database = context_of(request).database
    owner: Owner | None = await database.read(partial(sessions.find_session, session=session))
    if owner is None:
        return None
    visit = Visit(request, partial(sessions.authenticate, session=session), owner.wallet, session, language_of(request))
    # Not with a form, which may end the session: the page after it does.
    is_due = owner.is_renewal_due and request.method != "POST"
    return msgspec.structs.replace(visit, is_renewed=is_due and await _renew(visit))


async def _renew(visit: Visit) -> bool:
    try:
        await visit.write(partial(sessions.renew_session, session=visit.session))
    except (SignInFailed, Unavailable):
        return False
    return True


async def sign_in(request: Request, form: Form) -> Response:
    """Takes a wallet and its password, and leads back to the page that was asked for."""
    context, name, browser = context_of(request), form.get("wallet", ""), browser_of(request)
    account, known = await context.database.read(partial(sessions.find_account, name=name, browser=browser))
    guesser = Guesser(address_of(request.scope), known)
    try:
        check_sign_in(request, form)
        await context.sign_in.check_password(account, form.get("password", ""), context.clock.now(), guesser)
        signed_in = await context.database.write(partial(open_session, verified=account, browser=browser))
    except DomainError as error:
        noted = note_error(request, error)
        field = "password" if isinstance(error, SignInFailed) else ""
        response = show_sign_in(request, {field: problem_of(language_of(request), noted)}, name, noted.status)
        response.headers.update(noted.headers)
        return response
    query = request.scope["query_string"]
    response = redirect((request.scope["raw_path"] + (b"?" + query if query else b"")).decode("ascii"))
    set_signed_in(request, response, signed_in)
    return response


async def sign_out(visit: Visit) -> Response:
    """Ends the session."""
    await visit.write(partial(sessions.close_session, session=visit.session))
    response = redirect("/")
    set_signed_out(visit.request, response)
    return response


def show_sign_in(
    request: Request, problems: Mapping[str, str] | None = None, name: str | None = None, status: int = 401
) -> Response:
    """The form for wallet and password, where another page was asked for; `problems` stand at their fields."""
    given = request.query_params.get("wallet", "") if name is None else name
    return render_sign_in(request, "account/sign_in.html", {"problems": problems or {}, "given": given}, status)
