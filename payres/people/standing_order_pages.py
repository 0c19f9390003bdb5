"""The pages of standing orders."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import partial
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import asdict, replace
from starlette.responses import Response

from payres.accounts.visits import Act
from payres.core.grants.spending_limits import Interval, Spending, parse_interval
from payres.core.http.error_answers import note_error
from payres.core.protocol.amounts import Asset
from payres.core.protocol.clock import DAY, EPOCH_ORDINAL, HOUR, LATEST
from payres.core.protocol.errors import DomainError, WrongState
from payres.core.protocol.visible import ShownUrl, visible_url
from payres.core.store.outgoing_payments import OUTGOING
from payres.core.store.quotes import QuoteRecord
from payres.core.store.wallets import WalletRecord
from payres.core.store.work import Work
from payres.html.concurrent_edits import ChangedMeanwhile, Compared, sides_of
from payres.html.forms import Form
from payres.html.html import redirect
from payres.html.language import Language, marked
from payres.html.sentences import problem_of
from payres.html.typed_amounts import Mistyped, typed_amount
from payres.interledger.node import node_of
from payres.people import standing_orders as rules
from payres.people.own_wallets import others, spendable
from payres.people.sending import FAILED, ask_price, find_price, missing_input, problem_with, typed_payee
from payres.people.sign_in import HOME, OwnerVisit
from payres.people.store import standing_orders as store
from payres.people.store.remote_bills import called
from payres.people.store.standing_orders import ORDERS, RUNS, OrderRecord, RunRecord

PATH: Final = "/account/orders"
MORNING: Final = 6 * HOUR  # when a day's payments are due, on the clocks of the owner
FARTHEST: Final = 2 * 366 * DAY  # the first day
LONGEST: Final = 100 * 366 * DAY  # from the first day to the last one
MOST_TIMES: Final = 999
LISTED: Final = 200
RUNS_SHOWN: Final = 24
LATEST_RUNS: Final = 3  # in which lists look for one that was not paid
COMING: Final = 3
DATES: Final = 3
DURATIONS: Final = {
    "P1M": marked("every month"),
    "P1W": marked("every week"),
    "P2W": marked("every 2 weeks"),
    "P3M": marked("every 3 months"),
    "P1Y": marked("every year"),
    "P1D": marked("every day"),
}
# The fields of the form, and the words of those that are chosen.
LABELS: Final = {
    "to": marked("To"),
    "amount": marked("Amount"),
    "fixed": marked("This amount is"),
    "every": marked("How often"),
    "first": marked("First on"),
    "until": marked("Until"),
    "last": marked("The last day"),
    "times": marked("How many times"),
    "note": marked("Note"),
}
# Those of an order, where it differs from the form.
PLAN_LABELS: Final = LABELS | {"payee": LABELS["to"], "ends": LABELS["last"]}
CHOICES: Final = {
    "fixed": {"send": marked("what I spend"), "receive": marked("what they get")},
    "every": DURATIONS,
    "until": {
        "stop": marked("I stop it"),
        "day": marked("a certain day"),
        "times": marked("it was paid a number of times"),
    },
}


class ShownOrder(NamedTuple):
    """An order as its owner reads it: `run` is the last of the latest that was not paid if there is one; `paid` is how
    many are paid, of `times` in all; dates before `paused_until` are left out."""

    order: OrderRecord
    interval: Interval
    address: ShownUrl
    asset: Asset
    run: RunRecord | None
    paid: int
    ends_at: int | None
    paused_until: int | None

    @property
    def who(self) -> str:
        """The name of the payee, or the address."""
        return called(self.order.payee_name, self.order.payee)

    @property
    def times(self) -> int | None:
        """The number of payments in all; None if it goes on until it is stopped."""
        return self.interval.windows_total


def shown(work: Work, wallet: WalletRecord, order: OrderRecord) -> ShownOrder:
    """An order as its owner reads it."""
    schedule, runs = (
        rules.schedule_of(order),
        [_as_it_ended(work, run) for run in store.runs_of(work, order.id, LATEST_RUNS)],
    )
    return ShownOrder(
        order,
        schedule.interval,
        visible_url(order.payee),
        wallet.asset if order.fixed == "send" else order.receive_asset,
        next((run for run in runs if run.problem), None),
        RUNS.count(work, order_id=order.id, state="paid"),
        None if schedule.interval.last is None else schedule.at(schedule.interval.last),
        rules.paused_until(work, order),
    )


def _as_it_ended(work: Work, run: RunRecord) -> RunRecord:
    """The run; one whose payment came back from its way has failed."""
    payment = OUTGOING.by_id(work, run.outgoing_payment_id) if run.outgoing_payment_id else None
    came_back = payment is not None and payment.state == "failed" and not payment.sent
    return replace(run, state="failed", problem=payment.failure) if payment and came_back else run


def coming_up(work: Work, wallet: WalletRecord) -> Sequence[ShownOrder]:
    """What the server has paused, and what is next, the first one first; else what the owner has paused."""
    found = [*store.orders_in_trouble(work, wallet.id, COMING), *store.coming_orders(work, wallet.id, COMING)]
    paused = [one for one in store.orders_of(work, wallet.id, COMING) if not one.is_over]
    return [shown(work, wallet, one) for one in found or paused]


async def show(visit: OwnerVisit) -> Response:
    """GET /account/orders."""

    def unit(work: Work) -> Mapping[str, object]:
        found = [shown(work, visit.wallet, one) for one in store.orders_of(work, visit.wallet.id, LISTED)]
        monthly = [
            Spending(one.order.most, visit.wallet.asset, False, None, one.interval).a_month or 0
            for one in found
            if one.order.state == "active"
        ]
        return {
            # What comes next stands first, and what is paused behind it.
            "going_on": sorted(
                (one for one in found if not one.order.is_over), key=lambda one: one.order.next_at or LATEST
            ),
            "over": [one for one in found if one.order.is_over],
            "free": spendable(work, visit.wallet),
            "monthly": sum(monthly),
            "others": others(work, visit),
        }

    return await visit.show_found("orders.html", unit, HOME)


async def show_one(visit: OwnerVisit, problem: str = "", status: int = 200) -> Response:
    """GET /account/orders/{order}; with `?ask=end` it asks whether to end it."""

    visit, order = await visit.found(partial(rules.find_order, order_id=visit.segments["order"]))

    def unit(work: Work) -> Mapping[str, object]:
        runs = store.runs_of(work, order.id, RUNS_SHOWN)
        paid = [one.outgoing_payment_id for one in runs if one.outgoing_payment_id]
        return {
            "one": shown(work, visit.wallet, order),
            "runs": runs,
            "payments": {one: OUTGOING.by_id(work, one) for one in paid},
        }

    asks = visit.request.query_params.get("ask") == "end"
    return await visit.show_found("order.html", unit, HOME, status, asks=asks, problem=problem)


def _changing(rule: Callable[[Work, WalletRecord, str], None]) -> Act:
    """The action of a form that changes an order by a rule."""

    async def act(visit: OwnerVisit, _: Form) -> Response:
        visit, order = await visit.found(partial(rules.find_order, order_id=visit.segments["order"]))
        await visit.write(lambda work: rule(work, visit.wallet, order.id))
        return redirect(f"{PATH}/{order.id}")

    return act


resume, end = map(_changing, (rules.resume, rules.end))


async def pause(visit: OwnerVisit, form: Form) -> Response:
    """Pauses the order, until a day if one is typed."""
    visit, order = await visit.found(partial(rules.find_order, order_id=visit.segments["order"]))
    until = _typed_day(form["until"]) or 0 if form.get("until") else None
    try:
        await visit.write(lambda work: rules.pause(work, visit.wallet, order.id, until))
    except WrongState as error:
        return await show_one(visit, _refusal(visit.language, error), note_error(visit.request, error).status)
    return redirect(f"{PATH}/{order.id}")


async def show_form(
    visit: OwnerVisit,
    plan: rules.OrderWish | None = None,
    problems: Mapping[str, str] | None = None,
    status: int = 200,
    rows: Sequence[Compared] = (),
) -> Response:
    """GET /account/orders/new: the form, filled in from a link, a payment that was made (`again`, its quote), what was
    looked over (`draft`), or the order to change (`order`)."""
    plan, problems = plan or await visit.read(partial(_begun, visit=visit)), problems or {}
    return visit.show(
        *("order_form.html", status),
        tab=HOME,
        durations=DURATIONS,
        most=MOST_TIMES,
        plan=plan,
        problems=problems,
        rows=rows,
    )


async def show_typed(visit: OwnerVisit, form: Form) -> Response:
    """The form as it was filled in."""
    return await show_form(visit, _typed(form))


def _typed(form: Form) -> rules.OrderWish:
    fields = {one: " ".join(form.get(one, "").split()) for one in rules.OrderWish.__struct_fields__}
    return msgspec.convert(fields | {"fixed": "receive" if fields["fixed"] == "receive" else "send"}, rules.OrderWish)


async def look_over(visit: OwnerVisit, form: Form) -> Response:
    """Asks for the price of one payment, and leads to the page where the order is looked over."""
    plan, payer, payee = _typed(form), visit.wallet, None
    windows, problems = _windows_of(visit.language, plan)
    problems |= missing_input(visit, plan)
    if problems or windows is None:
        return await show_form(visit, plan, problems, FAILED)
    try:
        await visit.read(lambda work: _check_unchanged(work, visit, plan))
        await visit.read(partial(rules.check_room, wallet=payer, replaces=plan.replaces))
        payee = await typed_payee(visit, plan.to)
        if payee.bill is not None:
            once = visit.language.say("This is a bill, and is paid once. Type the address of a wallet.")
            return await show_form(visit, plan, {"to": once}, FAILED)
        value = typed_amount(visit.language, plan.amount, payer.asset if plan.fixed == "send" else payee.asset)
        draft = rules.draft_of(plan, payee, windows, visit.language.zone)
        quote_id = await ask_price(visit, node_of(visit.context).quotes, payer, payee, draft, value, is_plan=True)
    except Mistyped as error:
        return await show_form(visit, plan, {"amount": str(error)}, FAILED)
    except ChangedMeanwhile as error:
        return await _show_both(visit, error)
    except DomainError as error:
        noted = note_error(visit.request, error)
        is_refused = isinstance(noted, WrongState)
        problems = {"": _refusal(visit.language, noted)} if is_refused else {}
        return await show_form(visit, plan, problems or await problem_with(visit, noted, plan, payee), noted.status)
    return redirect(f"{PATH}/new/{quote_id}")


async def set_up(visit: OwnerVisit, _: Form) -> Response:
    """Sets the order up, once, and leads to its page."""
    quote_id = visit.segments["quote"]

    def unit(work: Work) -> str:
        if ORDERS.get(work, quote_id) is None:
            _check_unchanged(work, visit, rules.find_draft(work, visit.wallet, quote_id)[1].plan)
        return rules.set_up(work, visit.wallet, quote_id)

    try:
        order_id = await visit.write(unit)
    except ChangedMeanwhile as error:
        return await _show_both(visit, error)
    except WrongState as error:
        return await show_draft(visit, note_error(visit.request, error))
    return redirect(f"{PATH}/{order_id}")


def _check_unchanged(work: Work, visit: OwnerVisit, plan: rules.OrderWish) -> None:
    """Raises ChangedMeanwhile if the order to change was changed in another window. Orders are never changed, only
    replaced: the id in the form says what it showed."""
    if not plan.replaces:
        return
    old = rules.find_order(work, visit.wallet, plan.replaces)
    new = store.newest_in_place_of(work, old)
    if new.id != old.id and not new.is_over:
        was, now = (asdict(_plan_of(visit.language, shown(work, visit.wallet, one))) for one in (old, new))
        raise ChangedMeanwhile([Compared(name, was[name], now[name], sent) for name, sent in asdict(plan).items()])


async def _show_both(visit: OwnerVisit, error: ChangedMeanwhile) -> Response:
    """The form with what was changed in another window and what was typed in this one."""
    say, values = visit.language.say, error.merged({})
    note_error(visit.request, error)
    plan = msgspec.convert({name: values[name] for name in rules.OrderWish.__struct_fields__}, rules.OrderWish)
    labels = {name: say(label) for name, label in LABELS.items()}
    words = {name: {value: say(label) for value, label in found.items()} for name, found in CHOICES.items()}
    return await show_form(visit, plan, status=error.status, rows=sides_of(error, labels, words))


async def show_draft(visit: OwnerVisit, error: DomainError | None = None) -> Response:
    """GET /account/orders/new/{quote}: what is set up, with its dates and the sum of a year."""

    def unit(work: Work) -> tuple[QuoteRecord, rules.Draft, OrderRecord | None, int]:
        quote, draft = rules.find_draft(work, visit.wallet, visit.segments["quote"])
        replaced = rules.find_order(work, visit.wallet, draft.plan.replaces) if draft.plan.replaces else None
        return quote, draft, replaced, spendable(work, visit.wallet)

    quote, draft, replaced, free = await visit.read(unit)
    orders = [] if replaced is None else [replaced, rules.order_of(visit.wallet, quote, draft, visit.language.now)]
    plans = [rules.plan_of(visit.wallet, one) for one in orders]
    terms, schedule, own = quote.terms, rules.schedule_of(draft), visit.wallet.asset
    most, times, total = rules.most_of(terms, own, draft.fixed), _times(schedule), schedule.interval.windows_total
    dates = [schedule.at(draft.first_window + number) for number in range(DATES)]
    return visit.show(
        "order_draft.html",
        200 if error is None else error.status,
        draft=draft,
        changes=changes_of(visit.language, *plans) if plans else [],
        quote=quote,
        terms=terms,
        free=free,
        every=visit.language.say(DURATIONS[draft.plan.every]),
        most=most,
        is_most=most > terms.debit,
        is_about=terms.path is not None or terms.asset != own,
        times=times,
        is_all=total is not None and total <= times,
        total=total,
        dates=[one for one in dates if one is not None],
        ends_at=None if schedule.interval.last is None else schedule.at(schedule.interval.last),
        address=visible_url(draft.address),
        problem=_refusal(visit.language, error) if error else "",
    )


def changes_of(language: Language, was: rules.OrderPlan, now: rules.OrderPlan) -> Sequence[tuple[str, str, str]]:
    """What of a standing order differs between two plans: what it is, as it was, and as it is."""
    before, after = _plan_words(language, was), _plan_words(language, now)
    differs = [one for one in before if before[one] != after[one] or (one == "payee" and was.to != now.to)]
    return [(language.say(PLAN_LABELS[one]), before[one], after[one]) for one in differs]


def _plan_words(language: Language, plan: rules.OrderPlan) -> dict[str, str]:
    """What the owner has chosen of a standing order."""
    say, asset = language.say, Asset(plan.asset_code, plan.asset_scale)
    return {
        "amount": f"{asset.code} {language.grouped(plan.amount, asset)}",
        "fixed": say("what leaves your wallet") if plan.fixed == "send" else say("what arrives"),
        "payee": f"{plan.payee} ({plan.host})",
        "every": say(DURATIONS[plan.every]),
        "first": language.date(plan.first) if plan.first else say("paused"),
        "ends": say("until {day}", day=language.date(plan.ends)) if plan.ends else say("no last day"),
        "note": f"“{plan.note}”",
    }


def _times(schedule: rules.Schedule) -> int:
    """The number of payments in the first year, or in all if that is less."""
    year_end = Interval(schedule.first, 12, 0, None, None).boundary(1)
    last = replace(schedule.interval, last=None).window_at(year_end - 1)
    assert last is not None, "a year after the first window others have begun"
    in_year = last + 1 - (schedule.interval.first or 0)
    return in_year if schedule.interval.windows_total is None else min(in_year, schedule.interval.windows_total)


def _begun(work: Work, visit: OwnerVisit) -> rules.OrderWish:
    """What the form begins with."""
    given, language = visit.request.query_params, visit.language
    today = rules.wall_time(language.now, language.zone)
    next_month = _day(Interval(today, 1, 0, None, None).boundary(1))
    if "draft" in given:
        return _draft_again(work, visit, given["draft"])
    if "order" in given:
        return _plan_of(language, shown(work, visit.wallet, rules.find_order(work, visit.wallet, given["order"])))
    if "again" in given:
        price = find_price(work, visit.wallet, given["again"])
        wish, terms = price.wish, price.quote.terms
        paid = rules.wall_time(price.quote.created_at, language.zone)
        monthly = Interval(paid, 1, 0, None, None)
        following = monthly.boundary(max(1, 1 + (monthly.window_at(today) or 0)))
        plan = rules.OrderWish(to=wish.address, note=wish.note, first=_day(following), day=_day(paid)[-2:])
        if wish.is_bill:  # whoever made it gets as much again
            return replace(plan, amount=language.decimal(terms.receive, terms.asset), fixed="receive")
        return replace(plan, amount=wish.amount, fixed=wish.fixed)
    return rules.OrderWish(
        to=given.get("to", ""), amount=given.get("amount", ""), note=given.get("note", ""), first=next_month
    )


def _draft_again(work: Work, visit: OwnerVisit, quote_id: str) -> rules.OrderWish:
    """The form of what was looked over; it begins after a date that the order to change has had since then."""
    quote, draft = rules.find_draft(work, visit.wallet, quote_id)
    plan = draft.plan
    if any(run.window_at > quote.created_at for run in store.runs_of(work, plan.replaces, 1)):
        order = rules.find_order(work, visit.wallet, plan.replaces)
        rest = _plan_of(visit.language, shown(work, visit.wallet, order))
        return replace(plan, first=max(plan.first, rest.first))
    return plan


def _plan_of(language: Language, one: ShownOrder) -> rules.OrderWish:
    """The form of an order that is to be changed: the rest of it."""
    order, interval = one.order, one.interval
    following = max(order.next_window, rules.schedule_of(order).latest(language.now) + 1)  # as when it is resumed
    rest = None if interval.last is None else max(1, interval.last + 1 - following)
    first = max(interval.boundary(following), rules.wall_time(language.now, language.zone))
    return rules.OrderWish(
        to=order.payee,
        amount=language.decimal(order.value, one.asset),
        fixed=order.fixed,
        note=order.note,
        every=order.interval.rpartition("/")[2],
        first=_day(first),
        day=_day(interval.anchor)[-2:],
        until="stop" if rest is None else "times",
        times="" if rest is None else str(rest),
        replaces=order.id,
    )


def _day(shown_time: int) -> str:
    """The day of what clocks show, as form fields have it."""
    return date.fromordinal(shown_time // DAY + EPOCH_ORDINAL).isoformat()


def _typed_day(text: str) -> int | None:
    """The beginning of a day, as clocks show it; None if it is no day."""
    try:
        return (date.fromisoformat(text).toordinal() - EPOCH_ORDINAL) * DAY
    except ValueError:
        return None


def _windows_of(language: Language, plan: rules.OrderWish) -> tuple[rules.Windows | None, dict[str, str]]:
    """The windows of the form, and what is wrong with its fields."""
    say, problems = language.say, dict[str, str]()
    today = rules.wall_time(language.now, language.zone) // DAY * DAY
    first = _typed_day(plan.first)
    if plan.every not in DURATIONS:
        problems["every"] = say("Choose one of these.")
    if first is None or not today <= first <= today + FARTHEST:
        problems["first"] = say("Choose today or a later day, within two years.")
    if problems or first is None:
        return None, problems
    times, day = None, int(plan.day) if re.fullmatch("[0-9]{2}", plan.day) else 0
    if plan.until == "times":
        times = int(plan.times) if plan.times.isascii() and plan.times.isdigit() and len(plan.times) < 4 else 0
        if times == 0:
            problems["times"] = say("Type a number from 1 to {most}.", most=MOST_TIMES)
    elif plan.until == "day":
        last = _typed_day(plan.last)
        if last is None or last < first:
            problems["last"] = say("The last day cannot be before the first.")
        elif last > first + LONGEST:
            problems["last"] = say("Choose a day before {day}.", day=language.date(first + LONGEST + DAY // 2))
        else:
            endless, skipped = rules.windows_of(first + MORNING, plan.every, None, day)
            times = (parse_interval(endless).window_at(last + DAY - 1) or skipped) + 1 - skipped
    return rules.windows_of(first + MORNING, plan.every, times or None, day), problems


def _refusal(language: Language, error: DomainError) -> str:
    return (
        f"{language.say(str(error))}."
        if str(error) in {rules.MEANWHILE, rules.NO_PAUSE, rules.OVER, rules.TOO_MANY}
        else problem_of(language, error)
    )
