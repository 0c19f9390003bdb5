"""The pages on which owners and operators turn codes on and off, and make recovery codes."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace
from starlette.responses import Response

from payres.accounts.browser_names import seen_of
from payres.accounts.cookies import browser_of, set_signed_in
from payres.accounts.recovery_codes import first_recovery_codes
from payres.accounts.second_factors import Factors, cancel_removal, factors_of, new_recovery_codes, remove_step
from payres.accounts.sessions import SignedIn, start_over, verified_now
from payres.accounts.sign_in import SignIn
from payres.accounts.store.kinds import Kind
from payres.accounts.totp import CODES, begin_codes, confirm_codes, link_of_secret, unconfirmed_secret
from payres.accounts.visits import Act, Place, Unasked, Visit
from payres.core.http.error_answers import note_error
from payres.core.protocol.errors import DomainError, SignInFailed, TooManyRequests
from payres.core.protocol.identifiers import hash_secret
from payres.core.store.work import Work
from payres.html.forms import Form
from payres.html.html import language_of, qr_code, redirect
from payres.html.sentences import problem_of

# Shows the buttons that need a script: one copies its value, the other one prints the page.
COPY_OR_PRINT: Final = (
    'for(const b of document.querySelectorAll("button[hidden]")){b.hidden=b.value&&!navigator.clipboard;b.onclick=()=>'
    "b.value?navigator.clipboard.writeText(b.value).then(()=>b.textContent=b.dataset.done):print()}"
)


class FactorPages(NamedTuple):
    """The pages of one kind of account: below `path`, for who signs in so, with a link back to a page above."""

    signs: SignIn[Visit]
    path: str
    above: str = ""

    @property
    def kind(self) -> Kind:
        return self.signs.cookies.kind

    def places(self) -> dict[str, Place]:
        """The pages by their paths."""
        keep = Unasked(self.keep, "it keeps the second factors")
        acts: dict[str, Act] = {"set-up": self.set_up, "confirm": self.confirm, "off": self.off, "keep": keep}
        return {
            f"{self.path}/codes": Place(self.show_codes, acts, asks=True),
            f"{self.path}/recovery-codes": Place(self.show_recovery, {"make": self.make}),
        }

    async def set_up(self, visit: Visit, form: Form) -> Response:
        """Makes a secret for an app, for who gives the password."""
        error = await self.wrong_password(visit, form)
        if error is not None:
            return await self.show_codes(visit, error.status, password=problem_of(language_of(visit.request), error))
        await visit.write(lambda work: begin_codes(work, self.kind, visit.account.id))
        return redirect(f"{visit.request.scope['path']}")

    async def confirm(self, visit: Visit, form: Form) -> Response:
        """Turns codes on with one of them, which ends all other sessions; shows recovery codes if there are none."""
        kind, account, browser = self.kind, visit.account, browser_of(visit.request, self.signs.cookies)

        def unit(work: Work) -> tuple[SignedIn, Sequence[str]] | None:
            if not confirm_codes(work, kind, account, form.get("code", "")):
                return None
            codes = first_recovery_codes(work, kind, account)
            verified_now(work, kind, visit.session)
            return start_over(work, kind, account, browser, seen_of(visit.request), lambda: None), codes

        done = await visit.write(unit)
        if done is None:
            return await self.show_codes(visit, 400, code="wrong")
        signed_in, codes = done
        return self.signed_in_anew(visit, signed_in, codes, f"{self.path}/codes")

    def signed_in_anew(self, visit: Visit, signed_in: SignedIn, codes: Sequence[str], after: str) -> Response:
        """The recovery codes, or else the page `after`, in the session that has taken the place of the visit's."""
        now = replace(visit, session=signed_in.session)
        response = self.render_recovery(now, codes, after) if codes else redirect(after)
        set_signed_in(visit.request, response, signed_in, self.signs.cookies)
        return response

    async def off(self, visit: Visit, form: Form) -> Response:
        """Turns codes off."""
        await visit.write(lambda work: remove_step(work, self.kind, visit.account, CODES))
        return redirect(f"{self.path}/codes")

    async def keep(self, visit: Visit, form: Form) -> Response:
        """Says no to an operator who wants to remove the second factors."""
        await visit.write(lambda work: cancel_removal(work, self.kind, visit.account))
        return redirect(self.signs.home)

    async def show_recovery(self, visit: Visit) -> Response:
        """How many recovery codes are left."""
        factors = await visit.read(lambda work: factors_of(work, self.kind, visit.account.id))
        return self.render_recovery(visit, (), factors=factors)

    async def make(self, visit: Visit, form: Form) -> Response:
        """New recovery codes, shown this once."""
        codes = await visit.write(lambda work: new_recovery_codes(work, self.kind, visit.account))
        return self.render_recovery(visit, codes, replaced=True)

    async def wrong_password(self, visit: Visit, form: Form) -> DomainError | None:
        """Why the password in a form is not taken; None if it is the account's."""
        known = hash_secret(visit.session)  # a signed-in browser is exempt from the limit on guesses
        try:
            await self.signs.check_password(visit.request, visit.account, form.get("password", ""), known)
        except (SignInFailed, TooManyRequests) as error:
            return note_error(visit.request, error)
        return None

    def render_recovery(self, visit: Visit, codes: Sequence[str], after: str = "", **values: Any) -> Response:
        """The page of recovery codes, which leads to `after`, by default to that of codes."""
        title, after = language_of(visit.request).say("Ten new recovery codes"), after or f"{self.path}/codes"
        return visit.show(
            *("security/recovery_codes.html", 200),
            script=COPY_OR_PRINT if codes else "",
            **{"title": title, "codes": codes, "path": self.path, "after": after, "replaced": False, **values},
        )

    async def show_codes(self, visit: Visit, status: int = 200, **problems: str) -> Response:
        """Whether codes are on; else the code that an app reads, if one was asked for."""
        kind, account, base = self.kind, visit.account, visit.context.urls.base

        def unit(work: Work) -> tuple[Factors, str | None]:
            return factors_of(work, kind, account.id), unconfirmed_secret(work, kind, account.id)

        factors, secret = await visit.read(unit)
        link = link_of_secret(secret, base.partition("://")[2], account.name) if secret else ""
        label = language_of(visit.request).say("QR code for your app")
        values: dict[str, Any] = {
            "factors": factors,
            "secret": secret,
            "link": link,
            "problems": problems,
            "path": self.path,
        }
        values |= {"above": self.above, "qr": qr_code(link, label) if link else ""}
        return visit.show("security/codes.html", status, **values)
