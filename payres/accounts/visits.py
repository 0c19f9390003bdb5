"""Requests of owners and operators: signing in and out, pages and forms. Every response is a page or a redirect."""

import hmac
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from payres.accounts import links, sessions
from payres.accounts.browser_names import browser_name
from payres.accounts.cookies import (
    SCRIPT,
    Cookies,
    browser_of,
    check_sign_in,
    form_secret,
    render_sign_in,
    set_half,
    set_signed_in,
    set_signed_out,
)
from payres.accounts.guesses import Guesser, SignInGuard
from payres.accounts.passkeys import SIGN_IN, UNKNOWN, options_to_sign, refused, with_passkey
from payres.accounts.passwords import Account, PasswordGate
from payres.accounts.second_factors import Factors, factors_of
from payres.accounts.sessions import HalfSignIn, SignedIn, check_csrf, csrf_token, keyed
from payres.accounts.store.passkeys import PasskeyRecord, passkeys_of
from payres.accounts.store.sessions import Seen
from payres.core.http.context import Context, context_of
from payres.core.http.error_answers import note_error
from payres.core.http.requests import ActorRequest
from payres.core.process.rate_limiter import UNREADABLE, address_of
from payres.core.protocol.errors import (
    DomainError,
    InvalidRequest,
    MethodNotAllowed,
    SignInFailed,
    TooManyRequests,
    WrongState,
)
from payres.core.store.work import Work
from payres.html.forms import Form, read_form
from payres.html.html import PAGE_METHODS, language_of, redirect, render
from payres.html.language import set_zone
from payres.html.sentences import OTHER_REQUEST, problem_of

Act = Callable[[Any, Form], Awaitable[Response]]  # what a form of a page does
log = logging.getLogger("payres.sign_in")
PASSWORDS: Final = frozenset({"password", "again", "current"})  # fields that no page sends along
CARRIED: Final = "of."  # before the name of a field that waits for the second factor


class Visit(ActorRequest, frozen=True):
    """A request with a session; `session` is the secret in the cookie."""

    session: str

    @property
    def segments(self) -> Mapping[str, str]:
        """The path parameters."""
        found: Mapping[str, str] = self.request.path_params
        return found


class Unasked(msgspec.Struct, frozen=True):
    """An action that moves no money and gives no access, or only takes it away: `why` no second factor is asked for."""

    act: Act
    why: str

    async def __call__(self, visit: Any, form: Form) -> Response:
        return await self.act(visit, form)


class Place(NamedTuple):
    """The page of a path, and the actions of its forms by their `choice`. Who has a second factor must just have given
    it for each that is not `Unasked`, and for the page too if that `asks`."""

    show: Callable[[Any], Awaitable[Response]]
    acts: Mapping[str, Act] = {}
    asks: bool = False


V = TypeVar("V", bound=Visit)


class SignIn(ABC, Generic[V]):
    """How the accounts of one kind sign in.

    `field` of the form names the account. `home` is the page after a link, `outside` the one after signing out; `asks`
    is the template that asks for a second factor. The form of a link must pass `link_checks`, in this order.
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
    def set_password(self, work: Work, account: Any, password_hash: str) -> object:
        """Stores a new password (see hash_password), and ends the link of the account."""

    @abstractmethod
    async def find_visit(self, request: Request, session: str) -> V | None:
        """The visit of a session; None if it is not valid."""

    @abstractmethod
    def show_sign_in(self, request: Request, error: DomainError | None, name: str | None) -> Response:
        """The sign-in form in place of the requested page, with an error and the given name."""

    @abstractmethod
    def show_link(
        self, request: Request, account: Any, passkeys: Sequence[PasskeyRecord], error: DomainError | None = None
    ) -> Response:
        """The form of a link, with the passkeys that sign in too. Notes the error, if it is one to be counted."""

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
        if form.get("choice") in {"code", "passkey"}:
            return await self._complete(request, form)
        if form.get("choice") == "start-over":
            return self.show_sign_in(request, None, None)
        session = browser_of(request, self.cookies).session
        visit = await self.find_visit(request, session) if session else None
        if visit is None:
            half = None if is_form else await self.find_half(request)
            if half is not None:
                return self.ask_half(request, here(request), half, 401)
            return self.show_sign_in(request, sessions.signed_out() if is_form else None, None)
        try:
            if is_form:
                return await self._carry_out(visit, form, act)
            if request.method not in {"GET", "HEAD"}:
                raise MethodNotAllowed(PAGE_METHODS)
            return await show(visit)
        except SignInFailed as error:  # the session ended during the request
            return self.show_sign_in(request, error, None)

    async def answer_place(
        self, request: Request, place: Place, first: Callable[[V, Form], Awaitable[Response | None]] | None = None
    ) -> Response:
        """The page of a place, or the action of its form; before that the page that asks for a second factor. `first`
        may answer a form before either."""

        async def show(visit: V) -> Response:
            if place.asks and await self.is_stale(request, visit.session):
                return await self.ask_factor(request, visit.session, {})
            return await place.show(visit)

        async def act(visit: V, form: Form) -> Response:
            choice = form.get("choice", "")
            if first is not None and (answered := await first(visit, form)) is not None:
                return answered
            if choice not in place.acts:
                raise InvalidRequest("This form is not one of this page's. Please open it again", field="choice")
            found = place.acts[choice]
            if not isinstance(found, Unasked) and await self.is_stale(request, visit.session):
                return await self.ask_factor(request, visit.session, form)
            return await found(visit, form)

        return await self.answer(request, show, act)

    async def by_password(
        self, request: Request, account: Account, known: bytes | None, form: Form, after: str
    ) -> Response:
        """Checks the password, and leads to the page `after` signing in or asks for the second factor; `known` is the
        browser's hash if the account knows it.

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
        return self.enter(request, after, await context_of(request).database.write(unit))

    async def by_code(self, request: Request, form: Form, after: str) -> Response:
        """Completes a half sign-in with the code in a form. Raises InsufficientAccess, SignInFailed when it is over."""
        check_sign_in(request, form)
        kind, browser, seen = self.cookies.kind, browser_of(request, self.cookies), seen_of(request)
        half, code, trusts = form.get("half", ""), form.get("code", ""), "trust" in form
        entered = await context_of(request).database.write(
            lambda work: sessions.complete(work, kind, half, code, trusts, browser, seen)
        )
        return self.enter(request, after, entered)

    async def by_passkey(self, request: Request, form: Form, after: str, only: int | None = None) -> Response:
        """Signs in with the passkey in a form, of `only` this account if given, and leads to the page `after`.

        Raises InsufficientAccess, InvalidRequest if the passkey is not taken.
        """
        check_sign_in(request, form)
        kind, browser, seen = self.cookies.kind, browser_of(request, self.cookies), seen_of(request)

        def unit(work: Work, account: Any) -> SignedIn:
            if only not in {None, account.id} or account.password_hash is None:
                raise refused(UNKNOWN)
            return sessions.open_session(work, kind, account, browser, "passkey", verified_at=work.now, seen=seen)

        answer, secret = form.get("answer", ""), form_secret(request) or ""
        return self.enter(request, after, await with_passkey(request, kind, answer, secret, SIGN_IN, unit))

    def enter(self, request: Request, after: str, entered: SignedIn | HalfSignIn) -> Response:
        """Leads to the page `after` in the session that was opened, or with a half sign-in, for which it asks for the
        second factor; asks again after a code that was not taken."""
        if isinstance(entered, HalfSignIn) and entered.refused:
            return self.ask_half(request, after, entered, 401)
        response = redirect(after)
        if isinstance(entered, SignedIn):
            set_signed_in(request, response, entered, self.cookies)
        else:
            set_signed_out(request, response, self.cookies)
            set_half(request, response, entered.secret, self.cookies)
        return response

    async def find_half(self, request: Request) -> HalfSignIn | None:
        """The half sign-in of this browser, unless it is over."""
        kind, secret = self.cookies.kind, browser_of(request, self.cookies).half
        if secret is None:
            return None
        return await context_of(request).database.read(partial(sessions.find_half, kind=kind, secret=secret))

    def ask_half(self, request: Request, after: str, half: HalfSignIn, status: int = 200) -> Response:
        """The page that asks for the second factor, and leads to the page `after`."""
        if half.refused == "wrong code":
            self._log_failure(request, half.account)
        values = {"half": half.secret, "name": half.account.name, "factors": half.factors, "after": after}
        values |= {"refused": half.refused, "carried": {}, "shown": "", "problem": "", "passkey": None}
        passkeys = self.cookies.kind if half.factors.passkeys else None
        return render_sign_in(request, self.asks, values, status, passkeys=passkeys)

    async def is_stale(self, request: Request, session: str) -> bool:
        """Whether a second factor must be given first. Raises SignInFailed without a session."""
        return await context_of(request).database.read(
            partial(sessions.is_stale, kind=self.cookies.kind, session=session)
        )

    async def verify(self, request: Request, session: str, code: str) -> str:
        """See sign_in.verify."""
        kind, seen = self.cookies.kind, seen_of(request)
        unit = partial(sessions.verify, kind=kind, session=session, code=code, seen=seen)
        refused = await context_of(request).database.write(unit)
        if refused == "wrong code":
            self._log_failure(request, await self._account(request, session))
        return refused

    async def verify_by_passkey(self, request: Request, session: str, answer: str, shown: str) -> None:
        """Notes in the session that its account's passkey has signed for what was `shown`. Raises InvalidRequest."""
        kind = self.cookies.kind

        def unit(work: Work, account: Any) -> bool:
            found = sessions.find_session(work, kind, session)
            if found is None or found.account_id != account.id:
                raise refused(UNKNOWN)
            sessions.verified_now(work, kind, session)
            return True

        await with_passkey(request, kind, answer, session, shown, unit)

    async def ask_factor(
        self,
        request: Request,
        session: str,
        form: Form,
        refused: str = "",
        leads_away: bool = False,
        problem: str = "",
    ) -> Response:
        """The page that asks for the second factor, and carries the fields of the form along until then. A form with a
        password is not carried: its page is opened again. `leads_away` as in render; `problem` is that of a
        passkey."""
        fields = {} if PASSWORDS & form.keys() else {name: text for name, text in form.items() if name != "csrf"}
        csrf = form.get("csrf") or csrf_token(session)
        shown, kind = shown_digest(request, session, csrf, fields), self.cookies.kind

        def unit(work: Work) -> tuple[Any, Factors]:
            account = sessions.account_of_session(work, kind, session)
            return account, factors_of(work, kind, account.id)

        account, factors = await context_of(request).database.read(unit)
        passkey = options_to_sign(request, kind, session, shown) if factors.passkeys else None
        values = {
            "half": "",
            "name": account.name,
            "factors": factors,
            "after": here(request),
            "refused": refused,
            "carried": {f"{CARRIED}{name}": text for name, text in fields.items()},
            "shown": shown,
            "csrf": csrf,
            "passkey": passkey,
            "problem": problem,
        }
        status = 401 if refused or problem else 200
        return render(request, self.asks, values, status, leads_away, SCRIPT if passkey else "")

    async def verified(self, request: Request, session: str, form: Form, leads_away: bool = False) -> Form | Response:
        """The form that the second factor was given for; or the page that asks for it again, or one to open again.

        Raises WrongState if it is not the form that the page was shown for.
        """
        fields = {name.removeprefix(CARRIED): text for name, text in form.items() if name.startswith(CARRIED)}
        csrf, code, answer = form.get("csrf", ""), form.get("code", ""), form.get("answer")
        shown = shown_digest(request, session, csrf, fields)
        if not hmac.compare_digest(shown.encode(), form.get("shown", "").encode()):
            raise WrongState(OTHER_REQUEST)
        form = {**fields, "csrf": csrf}
        if answer is not None:
            try:
                await self.verify_by_passkey(request, session, answer, shown)
            except InvalidRequest as error:
                said = problem_of(language_of(request), note_error(request, error))
                return await self.ask_factor(request, session, form, leads_away=leads_away, problem=said)
        elif refused := await self.verify(request, session, code):
            return await self.ask_factor(request, session, form, refused, leads_away)
        return form if fields else redirect(here(request))

    async def check_password(self, request: Request, account: Account, password: str, known: bytes | None) -> None:
        """Raises SignInFailed for a wrong password, TooManyRequests, Unavailable if too many checks are running.

        `known` identifies the browser, if the account knows it or it is signed in.
        """
        context, guesser = context_of(request), Guesser(address_of(request.scope), known)
        try:
            await self.guard(context).check_password(account, password, context.clock.now(), guesser)
        except (SignInFailed, TooManyRequests):
            self._log_failure(request, account)
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
        find = partial(links.open_link, kind=kind, secret=secret)

        def unit(work: Work) -> tuple[Any, Sequence[PasskeyRecord]]:
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
        entered = await database.write(lambda work: links.follow_link(work, kind, secret, hashed, browser, store, seen))
        return self.enter(request, self.home, entered)

    async def _sign_in(self, request: Request, form: Form) -> Response:
        """Signs in by name and password, and redirects to the requested page."""
        name, browser = form.get(self.field, ""), browser_of(request, self.cookies)

        def find(work: Work) -> tuple[Account, bytes | None]:
            return sessions.find_account(work, self.cookies.kind, *self.find_account(work, name), browser)

        account, known = await context_of(request).database.read(find)
        try:
            return await self.by_password(request, account, known, form, here(request))
        except DomainError as error:
            return self._refused(request, error, name)

    async def _complete(self, request: Request, form: Form) -> Response:
        complete = self.by_code if form["choice"] == "code" else self.by_passkey
        try:
            return await complete(request, form, here(request))
        except DomainError as error:
            return self._refused(request, error, None)

    def _refused(self, request: Request, error: DomainError, name: str | None) -> Response:
        noted = note_error(request, error)
        response = self.show_sign_in(request, noted, name)
        response.headers.update(noted.headers)
        return response

    async def _account(self, request: Request, session: str) -> Any:
        unit = partial(sessions.account_of_session, kind=self.cookies.kind, session=session)
        return await context_of(request).database.read(unit)

    def _log_failure(self, request: Request, account: Account) -> None:
        """deploy/fail2ban.conf matches it. No name that was typed: that may be a password, or forge a line."""
        client = address_of(request.scope) or "this machine"
        if request.client is not None and ":" in client:
            client = request.client.host.partition("%")[0]  # not the network; a zone may be any text
        log.warning("sign-in failed from %s: %s", client, getattr(account, "actor", "no such account"))

    async def _carry_out(self, visit: V, form: Form, act: Callable[[V, Form], Awaitable[Response]]) -> Response:
        check_csrf(visit.session, form.get("csrf", ""))
        if form.get("choice") == "verify":
            found = await self.verified(visit.request, visit.session, form)
            return found if isinstance(found, Response) else await act(visit, found)
        if form.get("choice") != "sign-out":
            return await act(visit, form)
        await visit.write(partial(sessions.close_session, kind=self.cookies.kind, session=visit.session))
        response = redirect(self.outside)
        set_signed_out(visit.request, response, self.cookies)
        return response


def here(request: Request) -> str:
    """The path and query of a request."""
    query = request.scope["query_string"]
    return str((request.scope["raw_path"] + (b"?" + query if query else b"")).decode("ascii"))


def seen_of(request: Request) -> Seen:
    """From where a request comes, as it is kept of sign-ins."""
    address, name = address_of(request.scope), browser_name(request.headers.get("user-agent", ""))
    return Seen(None if address == UNREADABLE else address, name)


def shown_digest(request: Request, session: str, csrf: str, fields: Form) -> str:
    """A digest of what the second factor is asked for: it is given for exactly that form of that page, which the token
    says the wallet of."""
    return keyed(session, "factor", msgspec.json.encode([here(request), csrf, sorted(fields.items())]))


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


TAKES_AWAY: Final = "it only takes access away"
