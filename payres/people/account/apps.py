"""Pages of the owner's apps: remaining budgets, ended grants, and one app with its Stop button."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from starlette.responses import Response

from payres.core.protocol.clock import DAY
from payres.core.protocol.visible import visible_url
from payres.core.store.payments import INCOMING
from payres.core.store.rows import AFTER_ALL
from payres.core.store.wallets import find_with_wallet
from payres.core.store.work import Work
from payres.html.grant_words import other_words, spending_sentence
from payres.html.html import redirect
from payres.html.language import Language, marked
from payres.html.visits import Form
from payres.people.account.visits import OwnerVisit
from payres.people.rules import apps, keys
from payres.people.rules.activity import Reader, WalletMovement, rows_of
from payres.people.rules.apps import App, AppStanding, Budgets
from payres.people.rules.sending import wallet_free_balance

TAB: Final = "/account/apps"
NEARLY: Final = 90  # per cent spent, from which the bar warns
PAYMENTS: Final = 40  # shown on the page of one app
FEW: Final = 5  # ended apps shown below the running ones
# The names of windows, by months and microseconds.
PERIODS: Final = {
    (0, DAY): marked("Day {number} of {times}."),
    (0, 7 * DAY): marked("Week {number} of {times}."),
    (1, 0): marked("Month {number} of {times}."),
    (12, 0): marked("Year {number} of {times}."),
}
PERIOD: Final = marked("Period {number} of {times}.")
# Sentences by standing.
ENDS: Final[dict[AppStanding, str]] = {
    "spends": marked("It may spend"),
    "looks": marked("It may look, and cannot spend"),
    "paid": marked("It has paid what you allowed"),
    "over": marked("Its time is over"),
    "lapsed": marked("You allowed it, and it never began"),
    "stopped": marked("It was stopped"),
    "denied": marked("It was not allowed"),
}


async def show(visit: OwnerVisit) -> Response:
    """GET /account/apps."""

    def unit(work: Work) -> dict[str, Any]:
        running = apps.running(work, visit.wallet)
        return {
            "budgets": Budgets([app for app in running if app.may_spend]),
            "looking": [app for app in running if not app.may_spend],
            "ended": apps.ended(work, visit.wallet, count=FEW)[0],
            "free": wallet_free_balance(work, visit.wallet),
            "names": _names(work, running),
        }

    return visit.show("apps.html", tab=TAB, **await visit.read(unit), **_words(visit))


async def show_ended(visit: OwnerVisit) -> Response:
    """GET /account/apps/ended."""
    before = visit.request.query_params.get("before", AFTER_ALL)
    ended, more = await visit.read(lambda work: apps.ended(work, visit.wallet, before))
    return visit.show("apps_ended.html", tab=TAB, ended=ended, more=more, **_words(visit))


async def show_one(visit: OwnerVisit) -> Response:
    """GET /account/apps/{grant}."""
    grant_id, language = visit.segments["grant"], visit.language

    def unit(work: Work) -> tuple[App, Sequence[WalletMovement], Mapping[str, str]]:
        app = apps.require_app(work, visit.wallet, grant_id)
        return app, Reader(work, visit.wallet, language.zone).of_grant(grant_id, PAYMENTS), _names(work, [app])

    app, paid, names = await visit.read(unit)
    return visit.show(
        "app.html",
        tab=TAB,
        app=app,
        rows=rows_of(paid),
        is_cut=len(paid) == PAYMENTS,
        names=names,
        **_words(visit),
    )


async def stop(visit: OwnerVisit, form: Form) -> Response:
    """Revokes the grant, and its key if that box is ticked."""
    grant_id, with_key = visit.segments["grant"], form.get("key") == "revoke"

    def unit(work: Work) -> None:
        app = apps.stop(work, visit.wallet, grant_id)
        if with_key and app.who.key:
            keys.revoke(work, visit.wallet, {app.who.key.id})

    await visit.write(unit)
    return redirect(f"{TAB}/{grant_id}")


def _names(work: Work, those: Sequence[App]) -> Mapping[str, str]:
    """The names of apps' only receivers by URL: a local wallet's name, or a remote host."""

    def name(url: str) -> str:
        bill_id = work.urls.resource_id("incoming-payments", url)
        found = find_with_wallet(work, INCOMING, bill_id) if bill_id else None
        return found[1].name if found else visible_url(url).host

    return {url: name(url) for app in those if app.spending and (url := app.spending.receiver)}


def _words(visit: OwnerVisit) -> dict[str, Any]:
    """Template functions for apps and budgets."""
    language, own = visit.language, visit.context.urls.wallet(visit.wallet.path)
    return {
        "may": lambda spending, names: spending_sentence(language, spending, names.get(spending.receiver)),
        "sees": lambda grant: other_words(language, grant.access, grant.subject, own),
        "end_of": lambda app: language.say(ENDS[app.standing]),
        "window_of": lambda app: _window(language, app),
        "NEARLY": NEARLY,
    }


def _window(language: Language, app: App) -> str:
    """When the limit starts, renews and ends."""
    spending, renews_at = app.spending, app.renews_at
    said = []
    if app.is_to_come and renews_at is not None:
        said.append(language.say("It starts on {date}.", date=language.date(renews_at)))
    elif app.window is not None and spending and spending.interval and (spending.times or 0) > 1:
        period = PERIODS.get((spending.interval.months, spending.interval.microseconds), PERIOD)
        said.append(language.say(period, number=app.window, times=spending.times))
    if renews_at is not None and not app.is_to_come:
        is_soon = renews_at < language.now + 2 * DAY
        when = language.moment(renews_at) if is_soon else language.date(renews_at)
        said.append(language.say("It starts again: {when}.", when=when))
    if app.ends_at is not None:
        said.append(language.say("It ends on {date}.", date=language.date(app.ends_at)))
    return " ".join(said)
