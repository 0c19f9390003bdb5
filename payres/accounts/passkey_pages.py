"""The pages on which owners and operators add a passkey, name it and remove it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from starlette.responses import Response

from payres.accounts import passkeys
from payres.accounts.browser_names import seen_of
from payres.accounts.cookies import browser_of, scripts_of
from payres.accounts.factor_pages import FactorPages
from payres.accounts.second_factors import has_factor, remove_step
from payres.accounts.sessions import SignedIn, start_over
from payres.accounts.store.passkeys import passkeys_of
from payres.accounts.visits import Place, Visit
from payres.core.http.error_answers import note_error
from payres.core.http.routing import OnFirstUse
from payres.core.protocol.errors import DomainError
from payres.core.store.work import Work
from payres.html.concurrent_edits import ChangedMeanwhile, filled, save_unchanged, sides_of
from payres.html.forms import Form
from payres.html.html import brand_of, language_of, redirect
from payres.html.sentences import problem_of

FIDO2 = OnFirstUse(passkeys.load_fido2)


class PasskeyPages(NamedTuple):
    """The pages of one kind of account, beside those of its other factors."""

    factors: FactorPages

    @property
    def path(self) -> str:
        return f"{self.factors.path}/passkeys"

    def places(self) -> dict[str, Place]:
        """The pages by their paths."""
        new, one = {"prove": self.prove, "add": self.add}, {"rename": self.rename, "remove": self.remove}
        return {
            self.path: Place(self.show_all),
            f"{self.path}/new": Place(self.show_new, new, asks=True),
            f"{self.path}/{{passkey}}": Place(self.show, one),
        }

    async def show_all(self, visit: Visit) -> Response:
        """All passkeys of the account. Devices are told which these are, and so forget one that was removed."""
        kind, account, secret = self.factors.kind, visit.account, visit.context.part(passkeys.PasskeySecret)
        found = await visit.read(lambda work: passkeys_of(work, kind, account.id))
        accepted = passkeys.accepted_of(visit.request, kind, account, secret, found)
        values: dict[str, Any] = {"passkeys": found, "accepted": accepted}
        values |= {"path": self.path, "above": self.factors.above}
        return visit.show("security/passkeys.html", script=scripts_of({passkeys.PASSKEYS.name: accepted}), **values)

    async def show_new(
        self, visit: Visit, error: DomainError | None = None, field: str = "", is_proved: bool = False
    ) -> Response:
        """The form for a new passkey; first one for the password, if that is all that the account has."""
        kind, account, secret = self.factors.kind, visit.account, visit.context.part(passkeys.PasskeySecret)
        brand, is_here = brand_of(visit.context.settings).name, passkeys.takes_passkeys(visit.request)

        def unit(work: Work) -> str | None:
            if not is_here or not (is_proved or has_factor(work, kind, account.id)):
                return None
            return passkeys.options_to_add(work, kind, account, secret, visit.session, brand)

        options = await visit.read(unit)
        problems = {field: problem_of(language_of(visit.request), error)} if error else {}
        values = {"one": None, "options": options, "is_here": is_here, "problems": problems}
        return self._show_one(visit, error, script=scripts_of({passkeys.PASSKEYS.name: options or ""}), **values)

    async def prove(self, visit: Visit, form: Form) -> Response:
        """The form for a new passkey, for who gives the password."""
        error = await self.factors.wrong_password(visit, form)
        return await self.show_new(visit, error, "password", is_proved=error is None)

    async def add(self, visit: Visit, form: Form) -> Response:
        """Adds the passkey that the browser made; shows recovery codes if there are none. The first second factor ends
        all other sessions, and browsers that know the password alone."""
        kind, account, secret = self.factors.kind, visit.account, visit.context.part(passkeys.PasskeySecret)
        name, answer = form.get("name", ""), form.get("answer", "")
        browser, seen = browser_of(visit.request, self.factors.signs.cookies), seen_of(visit.request)

        def unit(work: Work) -> tuple[SignedIn | None, Sequence[str]]:
            is_first = not has_factor(work, kind, account.id)
            codes = passkeys.add_passkey(work, kind, account, name, answer, secret, visit.session)
            anew = start_over(work, kind, account, browser, seen, lambda: None) if is_first else None
            return anew, codes

        await FIDO2.get()
        try:
            anew, codes = await visit.write(unit)
        except DomainError as error:
            noted, field = note_error(visit.request, error), "name" if error.details.get("field") == "name" else ""
            return await self.show_new(visit, noted, field)
        if anew is not None:
            return self.factors.signed_in_anew(visit, anew, codes, self.path)
        return self.factors.render_recovery(visit, codes, self.path) if codes else redirect(self.path)

    async def show(self, visit: Visit, changed: ChangedMeanwhile | None = None) -> Response:
        """One passkey."""
        kind, named = self.factors.kind, visit.segments["passkey"]
        found = await visit.read(lambda work: passkeys.own_passkey(work, kind, visit.account.id, named))
        if changed:
            note_error(visit.request, changed)
        form = changed.merged({}) if changed else filled({"name": found.name})
        rows = sides_of(changed, {"name": language_of(visit.request).say("Name")}) if changed else ()
        return self._show_one(visit, changed, one=found, form=form, rows=rows, problems={})

    def _show_one(self, visit: Visit, error: DomainError | None, **values: Any) -> Response:
        values |= {"path": self.path, "above": self.factors.above}
        return visit.show("security/passkey.html", error.status if error else 200, **values)

    async def rename(self, visit: Visit, form: Form) -> Response:
        """Gives it another name."""
        kind, account, passkey = self.factors.kind, visit.account, visit.segments["passkey"]
        try:
            await save_unchanged(
                visit,
                form,
                lambda work: {"name": passkeys.own_passkey(work, kind, account.id, passkey).name},
                lambda work: passkeys.rename_passkey(work, kind, account, passkey, form.get("name", "")),
            )
        except ChangedMeanwhile as error:
            return await self.show(visit, error)
        return redirect(self.path)

    async def remove(self, visit: Visit, form: Form) -> Response:
        """Removes it."""
        kind, account, passkey = self.factors.kind, visit.account, visit.segments["passkey"]
        await visit.write(lambda work: remove_step(work, kind, account, passkeys.PASSKEYS, passkey))
        return redirect(self.path)
