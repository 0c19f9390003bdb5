"""Sign-in, sessions and password of a wallet's owner."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Self, TypeVar

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from payres.accounts.cookies import OWNER, check_sign_in, render_sign_in
from payres.accounts.guesses import SignInGuard, wrong_password
from payres.accounts.limits import MAX_PASSWORD_LENGTH, MIN_PASSWORD_LENGTH
from payres.accounts.owners import store_password
from payres.accounts.second_factors import alone
from payres.accounts.sessions import Browser, SignedIn, account_of_session, csrf_token, find_session, start_over
from payres.accounts.settings import MailSettings
from payres.accounts.sign_in import SignIn, check_typed_twice
from payres.accounts.store.kinds import Account
from payres.accounts.store.owners import OF_OWNERS, OwnerRecord, owner_at, owner_of, wallets_of
from payres.accounts.store.passkeys import PasskeyRecord
from payres.accounts.store.sessions import change_session
from payres.accounts.store.sign_ins import NOWHERE, Seen
from payres.accounts.visits import Visit
from payres.core.http.context import Context, context_of
from payres.core.http.error_answers import note_error
from payres.core.protocol.clock import MINUTE, lasts
from payres.core.protocol.errors import (
    DomainError,
    InvalidReceiver,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    SignInFailed,
    Unavailable,
    nothing_here,
)
from payres.core.protocol.identifiers import hash_secret
from payres.core.store.wallets import WALLETS, WalletRecord
from payres.core.store.work import Work
from payres.html.forms import Form, typed_url
from payres.html.html import PAGE_METHODS, SHARED, language_of, render
from payres.html.language import Language, marked
from payres.html.sentences import problem_of
from payres.people.services import people_of

T = TypeVar("T")
# A session in use is extended, at most every five minutes, up to the longest lifetime.
RENEWAL: Final = 5 * MINUTE


def wallet_path(work: Work, name: str) -> str:
    """The path meant by `alice`, `pay.example/alice`, `$pay.example/alice` or the wallet address.

    A payment pointer without a path names the wallet of the whole host (paymentpointers.org).
    """
    try:
        path = work.urls.wallet_path(typed_url(work.urls, name))
    except InvalidReceiver:
        path = None
    return name.strip().lower() if path is None else path


def find_owner(work: Work, session: str) -> tuple[OwnerRecord, WalletRecord, bool] | None:
    """The owner of a session with the wallet looked at, and whether the session is due for renewal."""
    found = find_session(work, OF_OWNERS, session)
    if found is None:
        return None
    is_used = not lasts(found.expires_at - OF_OWNERS.lifetime + RENEWAL, work.now, RENEWAL)
    is_due = is_used and lasts(found.created_at + OF_OWNERS.longest, work.now, OF_OWNERS.longest)
    assert found.wallet_id is not None, "a session of an owner has a wallet"
    return owner_of(work, found.wallet_id), WALLETS.by_id(work, found.wallet_id), is_due


def change_password(
    work: Work, verified: OwnerRecord, password_hash: str, browser: Browser, seen: Seen = NOWHERE
) -> SignedIn:
    """Replaces the password, which signs out and forgets every other browser. `verified` is the owner whose old
    password was checked; see hash_password.

    Raises SignInFailed if it was changed during the check.
    """
    if owner_of(work, verified.wallet_id).password_hash != verified.password_hash:
        raise wrong_password()
    path = WALLETS.by_id(work, verified.wallet_id).path
    change = partial(store_password, work, path, password_hash, forget_browsers=True)
    return start_over(work, OF_OWNERS, verified, browser, seen, change)


HOME: Final = "/account"
SETTINGS_TAB: Final = "/settings"
SECURITY: Final = "/account/security"
# The pages under the tab Settings.
NOTICES: Final = "/account/notices"
VIEWS: Final[Mapping[str, str]] = {
    SETTINGS_TAB: marked("Language and time"),
    SECURITY: marked("Security"),
    NOTICES: marked("Notices"),
    "/settings/wallets": marked("Wallets"),
    "/settings/developer-keys": marked("Keys"),
    "/settings/receive": marked("Getting paid"),
    "/settings/webhooks": marked("Webhooks"),
}


class OwnerVisit(Visit, frozen=True):
    """A request of an owner, who looks at a wallet, `looked_at`; a page may be about another one, `wallet`."""

    owner: OwnerRecord
    wallet: WalletRecord
    looked_at: WalletRecord
    language: Language

    @property
    def csrf(self) -> str:
        """The token of every form, which names the wallet that was looked at."""
        return f"{csrf_token(self.session)}.{self.looked_at.path}"

    async def found(self, find: Callable[[Work, WalletRecord], T]) -> tuple[Self, T]:
        """What `find` finds in one of the owner's wallets, that looked at first, and the visit of that one. Raises
        NotFound if `find` does for each."""

        def unit(work: Work) -> tuple[WalletRecord, T]:
            for wallet in (self.wallet, *wallets_of(work, self.owner.id)):
                with suppress(NotFound):
                    return wallet, find(work, wallet)
            raise nothing_here()

        wallet, found = await self.read(unit)
        return replace(self, wallet=wallet), found

    @property
    def account(self) -> OwnerRecord:
        return self.owner

    def done(self, sentences: Mapping[str, str]) -> str | None:
        """What the form before this page has done, by `done` in its query."""
        sentence = sentences.get(self.request.query_params.get("done", ""))
        return sentence and self.language.say(sentence, name=self.owner.name)

    def show(
        self,
        template: str,
        status: int = 200,
        *,
        tab: str = "",
        refresh: int | None = None,
        script: str = "",
        **values: Any,
    ) -> Response:
        """Renders a template below account/; `script` may run there.

        `tab` is the path of its tab; without one the layout is one narrow column. Under the tab of the settings, links
        lead from page to page. The page refreshes after `refresh` seconds.
        """
        common = {"wallet": self.wallet, "name": self.wallet.name, "csrf": self.csrf, "tab": tab}
        common |= {"has_several": self.owner.has_several, "looked_at": self.looked_at}
        places = VIEWS if tab == SETTINGS_TAB else {}
        if not self.context.settings.of(MailSettings).smtp_host:
            places = {path: label for path, label in places.items() if path != NOTICES}
        common["places"] = [(self.language.say(label), path) for path, label in places.items()]
        below = f"{self.request.scope['path']}/"
        common["here"] = max((path for path in places if below.startswith(f"{path}/")), key=len, default="")
        template = template if template.startswith(SHARED) else f"account/{template}"
        common["layout"] = "account/layout.html"
        response = render(self.request, template, common | values, status, script=script)
        if refresh is not None:
            response.headers["Refresh"] = str(refresh)
        return response

    async def show_found(
        self, template: str, unit: Callable[[Work], Mapping[str, object]], tab: str, status: int = 200, **values: object
    ) -> Response:
        """Renders a template with what a unit finds beside other values."""
        more: dict[str, Any] = {**values, **await self.read(unit)}
        return self.show(template, status, tab=tab, **more)


class OwnerSignIn(SignIn[OwnerVisit]):
    """An owner signs in by the name of the wallet."""

    cookies = OWNER
    field = "wallet"
    asks = "second_step.html"
    home, outside = HOME, "/"
    link_checks = check_sign_in, check_typed_twice

    def guard(self, context: Context) -> SignInGuard:
        return people_of(context).sign_in

    def find_account(self, work: Work, name: str) -> tuple[str, Account | None]:
        path = wallet_path(work, name)
        return path, owner_at(work, path)

    def set_password(self, work: Work, account: Account, password_hash: str) -> None:
        store_password(work, account.name, password_hash, forget_browsers=True)

    async def find_visit(self, request: Request, session: str) -> OwnerVisit | None:
        """The visit of a session, which is renewed if due."""
        found = await context_of(request).database.read(partial(find_owner, session=session))
        if found is None:
            return None
        owner, wallet, is_renewal_due = found

        def authentic(work: Work) -> str:
            work.in_session = hash_secret(session)
            return account_of_session(work, OF_OWNERS, session).actor

        visit = OwnerVisit(request, authentic, session, owner, wallet, wallet, language_of(request))

        def renew(work: Work) -> None:
            change_session(work, OF_OWNERS, hash_secret(session), expires_at=work.now + OF_OWNERS.lifetime)

        if is_renewal_due and request.method != "POST":  # a form may end the session; the next page renews it
            with suppress(SignInFailed, Unavailable):
                await visit.write(renew)
        return visit

    def show_sign_in(self, request: Request, error: DomainError | None, form: Form) -> Response:
        name = form.get(self.field)
        field = "password" if isinstance(error, SignInFailed) and name is not None else ""
        problems = {field: problem_of(language_of(request), error)} if error else {}
        given = request.query_params.get("wallet", "") if name is None else name
        values = {"problems": problems, "given": given}
        status = error.status if error else 401
        return render_sign_in(request, "account/sign_in.html", values, status, steps=alone(), form=form)

    async def follow_link(self, request: Request) -> Response:
        try:
            return await super().follow_link(request)
        except NotFound as error:
            return self.show_link(request, None, (), error)

    def show_link(
        self,
        request: Request,
        account: Account | None,
        passkeys: Sequence[PasskeyRecord],
        error: DomainError | None = None,
    ) -> Response:
        """The form, or the message that the link is no longer valid."""
        if error is None and request.method not in {"GET", "HEAD"}:
            raise MethodNotAllowed(PAGE_METHODS)
        if error is not None and not isinstance(error, InvalidRequest):
            note_error(request, error)
        values = {
            "name": None if isinstance(error, NotFound) or account is None else account.name,
            "names": account.names if isinstance(account, OwnerRecord) else (),
            "problems": new_password_problems(language_of(request), error) if error else {},
            "least": MIN_PASSWORD_LENGTH,
            "passkeys": passkeys,
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
