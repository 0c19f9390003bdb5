"""The routes of the pages of owners, payers and visitors, and the pages that stand at the entrance."""

from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from payres.accounts.factor_pages import FactorPages
from payres.accounts.passkey_pages import PasskeyPages
from payres.accounts.places import answer_place
from payres.accounts.store.joined_wallets import open_joins
from payres.accounts.store.owners import OF_OWNERS
from payres.accounts.store.second_factors import removal_due_at
from payres.accounts.visits import TAKES_AWAY, Act, Place, Unasked, choose_zone
from payres.core.http import wallet_addresses
from payres.core.http.context import context_of
from payres.core.http.responses import asks_for
from payres.core.http.routing import Handler, Route
from payres.core.protocol.errors import TooManyRequests
from payres.core.protocol.urls import RESET_PATH
from payres.core.store.work import Work
from payres.html.forms import Form
from payres.html.html import language_of, load_templates, qr_code, render, serve_page
from payres.people import (
    activity,
    apps,
    bills,
    consent,
    key_pages,
    money_requests,
    not_me,
    notice_pages,
    own_wallets,
    payments,
    security,
    sending,
    settings,
    standing_order_pages,
    statements,
)
from payres.people import webhook_pages as webhooks
from payres.people.activity import Reader, Wanted
from payres.people.notice_texts import NOT_ME_PATH, STOP_PATH
from payres.people.services import people_of
from payres.people.sign_in import HOME, NOTICES, OWNER_SIGN_IN, SECURITY, SETTINGS_TAB, OwnerVisit

# How many of each the first page of an owner shows.
MOVEMENTS: Final = 10
IN_PROGRESS: Final = 5
BUDGETS: Final = 3
A_PRICE: Final = "nothing is paid yet"
HOW_IT_LOOKS: Final = "it changes how pages look in this browser"
FACTOR_PAGES: Final = FactorPages(OWNER_SIGN_IN, SECURITY, above=SECURITY)


async def front_page(request: Request) -> Response:
    """GET / by a browser."""
    return render(request, "front.html", {})


async def wallet_page(request: Request) -> Response:
    """GET {wallet address} by a browser."""
    if asks_for(request.scope["headers"], wallet_addresses.SPSP_TYPE):
        return await wallet_addresses.read(request)
    wallet = await wallet_addresses.find(request)
    urls = context_of(request).urls
    address = urls.wallet(wallet.path)
    values = {
        "wallet": wallet,
        "name": wallet.name,
        "address": address,
        "pointer": urls.pointer(wallet.path) or address,
        "qr": qr_code(address, language_of(request).say("QR code of this wallet address")),
    }
    response = render(request, "wallet.html", values)
    response.headers["Vary"] = "Accept"
    return response


async def show_home(visit: OwnerVisit) -> Response:
    """GET /account."""

    def unit(work: Work) -> Mapping[str, object]:
        wallet, reader = visit.wallet, Reader(work, visit.wallet, visit.language.zone)
        under_way = reader.in_progress(IN_PROGRESS)
        rows = reader.page(Wanted(), MOVEMENTS + len(under_way)).rows
        shown = {one.key for one in under_way}
        return {
            "balance": own_wallets.spendable(work, wallet),
            "in_progress": under_way,
            "rows": [row for row in rows if row.newest.key not in shown][:MOVEMENTS],
            "coming": standing_order_pages.coming_up(work, wallet),
            "others": own_wallets.others(work, visit),
            "budgets": apps.budgets(work, wallet).apps[:BUDGETS],
            "address": work.urls.wallet(wallet.path),
            "pointer": work.urls.pointer(wallet.path) or work.urls.wallet(wallet.path),
            "asked_for": [one for one in open_joins(work, visit.owner.id, work.now) if one.holder_id == visit.owner.id],
            "removal_due_at": removal_due_at(work, OF_OWNERS, visit.owner.id, work.now),
        }

    return await visit.show_found("home.html", unit, HOME)


def _again(**shows: Act) -> Mapping[str, Act]:
    return {choice: partial(own_wallets.show_typed, show=show) for choice, show in shows.items()}


# Pages of signed-in owners. Paths with variables come after literal paths that they would match.
PLACES: Final[Mapping[str, Place]] = {
    "/account": Place(show_home),
    "/account/activity": Place(activity.show),
    "/account/activity/statement.csv": Place(statements.download),
    "/account/apps": Place(apps.show),
    "/account/apps/ended": Place(apps.show_ended),
    "/account/apps/{grant}": Place(apps.show_one, {"stop": Unasked(apps.stop, TAKES_AWAY)}),
    NOTICES: Place(
        notice_pages.show,
        {
            "ask": notice_pages.ask,
            "confirm": notice_pages.confirm,
            "save": Unasked(notice_pages.save, "notices about access are sent in any case"),
            "test": Unasked(notice_pages.send_test, "it goes to an address that was confirmed"),
            "forget": notice_pages.forget,
        },
        again=_again(ask=notice_pages.show),
    ),
    "/account/request": Place(
        money_requests.show,
        {"make": Unasked(money_requests.make, "others pay, if they want to")},
        again=_again(make=money_requests.show_form),
    ),
    "/account/request/{id}": Place(
        money_requests.show_one, {"cancel": Unasked(money_requests.cancel, "then nobody can pay it")}
    ),
    "/account/send": Place(
        sending.show, {"price": Unasked(sending.ask, A_PRICE)}, again=_again(price=sending.show_typed)
    ),
    "/account/send/{quote}": Place(
        sending.show_price, {"send": sending.confirm, "again": Unasked(sending.ask_again, A_PRICE)}
    ),
    "/account/payments/{payment}": Place(payments.show),
    "/account/orders": Place(standing_order_pages.show),
    "/account/orders/new": Place(
        standing_order_pages.show_form,
        {"look": Unasked(standing_order_pages.look_over, A_PRICE)},
        again=_again(look=standing_order_pages.show_typed),
    ),
    "/account/orders/new/{quote}": Place(standing_order_pages.show_draft, {"set-up": standing_order_pages.set_up}),
    "/account/orders/{order}": Place(
        standing_order_pages.show_one,
        {
            "pause": Unasked(standing_order_pages.pause, TAKES_AWAY),
            "resume": Unasked(standing_order_pages.resume, "it was asked for when the order was set up"),
            "end": Unasked(standing_order_pages.end, TAKES_AWAY),
        },
    ),
    "/settings/developer-keys": Place(
        key_pages.show,
        {"add": key_pages.add, "revoke": Unasked(key_pages.revoke, TAKES_AWAY)},
        again=_again(add=key_pages.show_typed),
    ),
    "/settings/webhooks": Place(webhooks.show, {"add": webhooks.add}, again=_again(add=webhooks.show)),
    "/settings/webhooks/{id}": Place(
        webhooks.show_one,
        {
            "test": Unasked(webhooks.send_test, "a test says nothing about money or people"),
            "pause": Unasked(webhooks.pause, TAKES_AWAY),
            "resume": Unasked(webhooks.resume, "it undoes a pause"),
            "rotate": webhooks.rotate,
            "remove": Unasked(webhooks.remove, TAKES_AWAY),
        },
    ),
    "/account/security": Place(security.show, dict.fromkeys(("end", "others"), Unasked(security.end, TAKES_AWAY))),
    SETTINGS_TAB: Place(
        settings.show,
        {
            "language": Unasked(settings.choose_language, HOW_IT_LOOKS),
            "zone": Unasked(partial(choose_zone, after=f"{SETTINGS_TAB}?done=zone"), HOW_IT_LOOKS),
        },
    ),
    "/settings/password": Place(settings.show_password, {"change": settings.change}, asks=True),
    "/settings/wallets": Place(
        own_wallets.show, {"connect": own_wallets.connect, "keep": Unasked(own_wallets.keep, TAKES_AWAY)}
    ),
    "/settings/receive": Place(
        settings.show_receiving,
        {"rename": Unasked(settings.rename, "a name gives nobody money or access, and a mail tells of it")},
        again=_again(rename=settings.show_receiving),
    ),
    **FACTOR_PAGES.places(),
    **PasskeyPages(FACTOR_PAGES).places(),
    "/account/security/limit": Place(
        settings.show_limit, {"set": settings.set_limit}, again=_again(set=settings.show_limit)
    ),
}


def load() -> None:
    """Loads what these pages need on first use."""
    load_templates("html", "accounts", "people")
    import_module("cryptography.hazmat.primitives.serialization")


def page_routes() -> Sequence[Route]:
    """The routes. Takes long, because it also loads the templates of every page, and what reads keys."""
    load()
    at = partial(answer_place, OWNER_SIGN_IN)
    answers: dict[str, Handler] = {
        path: partial(at, place=place, first=partial(_first, place=place)) for path, place in PLACES.items()
    }
    answers |= {"/pay/{id}": bills.answer_bill, "/pay/{id}/return/{state:secret}": bills.answer_return}
    answers |= {"/interact/{id}/{nonce:secret}": consent.answer}
    answers |= {f"{RESET_PATH}{{secret:secret}}": OWNER_SIGN_IN.follow_link}
    answers |= {f"{STOP_PATH}{{secret:secret}}": notice_pages.answer_stop}
    answers |= {f"{NOT_ME_PATH}{{secret:secret}}": not_me.answer}
    found = {path: partial(serve_page, answer=partial(_unless_too_many, answer=one)) for path, one in answers.items()}
    return [
        Route(path, {"GET": handler, "POST": handler}, is_json=False, takes_all=True) for path, handler in found.items()
    ]


async def _first(visit: OwnerVisit, form: Form, place: Place) -> Response | None:
    """Counts a form for its owner, before it does anything. What only takes away is bounded by what there is, and must
    not wait for somebody else who has the owner's session. Raises TooManyRequests."""
    act = place.acts.get(form.get("choice", ""))
    if not (isinstance(act, Unasked) and act.why == TAKES_AWAY):
        people_of(visit.context).forms.check(visit.owner.id)
    return await own_wallets.answer_first(visit, form)


async def _unless_too_many(request: Request, answer: Handler) -> Response:
    too_many = context_of(request).rate_limits.address_error(request.scope)
    if too_many is not None:
        raise TooManyRequests(str(too_many), retry_after=too_many.retry_after)
    return await answer(request)
