"""What asks for a second step, after a password or again before what needs a fresh one, and takes the answers."""

import hmac
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from payres.accounts import sessions
from payres.accounts.browser_names import seen_of
from payres.accounts.cookies import Cookies, asked_of, browser_of, render_sign_in, scripts_of
from payres.accounts.second_factors import STEPS, Factors, factors_of
from payres.accounts.second_step import Refused, SecondStep
from payres.accounts.sessions import HalfSignIn, csrf_token, keyed
from payres.accounts.store.kinds import Account
from payres.core.http.context import context_of
from payres.core.http.error_answers import note_error
from payres.core.process.rate_limiter import address_of
from payres.core.protocol.errors import InvalidRequest, WrongState
from payres.core.store.work import Work
from payres.html.forms import Form, carried, carrying, here, not_of_page, shown_again
from payres.html.html import language_of, redirect, render
from payres.html.sentences import OTHER_REQUEST, problem_of

T = TypeVar("T")
log = logging.getLogger("payres.sign_in")
PASSWORDS: Final = frozenset({"password", "again", "current"})  # fields that no page sends along


class Asking(NamedTuple):
    """How the accounts of one kind are asked: their cookies, and the template."""

    cookies: Cookies
    template: str

    async def take(
        self,
        request: Request,
        steps: Sequence[SecondStep],
        form: Form,
        browser: str,
        purpose: str,
        find: Callable[[Work], Account | None],
        then: Callable[[Work, Account, SecondStep], T],
    ) -> T | Refused:
        """Does `then` in the unit that takes the answer in a form, by the first of these steps that does. The answer is
        of the browser with this secret, for this purpose, and of the account that is found, if one is.

        Raises InvalidRequest for an answer that cannot be read, and what `find` and `then` raise.
        """
        kind, seen = self.cookies.kind, seen_of(request)
        takes = [(one, await one.read(request, kind, form.get(one.field, ""), browser, purpose)) for one in steps]

        def unit(work: Work) -> tuple[Account | None, T | Refused]:
            account, refusals = find(work), list[Refused]()
            for step, take in takes:
                taken = take(work, account)
                if not isinstance(taken, Refused):
                    return taken, then(work, taken, step)
                refusals.append(taken)
            if account is not None and refusals[0].way:
                sessions.noted(work, kind, account.id, refusals[0].way, seen)
            return account, refusals[0]

        account, done = await context_of(request).database.write(unit)
        if isinstance(done, Refused) and done.alarm:  # raised here, where it does not undo what was stored
            log.warning("%s", done.alarm)
            raise InvalidRequest(done.sentence, field=steps[0].choice)
        if isinstance(done, Refused) and done.way:
            log_failure(request, account)
        return done

    async def find_half(self, request: Request, secret: str | None = None) -> HalfSignIn | None:
        """The half sign-in with this secret, or of this browser, unless it is over."""
        kind, secret = self.cookies.kind, secret or browser_of(request, self.cookies).half
        if secret is None:
            return None
        return await context_of(request).database.read(partial(sessions.find_half, kind=kind, secret=secret))

    def half(
        self,
        request: Request,
        after: str,
        half: HalfSignIn,
        status: int = 200,
        refused: Refused | None = None,
        form: Mapping[str, str] = {},
    ) -> Response:
        """The page that asks after a right password, and leads to the page `after`; `form` is carried along."""
        values, factors = self._values(half.account, half.factors, after, refused), half.factors
        values |= {"half": half.secret, "lead": factors.main.lead}
        steps, kind = factors.offered, self.cookies.kind
        return render_sign_in(request, self.template, values, status, kind=kind, steps=steps, form=form)

    async def is_stale(self, request: Request, session: str) -> bool:
        """Whether a second step must be given first. Raises SignInFailed without a session."""
        unit = partial(sessions.is_stale, kind=self.cookies.kind, session=session)
        return await context_of(request).database.read(unit)

    async def again(
        self,
        request: Request,
        session: str,
        form: Form,
        refused: Refused | None = None,
        leads_away: bool = False,
        problem: str = "",
    ) -> Response:
        """The page that asks before what needs a fresh second step, and carries the fields of the form along until
        then. A form with a password is not carried: its page is opened again. `leads_away` as in render; `problem` is
        that of an answer that cannot be read."""
        fields = {} if PASSWORDS & form.keys() else shown_again({name: form[name] for name in form if name != "csrf"})
        csrf = form.get("csrf") or csrf_token(session)
        shown, kind = shown_digest(request, session, csrf, fields), self.cookies.kind

        def unit(work: Work) -> tuple[Account, Factors]:
            account = sessions.account_of_session(work, kind, session)
            return account, factors_of(work, kind, account.id)

        account, factors = await context_of(request).database.read(unit)
        asked = asked_of(request, factors.offered, kind, session, shown)
        values = self._values(account, factors, here(request), refused)
        values |= {"carried": carrying(fields), "shown": shown}
        values |= {"csrf": csrf, "asked": asked, "problem": problem, "lead": factors.main.lead_again}
        status = 401 if refused or problem else 200
        return render(request, self.template, values, status, leads_away, scripts_of(asked))

    async def verified(self, request: Request, session: str, form: Form, leads_away: bool = False) -> Form | Response:
        """The form that the second step was given for; or the page that asks for it again, or one to open again.

        Raises WrongState if it is not the form that the page was shown for.
        """
        fields = carried(form)
        whole: Form = {**fields, "csrf": form.get("csrf", "")}
        shown = shown_digest(request, session, whole["csrf"], fields)
        if not hmac.compare_digest(shown.encode(), form.get("shown", "").encode()):
            raise WrongState(OTHER_REQUEST)
        try:
            refused = await self.verify(request, session, form, shown)
        except InvalidRequest as error:
            said = problem_of(language_of(request), note_error(request, error))
            return await self.again(request, session, whole, leads_away=leads_away, problem=said)
        if refused is not None:
            return await self.again(request, session, whole, refused, leads_away)
        return whole if fields else redirect(here(request))

    async def verify(self, request: Request, session: str, form: Form, shown: str = "") -> Refused | None:
        """Why the answer in a form to what was `shown` is not taken; None if it is, and then a second step counts as
        given in the session. A second click needs no answer. Raises InvalidRequest, SignInFailed without a session."""
        kind, steps = self.cookies.kind, [one for one in STEPS if one.field in form]
        if not steps:
            raise not_of_page()

        def find(work: Work) -> Account:
            if not sessions.is_stale(work, kind, session):
                raise _Fresh
            return sessions.account_of_session(work, kind, session)

        def then(work: Work, account: Account, step: SecondStep) -> None:
            sessions.verified_now(work, kind, session)

        try:
            return await self.take(request, steps, form, session, shown, find, then)
        except _Fresh:
            return None

    def _values(self, account: Account, factors: Factors, after: str, refused: Refused | None) -> dict[str, object]:
        values: dict[str, object] = {"name": account.name, "factors": factors, "after": after, "refused": refused}
        values |= {"half": "", "carried": {}, "shown": "", "problem": "", "heading": factors.main.heading}
        return values


class _Fresh(Exception):
    """Ends a unit that has nothing to do: a second step was given a moment ago."""


def log_failure(request: Request, account: Account | None) -> None:
    """deploy/fail2ban.conf matches it. No name that was typed: that may be a password, or forge a line."""
    client = address_of(request.scope) or "this machine"
    if request.client is not None and ":" in client:
        client = request.client.host.partition("%")[0]  # not the network; a zone may be any text
    log.warning("sign-in failed from %s: %s", client, account.actor if account else "no such account")


def shown_digest(request: Request, session: str, csrf: str, fields: Form) -> str:
    """A digest of what the second factor is asked for: it is given for exactly that form of that page, which the token
    says the wallet of."""
    return keyed(session, "factor", msgspec.json.encode([here(request), csrf, sorted(fields.items())]))
