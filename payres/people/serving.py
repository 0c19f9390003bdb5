"""The routes of the pages of owners, consent and payments. Pages of owners require signing in.

Every response is a page or a redirect to one.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from payres.core.http.context import context_of
from payres.core.http.routing import Handler, Route
from payres.core.protocol.errors import InvalidRequest, TooManyRequests
from payres.core.protocol.urls import RESET_PATH
from payres.html.html import load_templates, serve_page
from payres.html.visits import Form
from payres.people import checkout, consent
from payres.people.account import activity, apps, home, keys, passwords, payment, requests, send, settings
from payres.people.account.visits import OWNER_SIGN_IN, Act, OwnerVisit, Page


class Place(NamedTuple):
    """The page of a path, and the actions of its forms by their `choice`."""

    show: Page
    acts: Mapping[str, Act] = {}


# Pages of signed-in owners. Paths with variables come after literal paths that they would match.
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
    "/settings/developer-keys": Place(keys.show, {"add": keys.add, "revoke": keys.revoke}),
    "/settings": Place(
        settings.show, {"zone": settings.choose_zone, "sign-out-everywhere": settings.sign_out_everywhere}
    ),
    "/settings/password": Place(passwords.show, {"change": passwords.change}),
    "/settings/receive": Place(settings.show_receiving),
}


def page_routes() -> Sequence[Route]:
    """The routes. Also loads the templates of the most frequent pages."""
    load_templates("layout.html", "parts.html", "account/layout.html", "account/sign_in.html")
    load_templates(
        "account/home.html", "account/activity.html", "account/movement_parts.html", "account/app_parts.html"
    )
    answers: dict[str, Handler] = {path: partial(_answer, place=place) for path, place in PLACES.items()}
    answers |= {"/pay/{id}": checkout.answer_bill, "/pay/{id}/return/{state:secret}": checkout.answer_return}
    answers |= {"/interact/{id}/{nonce:secret}": consent.answer}
    answers |= {f"{RESET_PATH}{{secret:secret}}": OWNER_SIGN_IN.follow_link}
    found = {path: partial(serve_page, answer=partial(_unless_too_many, answer=one)) for path, one in answers.items()}
    return [
        Route(path, {"GET": handler, "POST": handler}, is_json=False, takes_all=True) for path, handler in found.items()
    ]


async def _unless_too_many(request: Request, answer: Handler) -> Response:
    too_many = context_of(request).rate_limits.address_error(request.scope)
    if too_many is not None:
        raise TooManyRequests(str(too_many), retry_after=too_many.retry_after)
    return await answer(request)


async def _answer(request: Request, place: Place) -> Response:
    return await OWNER_SIGN_IN.answer(request, place.show, partial(_carry_out, place=place))


async def _carry_out(visit: OwnerVisit, form: Form, place: Place) -> Response:
    choice = form.get("choice", "")
    if choice not in place.acts:
        raise InvalidRequest("This form is not one of this page's. Please open it again", field="choice")
    return await place.acts[choice](visit, form)
