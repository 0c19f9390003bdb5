"""The pages of owners, of consent and of payments by their paths, and how those of owners are served: signing in first,
then the page or its form.

Every answer is a page or leads to one.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from payres.errors import BodyTooLarge, InvalidRequest, MethodNotAllowed, SignInFailed, TooManyRequests
from payres.grants.sign_in import check_csrf
from payres.owner import sessions
from payres.pages import checkout, consent
from payres.pages.account import (
    activity,
    apps,
    home,
    keys,
    passwords,
    payment,
    requests,
    send,
    settings,
    visits,
)
from payres.pages.account.visits import Act, Form, Page, Visit
from payres.pages.error_sentences import problem_of
from payres.pages.forms import keep_signed_in, read_form
from payres.pages.html import PAGE_METHODS, error_page, language_of, load_templates, serve_page
from payres.routes.context import context_of
from payres.routes.routing import Handler, Route
from payres.urls import RESET_PATH


class Place(NamedTuple):
    """What one address of the account shows, and what its forms do, by the `choice` that they send.

    `show_too_long` is shown for a form that is too long to be read. The field `ticked` may come several times, as that
    of boxes does; a form has its values with a space between them.
    """

    show: Page
    acts: Mapping[str, Act] = {}
    show_too_long: Page | None = None
    ticked: str = ""


# What only a signed-in owner sees. A path without names comes before one that they could make.
PLACES: Final[Mapping[str, Place]] = {
    "/account": Place(home.show),
    "/account/activity": Place(activity.show),
    "/account/activity/statement.csv": Place(activity.download),
    "/account/apps": Place(apps.show),
    "/account/apps/ended": Place(apps.show_ended),
    "/account/apps/{grant}": Place(apps.show_one, {"stop": apps.stop}),
    "/account/request": Place(requests.show, {"make": requests.make}),
    "/account/request/{id}": Place(requests.show_one, {"cancel": requests.cancel}),
    "/account/send": Place(send.show, {"price": send.ask}),
    "/account/send/{quote}": Place(send.show_price, {"send": send.confirm, "again": send.ask_again}),
    "/account/payments/{payment}": Place(payment.show),
    "/settings/developer-keys": Place(
        keys.show, {"add": keys.add, "revoke": keys.revoke}, keys.show_too_long, ticked="key_id"
    ),
    "/settings": Place(
        settings.show, {"zone": settings.choose_zone, "sign-out-everywhere": settings.sign_out_everywhere}
    ),
    "/settings/password": Place(passwords.show, {"change": passwords.change}),
    "/settings/receive": Place(settings.show_receiving),
}
FAULT: Final = "The fault is not yours. Please try again in a while"


def page_routes() -> Sequence[Route]:
    """The routes; with them, what every page is made of is loaded."""
    load_templates("layout.html", "parts.html", "account/layout.html", "account/sign_in.html")
    load_templates(
        "account/home.html", "account/activity.html", "account/movement_parts.html", "account/app_parts.html"
    )
    found: dict[str, Handler] = {"/interact/{id}/{nonce}": consent.serve, "/pay/{id}": _handler(checkout.answer_bill)}
    found["/pay/{id}/return/{state}"] = _handler(checkout.answer_return)
    found |= {path: _handler(partial(_answer, place=place)) for path, place in PLACES.items()}
    found[f"{RESET_PATH}{{secret}}"] = _handler(passwords.reset)
    return [
        Route(path, {"GET": handler, "POST": handler}, is_json=False, takes_all=True) for path, handler in found.items()
    ]


def _handler(answer: Handler) -> Handler:
    return partial(serve_page, answer=partial(_unless_too_many, answer=answer), error_page=error_page, fault=FAULT)


async def _unless_too_many(request: Request, answer: Handler) -> Response:
    too_many = context_of(request).rate_limits.address_error(request.scope)
    if too_many is not None:
        raise TooManyRequests(str(too_many), retry_after=too_many.retry_after)
    return await answer(request)


async def _answer(request: Request, place: Place) -> Response:
    is_form, form = request.method == "POST", {}
    try:
        form = await read_form(request, place.ticked) if is_form else {}
    except BodyTooLarge:
        visit = await visits.find_visit(request)
        if visit is None or place.show_too_long is None:
            raise
        return await place.show_too_long(visit)
    if form.get("choice") == "sign-in":
        return await visits.sign_in(request, form)
    visit = await visits.find_visit(request)
    if visit is None:
        problem = problem_of(language_of(request), sessions.signed_out()) if is_form else ""
        return visits.show_sign_in(request, {"": problem})
    try:
        response = await (_carry_out(visit, place, form) if is_form else _show(visit, place))
    except SignInFailed as error:  # the session has ended meanwhile
        return visits.show_sign_in(request, {"": problem_of(language_of(request), error)})
    if visit.is_renewed:
        keep_signed_in(request, response, visit.session)
    return response


async def _show(visit: Visit, place: Place) -> Response:
    if visit.request.method not in {"GET", "HEAD"}:
        raise MethodNotAllowed(PAGE_METHODS)
    return await place.show(visit)


async def _carry_out(visit: Visit, place: Place, form: Form) -> Response:
    check_csrf(visit.session, form.get("csrf", ""))
    choice = form.get("choice", "")
    if choice == "sign-out":
        return await visits.sign_out(visit)
    if choice not in place.acts:
        raise InvalidRequest("This form is not one of this page's. Please open it again", field="choice")
    return await place.acts[choice](visit, form)
