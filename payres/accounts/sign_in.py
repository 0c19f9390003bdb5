"""What signs in: a password, a second step, a link."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from payres.accounts import sessions
from payres.accounts.asking import Asking, log_failure
from payres.accounts.browser_names import seen_of
from payres.accounts.cookies import (
    Cookies,
    browser_of,
    check_sign_in,
    form_secret,
    set_half,
    set_signed_in,
    set_signed_out,
)
from payres.accounts.guesses import Guesser, SignInGuard
from payres.accounts.password_links import follow_link, open_link
from payres.accounts.passwords import PasswordGate
from payres.accounts.second_factors import STEPS
from payres.accounts.second_step import SIGN_IN, SecondStep, signed_out
from payres.accounts.sessions import HalfSignIn, SignedIn
from payres.accounts.store.kinds import Account
from payres.accounts.store.passkeys import PasskeyRecord, passkeys_of
from payres.accounts.visits import Visit
from payres.core.http.context import Context, context_of
from payres.core.http.error_answers import note_error
from payres.core.process.rate_limiter import address_of
from payres.core.protocol.errors import DomainError, InvalidRequest, SignInFailed, TooManyRequests
from payres.core.store.work import Work
from payres.html.forms import Form, here, read_form
from payres.html.html import redirect

V_co = TypeVar("V_co", bound=Visit, covariant=True)
Entered = SignedIn | HalfSignIn | Response  # who is in, or waits for a second step; else the page that says why not


class SignIn(ABC, Generic[V_co]):
    """How the accounts of one kind sign in.

    `field` of the form names the account. `home` is the page after a link, `outside` the one after signing out; `asks`
    is the template that asks for a second step. The form of a link must pass `link_checks`, in this order.
    """

    cookies: Cookies
    field: str
    asks: str
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
    def set_password(self, work: Work, account: Account, password_hash: str) -> object:
        """Stores a new password (see hash_password), and ends the link of the account."""

    @abstractmethod
    async def find_visit(self, request: Request, session: str) -> V_co | None:
        """The visit of a session; None if it is not valid."""

    @abstractmethod
    def show_sign_in(self, request: Request, error: DomainError | None, form: Form) -> Response:
        """The sign-in form in place of the requested page, with an error, and what that had which was sent."""

    @abstractmethod
    def show_link(
        self, request: Request, account: Account, passkeys: Sequence[PasskeyRecord], error: DomainError | None = None
    ) -> Response:
        """The form of a link, with the passkeys that sign in too. Notes the error, if it is one to be counted."""

    @property
    def asking(self) -> Asking:
        """What asks for a second step."""
        return Asking(self.cookies, self.asks)

    async def by_form(self, request: Request, form: Form) -> Entered | None:
        """What comes of a form of the sign-in page, or of the one that asks for a second step; None of all others."""
        choice = form.get("choice")
        try:
            if choice == "sign-in":
                return await self._by_name(request, form, form.get(self.field, ""))
            if choice in {one.choice for one in STEPS}:
                return await self.by_step(request, form, here(request))
        except DomainError as error:
            noted = note_error(request, error)
            response = self.show_sign_in(request, noted, form)
            response.headers.update(noted.headers)
            return response
        return self.show_sign_in(request, None, {}) if choice == "start-over" else None

    async def _by_name(self, request: Request, form: Form, name: str) -> Entered:
        browser = browser_of(request, self.cookies)

        def find(work: Work) -> tuple[Account, bytes | None]:
            return sessions.find_account(work, self.cookies.kind, *self.find_account(work, name), browser)

        account, known = await context_of(request).database.read(find)
        return await self.by_password(request, account, known, form)

    async def by_password(self, request: Request, account: Account, known: bytes | None, form: Form) -> Entered:
        """Checks the password, and signs in or waits for the second step; `known` is the browser's hash if the account
        knows it.

        Raises InsufficientAccess, SignInFailed, TooManyRequests, Unavailable.
        """
        check_sign_in(request, form)
        kind, seen = self.cookies.kind, seen_of(request)
        try:
            await self.check_password(request, account, form.get("password", ""), known)
        except SignInFailed:
            if account.id > 0:  # somebody
                note = partial(sessions.noted, kind=kind, account_id=account.id, way="wrong password", seen=seen)
                await context_of(request).database.write(note)
            raise
        browser = browser_of(request, self.cookies)
        unit = partial(sessions.begin, kind=kind, verified=account, browser=browser, seen=seen)
        return await context_of(request).database.write(unit)

    async def by_step(self, request: Request, form: Form, after: str, only: Account | None = None) -> Entered:
        """Signs in with the second step in a form, which completes a half sign-in or stands in for the password too, of
        `only` this account if given; or asks for it again, to lead to the page `after`.

        Raises InsufficientAccess, InvalidRequest if the answer cannot be taken, SignInFailed when it is over.
        """
        check_sign_in(request, form)
        kind, seen, trusts, half = self.cookies.kind, seen_of(request), "trust" in form, form.get("half", "")
        browser = browser_of(request, self.cookies)
        browser = replace(browser, half=half or browser.half)
        steps = [one for one in STEPS if one.choice == form["choice"]]

        def find(work: Work) -> Account | None:
            found = sessions.find_half(work, kind, half) if half else None
            return found.account if found else only

        def then(work: Work, account: Account, step: SecondStep) -> SignedIn:
            return sessions.open_session(
                work, kind, account, browser, step.way, verified_at=work.now, trusts=trusts, seen=seen
            )

        done = await self.asking.take(request, steps, form, form_secret(request) or "", SIGN_IN, find, then)
        if isinstance(done, SignedIn):
            return done
        found = await self.asking.find_half(request, half)
        if found is None:
            raise signed_out()
        return self.asking.half(request, after, found, 401, done, form)

    def enter(self, request: Request, response: Response, entered: Entered) -> Response:
        """The response in the session that was opened, or with a half sign-in, for which it asks for the second step;
        that which was no sign-in instead."""
        if isinstance(entered, Response):
            return entered
        if isinstance(entered, SignedIn):
            set_signed_in(request, response, entered, self.cookies)
        else:
            set_signed_out(request, response, self.cookies)
            set_half(request, response, entered.secret, self.cookies)
        return response

    async def check_password(self, request: Request, account: Account, password: str, known: bytes | None) -> None:
        """Raises SignInFailed for a wrong password, TooManyRequests, Unavailable if too many checks are running.

        `known` identifies the browser, if the account knows it or it is signed in.
        """
        context, guesser = context_of(request), Guesser(address_of(request.scope), known)
        try:
            await self.guard(context).check_password(account, password, context.clock.now(), guesser)
        except (SignInFailed, TooManyRequests):
            log_failure(request, account)
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
        find = partial(open_link, kind=kind, secret=secret)

        def unit(work: Work) -> tuple[Account, Sequence[PasskeyRecord]]:
            account = find(work)
            return account, passkeys_of(work, kind, account.id)

        account, passkeys = await database.read(unit)
        if request.method != "POST":
            return self.show_link(request, account, passkeys)
        form = await read_form(request)
        try:
            for check in self.link_checks:
                check(request, form)
            hashed = await self.hash_password(request, account, form, partial(database.read, find))
        except DomainError as error:
            response = self.show_link(request, account, passkeys, error)
            response.headers.update(error.headers)
            return response
        browser, store, seen = browser_of(request, self.cookies), self.set_password, seen_of(request)
        entered = await database.write(lambda work: follow_link(work, kind, secret, hashed, browser, store, seen))
        return self.enter(request, redirect(self.home), entered)


def check_typed_twice(_: Request, form: Form) -> None:
    """Raises InvalidRequest if a new password was typed in two ways."""
    if form.get("password") != form.get("again"):
        raise InvalidRequest("The two passwords are not the same", field="again")
