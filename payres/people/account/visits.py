"""Requests of a wallet's owner, rendering of their pages, and the sign-in form."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from payres.core.http.context import Context, context_of
from payres.core.http.error_answers import note_error
from payres.core.protocol.errors import (
    DomainError,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    SignInFailed,
    Unavailable,
)
from payres.core.protocol.limits import MAX_PASSWORD_LENGTH, MIN_PASSWORD_LENGTH
from payres.core.store.wallets import WalletRecord, find_wallet
from payres.core.store.work import Work
from payres.html.error_sentences import problem_of
from payres.html.forms import OWNER, check_sign_in, render_sign_in
from payres.html.html import PAGE_METHODS, language_of, render
from payres.html.language import Language
from payres.html.sign_in import Account, SignInGuard, authenticate, csrf_token
from payres.html.store.sessions import OF_WALLETS
from payres.html.visits import Form, SignIn, Visit, check_typed_twice
from payres.operator.wallets import set_password
from payres.people.rules import sessions
from payres.people.services import people_of

HOME: Final = "/account"


class OwnerVisit(Visit, frozen=True):
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


Page = Callable[[OwnerVisit], Awaitable[Response]]
Act = Callable[[OwnerVisit, Form], Awaitable[Response]]


class OwnerSignIn(SignIn[OwnerVisit]):
    """An owner signs in by the name of the wallet."""

    cookies = OWNER
    field = "wallet"
    home, outside = HOME, "/"
    link_checks = check_sign_in, check_typed_twice

    def guard(self, context: Context) -> SignInGuard:
        return people_of(context).sign_in

    def find_account(self, work: Work, name: str) -> tuple[str, Account | None]:
        path = sessions.wallet_path(work, name)
        return path, find_wallet(work, path)

    def set_password(self, work: Work, account: WalletRecord, password_hash: str) -> None:
        set_password(work, account.path, password_hash, forget_browsers=True)

    async def find_visit(self, request: Request, session: str) -> OwnerVisit | None:
        """The visit of a session, which is renewed if due."""
        found = await context_of(request).database.read(partial(sessions.find_owner, session=session))
        if found is None:
            return None
        wallet, is_renewal_due = found
        authentic = partial(authenticate, kind=OF_WALLETS, session=session)
        visit = OwnerVisit(request, authentic, session, wallet, language_of(request))
        if is_renewal_due and request.method != "POST":  # a form may end the session; the next page renews it
            with suppress(SignInFailed, Unavailable):
                await visit.write(partial(sessions.renew_session, session=session))
        return visit

    def show_sign_in(self, request: Request, error: DomainError | None, name: str | None) -> Response:
        field = "password" if isinstance(error, SignInFailed) and name is not None else ""
        problems = {field: problem_of(language_of(request), error)} if error else {}
        given = request.query_params.get("wallet", "") if name is None else name
        values = {"problems": problems, "given": given}
        return render_sign_in(request, "account/sign_in.html", values, error.status if error else 401)

    async def follow_link(self, request: Request) -> Response:
        try:
            return await super().follow_link(request)
        except NotFound as error:
            return self.show_link(request, None, error)

    def show_link(self, request: Request, account: WalletRecord | None, error: DomainError | None = None) -> Response:
        """The form, or the message that the link is no longer valid."""
        if error is None and request.method not in {"GET", "HEAD"}:
            raise MethodNotAllowed(PAGE_METHODS)
        if error is not None and not isinstance(error, InvalidRequest):
            note_error(request, error)
        values = {
            "wallet": None if isinstance(error, NotFound) else account,
            "problems": new_password_problems(language_of(request), error) if error else {},
            "least": MIN_PASSWORD_LENGTH,
        }
        return render_sign_in(request, "account/reset.html", values, error.status if error else 200)


OWNER_SIGN_IN: Final = OwnerSignIn()


def new_password_problems(language: Language, error: DomainError) -> Mapping[str, str]:
    """What is wrong with a new password, by its field; "" if that is not the password's fault."""
    if not isinstance(error, InvalidRequest):
        return {"": problem_of(language, error)}
    if error.details["field"] == "again":
        return {"again": language.say("The two passwords are not the same. Type the new one twice.")}
    least, most = MIN_PASSWORD_LENGTH, MAX_PASSWORD_LENGTH
    return {"password": language.say("A password has {least} to {most} characters.", least=least, most=most)}
