"""Requests of a wallet's owner, rendering of their pages, and the sign-in form."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from payres.core.http.context import context_of
from payres.core.protocol.errors import DomainError, SignInFailed, Unavailable
from payres.core.store.wallets import WalletRecord
from payres.html import visits
from payres.html.error_sentences import problem_of
from payres.html.forms import OWNER, render_sign_in
from payres.html.html import language_of, render
from payres.html.language import Language
from payres.html.sign_in import authenticate, csrf_token
from payres.html.store.sessions import OF_WALLETS
from payres.html.visits import Form, Side
from payres.people.rules import sessions
from payres.people.services import people_of

HOME: Final = "/account"


class Visit(visits.Visit, frozen=True):
    """A request of a wallet's owner."""

    wallet: WalletRecord
    language: Language

    def show(
        self, template: str, status: int = 200, *, tab: str = "", refresh: int | None = None, **values: Any
    ) -> Response:
        """Renders a template below account/.

        `tab` is the path of its tab; without one the layout is one narrow column. The page refreshes after `refresh`
        seconds.
        """
        common = {"wallet": self.wallet, "name": self.wallet.name, "csrf": csrf_token(self.session), "tab": tab}
        response = render(self.request, f"account/{template}", common | values, status)
        if refresh is not None:
            response.headers["Refresh"] = str(refresh)
        return response


Page = Callable[[Visit], Awaitable[Response]]
Act = Callable[[Visit, Form], Awaitable[Response]]


async def find_visit(request: Request, session: str) -> Visit | None:
    """The visit of a session, which is renewed if due; None if it is not valid."""
    found = await context_of(request).database.read(partial(sessions.find_owner, session=session))
    if found is None:
        return None
    wallet, is_renewal_due = found
    authentic = partial(authenticate, kind=OF_WALLETS, session=session)
    visit = Visit(request, authentic, session, wallet, language_of(request))
    if is_renewal_due and request.method != "POST":  # a form may end the session; the next page renews it
        with suppress(SignInFailed, Unavailable):
            await visit.write(partial(sessions.renew_session, session=session))
    return visit


def show_sign_in(request: Request, error: DomainError | None, name: str | None) -> Response:
    """The sign-in form in place of the requested page."""
    field = "password" if isinstance(error, SignInFailed) and name is not None else ""
    problems = {field: problem_of(language_of(request), error)} if error else {}
    given = request.query_params.get("wallet", "") if name is None else name
    values = {"problems": problems, "given": given}
    return render_sign_in(request, "account/sign_in.html", values, error.status if error else 401)


SIDE: Final = Side(
    OWNER,
    lambda context: people_of(context).sign_in,
    "wallet",
    sessions.find_account,
    find_visit,
    show_sign_in,
    signed_out="/",
)
