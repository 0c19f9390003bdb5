"""The apps that an owner has decided on: what they may still spend, those that have ended, and one of them with its
Stop."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from starlette.responses import Response

from payres.clock import DAY
from payres.grants.intervals import Interval
from payres.owner import apps, keys
from payres.owner.apps import App, Budget, Standing
from payres.owner.movements import FOLDED, Movement, Reader, Row
from payres.pages.account import activity
from payres.pages.account.visits import Form, Visit
from payres.pages.grant_words import other_words, spending_sentence
from payres.pages.html import redirect
from payres.pages.language import Language, marked
from payres.routes.context import context_of
from payres.store.accounts import ACCOUNTS
from payres.store.payments import INCOMING
from payres.store.rows import AFTER_ALL
from payres.store.wallets import find_with_wallet
from payres.store.work import Work
from payres.visible import visible_url

TAB: Final = "/account/apps"
NEARLY: Final = 90  # per cent, from which a bar warns
PAYMENTS: Final = 40  # of one app that its page looks at
FEW: Final = 5  # that have ended, below those that have not
# What the windows of a plan are called, by their months and microseconds.
PERIODS: Final = {
    (0, DAY): marked("Day {number} of {times}."),
    (0, 7 * DAY): marked("Week {number} of {times}."),
    (1, 0): marked("Month {number} of {times}."),
    (12, 0): marked("Year {number} of {times}."),
}
# How a grant has ended, or why it has none to end.
ENDS: Final[dict[Standing, str]] = {
    "spends": marked("It may spend"),
    "looks": marked("It may look, and cannot spend"),
    "paid": marked("It has paid what you allowed"),
    "over": marked("Its time is over"),
    "lapsed": marked("You allowed it, and it never began"),
    "stopped": marked("It was stopped"),
    "denied": marked("It was not allowed"),
}


async def show(visit: Visit) -> Response:
    """GET /account/apps."""

    def unit(work: Work) -> dict[str, Any]:
        found = apps.running(work, visit.wallet)
        account = ACCOUNTS.by_id(work, visit.wallet.account_id)
        ended, _ = apps.ended(work, visit.wallet, count=FEW)
        free = account.balance - account.held
        return {"running": found, "ended": ended, "free": free, "names": _names(work, found)}

    values = await visit.read(unit)
    running: Sequence[App] = values["running"]
    found = [app.budget for app in running if app.budget]
    return visit.show(
        "apps.html",
        tab=TAB,
        budgets=found,
        looking=[app for app in running if app.budget is None],
        monthly=sum(one.monthly for one in found if one.monthly is not None),
        uncounted=[one for one in found if one.monthly is None],
        **values,
        **_words(visit.language, context_of(visit.request).urls.wallet(visit.wallet.path)),
    )


async def show_ended(visit: Visit) -> Response:
    """GET /account/apps/ended."""
    before = visit.request.query_params.get("before", AFTER_ALL)
    ended, more = await visit.read(lambda work: apps.ended(work, visit.wallet, before))
    return visit.show("apps_ended.html", tab=TAB, ended=ended, more=more, **_words(visit.language))


async def show_one(visit: Visit) -> Response:
    """GET /account/apps/{grant}."""
    grant_id, language = visit.segments["grant"], visit.language

    def unit(work: Work) -> tuple[App, Sequence[Movement], Mapping[str, str]]:
        app = apps.require_app(work, visit.wallet, grant_id)
        return app, Reader(work, visit.wallet, language.zone).of_grant(grant_id, PAYMENTS), _names(work, [app])

    app, paid, names = await visit.read(unit)
    own = context_of(visit.request).urls.wallet(visit.wallet.path)
    return visit.show(
        "app.html",
        tab=TAB,
        app=app,
        budget=app.budget,
        rows=_rows(language, paid),
        is_cut=len(paid) == PAYMENTS,
        names=names,
        **_words(language, own),
        **activity.words(language),
    )


async def stop(visit: Visit, form: Form) -> Response:
    """Ends the grant, and its key if that is ticked."""
    grant_id, with_key = visit.segments["grant"], form.get("key") == "revoke"

    def unit(work: Work) -> None:
        app = apps.stop(work, visit.wallet, grant_id)
        if with_key and app.who.key:
            keys.revoke(work, visit.wallet, {app.who.key.id})

    await visit.write(unit)
    return redirect(f"{TAB}/{grant_id}")


def _rows(language: Language, paid: Sequence[Movement]) -> Sequence[Row]:
    """The payments, those to one receiver on one day in one row."""

    def alike(one: Movement) -> tuple[object, str]:
        return one.counterpart.wallet_id or one.counterpart.text, language.date(one.time)

    found = [Row(list(those)) for _, those in groupby(paid, alike)]
    return [
        row
        for one in found
        for row in ([one] if len(one.movements) >= FOLDED else [Row([each]) for each in one.movements])
    ]


def _names(work: Work, those: Sequence[App]) -> Mapping[str, str]:
    """What the only receivers of apps are called: the wallet here, or the host of another server, by the URL."""

    def name(url: str) -> str:
        bill_id = work.urls.resource_id("incoming-payments", url)
        found = find_with_wallet(work, INCOMING, bill_id) if bill_id else None
        return found[1].public_name or found[1].path if found else visible_url(url).host

    return {url: name(url) for app in those if app.spending and (url := app.spending.receiver)}


def _words(language: Language, own: str = "") -> dict[str, Any]:
    """What the templates say of apps and budgets; `own` is the reader's wallet address."""
    return {
        "may": lambda spending, names: spending_sentence(language, spending, names.get(spending.receiver)),
        "sees": lambda grant: other_words(language, grant.access, grant.subject, own),
        "end_of": lambda app: language.say(ENDS[app.standing]),
        "window_of": lambda budget: _window(language, budget),
        "share_of": _share,
        "NEARLY": NEARLY,
    }


def _share(budget: Budget) -> int:
    """How much of the limit is spent, in per cent."""
    most = budget.spending.value
    return 100 if most is None else min(100, budget.spent * 100 // most)


def _period(interval: Interval | None) -> str:
    """Which of the windows of a plan it is."""
    months, length = (interval.months, interval.microseconds) if interval else (0, 0)
    return PERIODS.get((months, length), marked("Period {number} of {times}."))


def _window(language: Language, budget: Budget) -> str:
    """When it starts, or starts again, and when it ends."""
    renews_at, ends_at, times = budget.renews_at, budget.ends_at, budget.spending.times
    said = []
    if budget.is_to_come and renews_at is not None:
        said.append(language.say("It starts on {date}.", date=language.date(renews_at)))
    elif budget.window is not None and times is not None and times > 1:
        said.append(language.say(_period(budget.spending.interval), number=budget.window, times=times))
    if renews_at is not None and not budget.is_to_come:
        is_soon = renews_at < language.now + 2 * DAY
        when = language.moment(renews_at) if is_soon else language.date(renews_at)
        said.append(language.say("It starts again: {when}.", when=when))
    if ends_at is not None:
        said.append(language.say("It ends on {date}.", date=language.date(ends_at)))
    return " ".join(said)
