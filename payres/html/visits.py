"""Requests of owners and operators: signing in and out, pages and forms. Every response is a page or a redirect."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from payres.core.http.context import Context, context_of
from payres.core.http.error_answers import note_error
from payres.core.http.requests import ActorRequest
from payres.core.process.rate_limiter import UNREADABLE, address_of
from payres.core.protocol.errors import DomainError, InvalidRequest, MethodNotAllowed, SignInFailed, TooManyRequests
from payres.core.store.work import Work
from payres.html import sign_in
from payres.html.forms import Cookies, browser_of, check_sign_in, read_form, set_signed_in, set_signed_out
from payres.html.html import PAGE_METHODS, redirect
from payres.html.language import set_zone
from payres.html.sign_in import Account, Guesser, PasswordGate, SignedIn, SignInGuard, check_csrf

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


class SignIn(ABC, Generic[V]):
    """How the accounts of one kind sign in.

    `field` of the form names the account. `home` is the page after a link, `outside` the one after signing out. The
    form of a link must pass `link_checks`, in this order.
    """

    cookies: Cookies
    field: str
    home: str
    outside: str
    link_checks: Sequence[Callable[[Request, Form], None]]

    @abstractmethod
    def guard(self, context: Context) -> SignInGuard:
        """What limits wrong passwords."""

    @abstractmethod
    def find_account(self, work: Work, name: str) -> tuple[str, Account | None]:
        """The account that a name means, and the name as all write it."""

    @abstractmethod
    def set_password(self, work: Work, account: Any, password_hash: str) -> object:
        """Stores a new password (see hash_password), and ends the link of the account."""

    @abstractmethod
    async def find_visit(self, request: Request, session: str) -> V | None:
        """The visit of a session; None if it is not valid."""

    @abstractmethod
    def show_sign_in(self, request: Request, error: DomainError | None, name: str | None) -> Response:
        """The sign-in form in place of the requested page, with an error and the given name."""

    @abstractmethod
    def show_link(self, request: Request, account: Any, error: DomainError | None = None) -> Response:
        """The form of a link. Notes the error, if it is one to be counted."""

    async def answer(
        self,
        request: Request,
        show: Callable[[V], Awaitable[Response]],
        act: Callable[[V, Form], Awaitable[Response]],
    ) -> Response:
        """The page or the action of its form, if signed in; else the sign-in form."""
        is_form = request.method == "POST"
        form = await read_form(request) if is_form else {}
        if form.get("choice") == "sign-in":
            return await self._sign_in(request, form)
        session = browser_of(request, self.cookies).session
        visit = await self.find_visit(request, session) if session else None
        if visit is None:
            return self.show_sign_in(request, sign_in.signed_out() if is_form else None, None)
        try:
            if is_form:
                return await self._carry_out(visit, form, act)
            if request.method not in {"GET", "HEAD"}:
                raise MethodNotAllowed(PAGE_METHODS)
            return await show(visit)
        except SignInFailed as error:  # the session ended during the request
            return self.show_sign_in(request, error, None)

    async def open_session(self, request: Request, account: Account, known: bytes | None, form: Form) -> SignedIn:
        """Checks the password and opens a session; `known` is the browser's hash if the account knows it.

        Raises InsufficientAccess, SignInFailed, TooManyRequests, Unavailable.
        """
        check_sign_in(request, form)
        await self.check_password(request, account, form.get("password", ""), known)
        browser = browser_of(request, self.cookies)
        unit = partial(sign_in.open_session, kind=self.cookies.kind, verified=account, browser=browser)
        return await context_of(request).database.write(unit)

    async def check_password(self, request: Request, account: Account, password: str, known: bytes | None) -> None:
        """Raises SignInFailed for a wrong password, TooManyRequests, Unavailable if too many checks are running.

        `known` identifies the browser, if the account knows it or it is signed in.
        """
        context, guesser = context_of(request), Guesser(address_of(request.scope), known)
        try:
            await self.guard(context).check_password(account, password, context.clock.now(), guesser)
        except (SignInFailed, TooManyRequests):
            # deploy/fail2ban.conf matches it. No name that was typed: that may be a password, or forge a line.
            client = guesser.address or "this machine"
            if request.client is not None and client not in {"this machine", UNREADABLE}:
                client = request.client.host.partition("%")[0]  # not the network; a zone may be any text
            log.warning("sign-in failed from %s: %s", client, getattr(account, "actor", "no such account"))
            raise

    async def hash_password(
        self, request: Request, account: Account, form: Form, check: Callable[[], Awaitable[object]]
    ) -> str:
        """The hash of the new password in a form. See PasswordGate."""
        key = self.cookies.kind.noun, account.id
        return await context_of(request).part(PasswordGate).hash(form.get("password", ""), key, check)

    async def follow_link(self, request: Request) -> Response:
        """The page of a link: GET shows the form, POST sets the password and signs in."""
        database, kind, secret = context_of(request).database, self.cookies.kind, request.path_params["secret"]
        find = partial(sign_in.open_link, kind=kind, secret=secret)
        account = await database.read(find)
        if request.method != "POST":
            return self.show_link(request, account)
        form = await read_form(request)
        try:
            for check in self.link_checks:
                check(request, form)
            hashed = await self.hash_password(request, account, form, partial(database.read, find))
        except DomainError as error:
            response = self.show_link(request, account, error)
            response.headers.update(error.headers)
            return response
        browser, store = browser_of(request, self.cookies), self.set_password
        signed_in = await database.write(lambda work: sign_in.follow_link(work, kind, secret, hashed, browser, store))
        response = redirect(self.home)
        set_signed_in(request, response, signed_in, self.cookies)
        return response

    async def _sign_in(self, request: Request, form: Form) -> Response:
        """Signs in by name and password, and redirects to the requested page."""
        name, browser = form.get(self.field, ""), browser_of(request, self.cookies)

        def find(work: Work) -> tuple[Account, bytes | None]:
            return sign_in.find_account(work, self.cookies.kind, *self.find_account(work, name), browser)

        account, known = await context_of(request).database.read(find)
        try:
            signed_in = await self.open_session(request, account, known, form)
        except DomainError as error:
            noted = note_error(request, error)
            response = self.show_sign_in(request, noted, name)
            response.headers.update(noted.headers)
            return response
        response = redirect(own_url(request))
        set_signed_in(request, response, signed_in, self.cookies)
        return response

    async def _carry_out(self, visit: V, form: Form, act: Callable[[V, Form], Awaitable[Response]]) -> Response:
        check_csrf(visit.session, form.get("csrf", ""))
        if form.get("choice") != "sign-out":
            return await act(visit, form)
        await visit.write(partial(sign_in.close_session, kind=self.cookies.kind, session=visit.session))
        response = redirect(self.outside)
        set_signed_out(visit.request, response, self.cookies)
        return response


def own_url(request: Request) -> str:
    """The path of a page with its query."""
    query: bytes = request.scope["query_string"]
    found: bytes = request.scope["raw_path"] + (b"?" + query if query else b"")
    return found.decode("ascii")


async def choose_zone(visit: Visit, form: Form, after: str) -> Response:
    """Stores the time zone of this browser in a cookie; an unknown zone restores the operator's. `after` is the next
    page."""
    response = redirect(after)
    set_zone(response, form.get("zone", ""), secure=visit.context.urls.base.startswith("https:"))
    return response


def check_typed_twice(_: Request, form: Form) -> None:
    """Raises InvalidRequest if a new password was typed in two ways."""
    if form.get("password") != form.get("again"):
        raise InvalidRequest("The two passwords are not the same", field="again")
