"""Signing in to the operator's pages, by a link that sets a password or by name and password."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response

from payres import __version__
from payres.accounts.cookies import Cookies, check_sign_in, render_sign_in
from payres.accounts.guesses import SignInGuard
from payres.accounts.limits import MIN_PASSWORD_LENGTH
from payres.accounts.second_factors import alone
from payres.accounts.sessions import account_of_session, csrf_token, find_session
from payres.accounts.sign_in import SignIn, check_typed_twice
from payres.accounts.store.kinds import Account
from payres.accounts.store.passkeys import PasskeyRecord
from payres.accounts.visits import Visit
from payres.core.http.context import Context, context_of
from payres.core.http.error_answers import note_error
from payres.core.protocol.errors import DomainError
from payres.core.protocol.urls import ADMIN_ROOT
from payres.core.store.work import Work
from payres.html.forms import Form
from payres.html.html import SHARED, render
from payres.operator import operators
from payres.operator.declared.declarations import DeclaredRule, Operation, OperationForm, declared, operation_of
from payres.operator.roles import beyond, may, scopes_of
from payres.operator.services import operator_of
from payres.operator.store.operators import OF_OPERATORS, OPERATORS, OperatorRecord

# The sections of the pages, with the paths of their views that are no lists; those of LEADING come before the lists.
SECTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "Overview": {"Overview": ADMIN_ROOT},
    **{name: {} for name in ("Wallets", "Payments", "Grants", "Peers", "Currencies")},
    "Programs": {"Exports": f"{ADMIN_ROOT}/exports"},
    "Server": {"Settings": f"{ADMIN_ROOT}/settings"},
}
LEADING: Final = {"Server": {"Health": f"{ADMIN_ROOT}/health"}}
WRONG: Final = "This name and this password do not belong together"


class OperatorVisit(Visit, frozen=True):
    """A request of a signed-in operator."""

    operator: OperatorRecord

    @property
    def account(self) -> OperatorRecord:
        return self.operator

    def may(self, *operations: Operation) -> bool:
        """Whether the operator's role does all of these."""
        return all(may(self.operator, one.scopes) for one in operations)

    def forms(self, rules: Iterable[DeclaredRule], **names: str) -> Sequence[tuple[OperationForm, str]]:
        """The forms of those operations that the operator may do, about the thing with these names, and their URLs."""
        found = [(one, one.form) for one in map(operation_of, rules) if one.form]
        return [(form, ADMIN_ROOT + form.url_of(names)) for operation, form in found if self.may(operation)]

    def show(self, template: str, status: int = 200, *, script: str = "", **values: Any) -> Response:
        """Renders a template below admin/, where `script` may run; the path selects the section and the view. Below
        these, `trail` leads back: to the view, or to the thing that has the page."""
        own_path = self.request.scope["raw_path"].decode("ascii")
        _, root, *names = own_path.rstrip("/").split("/")
        view = "/".join(["", root, *names[:1]])
        found = ((one, name) for one, views in menu().items() for name, path in views.items() if path == view)
        section, name = next(found, ("", ""))
        trail = (name, view) if len(names) > 1 and name else None
        # What a thing is called in its path.
        own = names[1:3] if view in {"/admin/assets", "/admin/rates"} else names[1:2]
        if trail and len(names) > 1 + len(own):
            trail = unquote(" ".join(own)), "/".join([view, *own])
        common = {"operator": self.operator, "csrf": csrf_token(self.session), "refresh": None, "new": None}
        common["may"] = lambda scope: may(self.operator, [scope])
        common["done"] = operator_of(self.context).said.pop(self.session, None)
        common |= {"sections": menu(), "section": section, "view": view, "trail": trail, "searched": "", "marks": ()}
        common |= {"version": __version__, "path": own_path}
        template = template if template.startswith(SHARED) else f"admin/{template}"
        common["layout"] = "admin/layout.html"
        return render(self.request, template, common | values, status, script=script)


@cache
def menu() -> Mapping[str, Mapping[str, str]]:
    """The sections, each with the paths of its views, the first of which it leads to."""
    lists = [(one.listing.menu, one.listing.title, one.list_url) for one in declared() if one.listing]
    return {
        section: LEADING.get(section, {})
        | {title: ADMIN_ROOT + url for name, title, url in lists if name == section}
        | dict(own)
        for section, own in SECTIONS.items()
    }


Page = Callable[[OperatorVisit], Awaitable[Response]]


class OperatorSignIn(SignIn[OperatorVisit]):
    """An operator signs in by name."""

    cookies = Cookies(OF_OPERATORS, "payres_admin", "payres_admin_known_", "payres_admin_half", "strict")
    field = "name"
    asks = "admin/second_step.html"
    home = outside = "/admin"
    link_checks = check_typed_twice, check_sign_in

    def guard(self, context: Context) -> SignInGuard:
        return operator_of(context).sign_in

    def find_account(self, work: Work, name: str) -> tuple[str, Account | None]:
        return name, OPERATORS.find(work, name=name)

    def set_password(self, work: Work, account: Account, password_hash: str) -> None:
        operators.set_password(work, account, password_hash)

    async def find_visit(self, request: Request, session: str) -> OperatorVisit | None:
        def unit(work: Work) -> OperatorRecord | None:
            found = find_session(work, OF_OPERATORS, session)
            return OPERATORS.by_id(work, found.account_id) if found else None

        operator = await context_of(request).database.read(unit)

        def authentic(work: Work) -> str:
            now = account_of_session(work, OF_OPERATORS, session)
            assert isinstance(now, OperatorRecord)
            is_limited = operator and not scopes_of(operator) <= scopes_of(now)
            if request.method == "POST" and is_limited:  # since the request began
                raise beyond(work, now)
            return now.actor

        return OperatorVisit(request, authentic, session, operator) if operator else None

    def show_sign_in(self, request: Request, error: DomainError | None, form: Form) -> Response:
        name, is_wrong = form.get(self.field), error is not None and error.details.get("reason") == "wrong_password"
        values = {
            "problem": WRONG if is_wrong else error and str(error),
            "name": name or "",
            "is_password": name is not None,
        }
        status = error.status if error else 401
        steps = alone()
        return render_sign_in(request, "admin/sign_in.html", values, status, kind=OF_OPERATORS, steps=steps, form=form)

    def show_link(
        self, request: Request, account: Account, passkeys: Sequence[PasskeyRecord], error: DomainError | None = None
    ) -> Response:
        if error is not None and error.details.get("field") != "again":
            note_error(request, error)
        values: dict[str, object] = {"problem": error and str(error), "name": account.name, "passkeys": passkeys}
        values["least"] = MIN_PASSWORD_LENGTH
        return render_sign_in(request, "admin/link.html", values, error.status if error else 200)


OPERATOR_SIGN_IN: Final = OperatorSignIn()
