"""The routes of the operator's pages, which require signing in.

The router refuses hosts outside `admin_hosts`. Every response is a page or a redirect to one.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final

from starlette.convertors import StringConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

from payres.accounts.factor_pages import FactorPages
from payres.accounts.passkey_pages import PasskeyPages
from payres.accounts.places import answer as answer_visit
from payres.accounts.places import answer_place
from payres.accounts.visits import Place, choose_zone
from payres.core.http.routing import Handler, Route
from payres.core.protocol.errors import NotFound, nothing_here
from payres.core.protocol.urls import ADMIN_API, ADMIN_ROOT
from payres.html.forms import Form, not_of_page
from payres.html.html import load_templates, redirect, serve_page
from payres.operator.declared.declarations import declared
from payres.operator.declared.shapes import Shape
from payres.operator.exports import export_ledger, export_payments, export_statement
from payres.operator.pages import due, health, overview, search, server
from payres.operator.pages.details import thing_pages
from payres.operator.pages.lists import exports_page, send_file, show_list
from payres.operator.pages.operations import Done, OperationPage, say
from payres.operator.pages.sign_in import OPERATOR_SIGN_IN, OperatorVisit, Page
from payres.operator.roles import beyond


class PageConvertor(StringConvertor):
    """A path below the operator's pages, except the operator's API, whose errors are JSON."""

    regex = rf"(?!{re.escape(ADMIN_API.removeprefix(f'{ADMIN_ROOT}/'))}(?:/|$)).+"


register_url_convertor("page", PageConvertor())

FACTOR_PAGES: Final = FactorPages(OPERATOR_SIGN_IN, f"{ADMIN_ROOT}/security")
# Hand-written pages; `admin_pages` adds the lists and forms of operations.
PAGES: Final[Mapping[str, Callable[..., Awaitable[Response]]]] = {
    "": overview.page,
    "/link/{secret:secret}": OPERATOR_SIGN_IN.follow_link,
    "/wallets/{wallet}/statement": partial(send_file, rule=export_statement),
    "/exports": exports_page,
    "/exports/payments": partial(send_file, rule=export_payments),
    "/exports/ledger": partial(send_file, rule=export_ledger),
    "/backups": server.backups_page,
    "/due": due.page,
    "/health": health.page,
    "/health/ledger": server.check_page,
    "/operators": server.operators_page,
    "/settings": server.settings_page,
    "/search": search.page,
}


def page_routes() -> Sequence[Route]:
    """The routes of the operator's pages. Takes long, because it also loads the templates of every page."""
    load_templates("html", "accounts", "operator")
    pages = {**admin_pages(), f"{ADMIN_ROOT}/{{path:page}}": _find_nothing}.items()
    return [Route(path, {"GET": _handler(page)}, is_json=False, takes_all=True) for path, page in pages]


def admin_pages() -> Mapping[str, Callable[..., Awaitable[Response]] | Place]:
    """The page of each path. Paths with variables come after literal paths that they would match."""
    pages: dict[str, Callable[..., Awaitable[Response]] | Place] = {**thing_pages(), **PAGES, **FACTOR_PAGES.places()}
    pages |= PasskeyPages(FACTOR_PAGES).places()
    for one in declared():
        if one.listing and one.listing.title:
            pages.setdefault(one.list_url, partial(show_list, operation=one))
        if one.form:
            pages[one.form.url] = OperationPage(one, one.form)
    found = sorted(pages.items(), key=lambda item: "{" in item[0])
    return {f"{ADMIN_ROOT}{path.removeprefix(ADMIN_ROOT)}": page for path, page in found}


def _handler(found: Callable[..., Awaitable[Response]] | Place) -> Handler:
    if isinstance(found, Place):
        answer: Handler = partial(answer_place, OPERATOR_SIGN_IN, place=found)
    else:
        answer = found if found in OPEN else partial(_answer, page=found)
    return partial(
        serve_page, answer=answer, template="admin/notice.html", fault="The server failed, and its log says how"
    )


async def _find_nothing(_: Request) -> Response:
    raise nothing_here()


OPEN: Final = (OPERATOR_SIGN_IN.follow_link, _find_nothing)  # served without signing in


async def _answer(request: Request, page: Page) -> Response:
    again, secrets = (page.again, page.secrets) if isinstance(page, OperationPage) else ({}, ())
    shape = page.form.about if isinstance(page, OperationPage) else getattr(page, "keywords", {}).get("shape")
    show, act = page, partial(_carry_out, page=page)
    if shape is not None and shape.gone:
        show, act = partial(_lead_back, show, shape), partial(_lead_back, act, shape)
    return await answer_visit(OPERATOR_SIGN_IN, request, show, act, again, secrets)


async def _lead_back(
    answer: Callable[..., Awaitable[Response]], shape: Shape, visit: OperatorVisit, *form: Form
) -> Response:
    """The answer; the list with a word if the thing is gone."""
    try:
        return await answer(visit, *form)
    except NotFound:
        say(visit, Done(shape.gone))
        return redirect(ADMIN_ROOT + shape.page.rpartition("/")[0])


async def _carry_out(visit: OperatorVisit, form: Form, page: Page) -> Response:
    if page is server.settings_page and form.get("choice") == "zone":
        return await choose_zone(visit, form, f"{ADMIN_ROOT}/settings")
    if not isinstance(page, OperationPage):
        raise not_of_page()
    if not visit.may(page.operation):
        raise await visit.read(partial(beyond, operator=visit.operator))
    return await page.act(visit, form)
