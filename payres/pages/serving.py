"""How every page of the operator is served: signing in first, then the page, or what its form asks for.

Whoever `admin_hosts` does not let in comes no further than the router. Every answer is a page or leads to one.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from payres.errors import InsufficientAccess, InvalidRequest, MethodNotAllowed, SignInFailed
from payres.grants.sign_in import check_csrf
from payres.pages import sign_in
from payres.pages.actions import Action
from payres.pages.endpoints import admin_pages
from payres.pages.visit import STYLE_SHEETS, Form, Page, Visit
from payres.routes.pages import PAGE_METHODS, error_page, read_form, serve_page
from payres.routes.routing import Handler, Route


def page_routes() -> Sequence[Route]:
    """The routes of the operator's pages."""
    pages = admin_pages().items()
    return [Route(path, {"GET": _handler(page)}, is_json=False, takes_all=True) for path, page in pages]


def _handler(found: Callable[..., Any]) -> Handler:
    return partial(
        serve_page,
        answer=found if found is sign_in.follow_link else partial(_answer, page=found),
        error_page=partial(error_page, template="admin/notice.html", style_sheets=STYLE_SHEETS),
        fault="The server failed, and its log says how",
    )


async def _answer(request: Request, page: Page) -> Response:
    is_form = request.method == "POST"
    form = await read_form(request) if is_form else {}
    if form.get("choice") == "sign-in":
        return await sign_in.sign_in(request, form)
    visit = await sign_in.find_visit(request)
    if visit is None:
        return sign_in.show_sign_in(request, "You are signed out by now, so nothing was done" if is_form else None)
    try:
        return await (_carry_out(visit, page, form) if is_form else _show(visit, page))
    except SignInFailed as error:  # the session has ended meanwhile
        return sign_in.show_sign_in(request, str(error))


async def _show(visit: Visit, page: Page) -> Response:
    if visit.request.method not in {"GET", "HEAD"}:
        raise MethodNotAllowed(PAGE_METHODS)
    return await page(visit)


async def _carry_out(visit: Visit, page: Page, form: Form) -> Response:
    check_csrf(visit.session, form.get("csrf", ""))
    if form.get("choice") == "sign-out":
        return await sign_in.sign_out(visit)
    if not isinstance(page, Action):
        raise InvalidRequest("This form is not one of this page's. Please open it again", field="choice")
    if not visit.operator.may_change:
        raise InsufficientAccess("You may look at everything and change nothing", reason="action")
    return await page.act(visit, form)
