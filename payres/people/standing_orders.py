"""Standing orders of a wallet's owner: the same amount to the same wallet address, again and again.

A window of the interval begins when clocks of the order's zone show its time, so summer time does not move it. Each
window has at most one run, which changes in the unit that makes its payment: nothing is taken twice. After downtime
only the latest window is paid, if it is not late.
"""

import logging
from calendar import monthrange
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from typing import Final, Literal, NamedTuple

import msgspec
from msgspec.structs import asdict, replace

from payres.accounts.notices import NoticeKind, notify
from payres.core.grants.spending_limits import Interval, parse_interval
from payres.core.protocol.amounts import Asset, Terms, describe_amount, format_decimal
from payres.core.protocol.clock import CORRECTION, DAY, HOUR, SECOND
from payres.core.protocol.errors import DomainError, WrongState, nothing_here
from payres.core.protocol.visible import visible_url
from payres.core.store import audit
from payres.core.store.quotes import QuoteRecord
from payres.core.store.wallets import WALLETS, WalletRecord
from payres.core.store.work import Units, Work
from payres.html.language import marked
from payres.html.preferences import zone_named
from payres.interledger.quoting import RemoteQuotes
from payres.people.limits import MAX_ORDERS_OF_WALLET
from payres.people.payee_lookup import Payee, find_payee
from payres.people.sending import KeptWish, Wish, ask_price, confirm_payment, find_price, kept
from payres.people.store import standing_orders as store
from payres.people.store.standing_orders import ORDERS, RUNS, OrderRecord, OrderState, RunRecord, RunState

PAUSES: Final = (HOUR, 6 * HOUR, DAY)  # before a run is tried again; the last one repeats
NOTICES: Final[Mapping[str, NoticeKind]] = {
    "waiting": "order_waiting",
    "failed": "order_failed",
    "paused": "order_paused",
    "missed": "order_missed",
}
AT_ONCE: Final = 64  # windows or orders, in one unit
ALLOWANCE: Final = 10  # of the price, one part in so many that an order may take more if fees and rates change
OVER: Final = marked("This standing order is over. Set up a new one")
MEANWHILE: Final = marked("A date has passed meanwhile. Change it, and look again")
TOO_MANY: Final = marked("You have as many standing orders as one wallet can have. End one first")
NO_PAUSE: Final = marked("This leaves out no date, or all of them. Choose another day")
LONGEST_MONTH: Final = 31
EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - what clocks show, in whatever zone

log = logging.getLogger("payres.orders")


class NotPaid(Exception):
    """Why an order does not pay what could be paid."""


class OrderWish(Wish, frozen=True, kw_only=True):
    """The owner's input: a Wish, how often, from which day on, and until which day or how many times. `day` is that of
    the month where the first month is too short for it. `replaces` is the id of the order that is changed."""

    every: str = "P1M"
    first: str = ""
    day: str = ""
    until: str = "stop"
    last: str = ""
    times: str = ""
    replaces: str = ""


class Draft(KeptWish, frozen=True, kw_only=True):
    """What is stored with the quote that the owner looks over before an order is set up."""

    plan: OrderWish
    interval: str
    zone: str
    first_window: int = 0


class Schedule(NamedTuple):
    """When the windows of an order begin."""

    interval: Interval
    zone: tzinfo

    def at(self, window: int) -> int | None:
        """When a window begins; None after the last one."""
        if self.interval.last is not None and window > self.interval.last:
            return None
        return self.moment(self.interval.boundary(window))

    def moment(self, shown: int) -> int:
        """When clocks show this."""
        return int((EPOCH + timedelta(microseconds=shown)).replace(tzinfo=self.zone).timestamp()) * SECOND

    def latest(self, now: int) -> int:
        """The latest window that has begun; -1 before the first one."""
        return self.begun(wall_time(now, self.zone))

    def begun(self, shown: int) -> int:
        """The latest window that has begun when clocks show this; -1 before the first one."""
        found = self.interval.window_at(shown)
        if found is not None:
            return found
        return -1 if shown < self.first or self.interval.last is None else self.interval.last

    @property
    def first(self) -> int:
        """What clocks show when the first window begins."""
        return self.interval.boundary(self.interval.first or 0)


def wall_time(moment: int, zone: tzinfo) -> int:
    """What clocks of a zone show, in microseconds as if it were UTC."""
    return (datetime.fromtimestamp(moment // SECOND, zone).replace(tzinfo=None) - EPOCH) // timedelta(microseconds=1)


def schedule_of(order: OrderRecord | Draft) -> Schedule:
    """When the windows of an order begin."""
    return Schedule(replace(parse_interval(order.interval), first=order.first_window), zone_named(order.zone))


def most_of(terms: Terms, own: Asset, fixed: str) -> int:
    """The most that one payment may take: exactly the price where nothing can change it, or else some more."""
    is_exact = fixed == "send" or (terms.asset == own and not terms.fee and terms.path is None)
    return terms.debit if is_exact else terms.debit + -(-terms.debit // ALLOWANCE)


def find_draft(work: Work, wallet: WalletRecord, quote_id: str) -> tuple[QuoteRecord, Draft]:
    """What the owner looks over. Raises NotFound."""
    quote = find_price(work, wallet, quote_id).quote
    try:
        return quote, msgspec.json.decode(quote.wish or "", type=Draft)
    except msgspec.ValidationError as error:  # it is of a single payment
        raise nothing_here() from error


def find_order(work: Work, wallet: WalletRecord, order_id: str) -> OrderRecord:
    """An order of the wallet. Raises NotFound."""
    order = ORDERS.get(work, order_id)
    if order is None or order.wallet_address_id != wallet.id:
        raise nothing_here()
    return order


def check_room(work: Work, wallet: WalletRecord, replaces: str = "") -> None:
    """Raises WrongState if the wallet has too many orders, NotFound, or WrongState if the one to change is over."""
    if replaces and find_order(work, wallet, replaces).is_over:
        raise WrongState(OVER)
    if not replaces and store.going_on(work, wallet.id) >= MAX_ORDERS_OF_WALLET:
        raise WrongState(TOO_MANY)


def set_up(work: Work, wallet: WalletRecord, quote_id: str) -> str:
    """Sets up an order as it was looked over, in place of the one that it changes, and returns its id, which is that of
    the quote: so a second call sets up nothing. Raises NotFound, WrongState."""
    if ORDERS.get(work, quote_id) is not None:
        return find_order(work, wallet, quote_id).id
    quote, draft = find_draft(work, wallet, quote_id)
    check_room(work, wallet, draft.plan.replaces)
    _check_dates(work, quote, draft)
    replaced = find_order(work, wallet, draft.plan.replaces) if draft.plan.replaces else None
    if replaced is not None:
        _stop(work, replaced, "cancelled")
    order = order_of(wallet, quote, draft, work.now)
    ORDERS.insert(work, order)
    data = {"wallet": wallet.path, "order": order.id, **asdict(plan_of(wallet, order))}
    if replaced is None:
        notify(work, wallet.owner_id, "standing_order", **data)
    else:
        notify(work, wallet.owner_id, "standing_order_changed", **data, was=asdict(plan_of(wallet, replaced)))
    leaves, old = describe_amount(order.most, wallet.asset), {"replaces": draft.plan.replaces or None}
    audit.record(work, "order.create", order.id, amount=leaves, to=order.payee, interval=order.interval, **old)
    return order.id


def order_of(wallet: WalletRecord, quote: QuoteRecord, draft: Draft, now: int) -> OrderRecord:
    """The order that a draft is to become."""
    terms, schedule = quote.terms, schedule_of(draft)
    return OrderRecord(
        id=quote.id,
        wallet_address_id=wallet.id,
        payee=draft.address,
        payee_name=draft.name,
        value=terms.debit if draft.fixed == "send" else terms.receive,
        fixed=draft.fixed,
        most=most_of(terms, wallet.asset, draft.fixed),
        receive_code=terms.asset.code,
        receive_scale=terms.asset.scale,
        note=draft.note,
        interval=draft.interval,
        zone=draft.zone,
        state="active",
        first_window=draft.first_window,
        next_window=draft.first_window,
        next_at=schedule.at(draft.first_window),
        created_at=now,
    )


class EachPayment(msgspec.Struct, frozen=True, kw_only=True):
    """What each payment of an order is, as a mail stores it."""

    amount: int
    asset_code: str
    asset_scale: int
    payee: str
    host: str


class OrderPlan(EachPayment, frozen=True, kw_only=True):
    """All that the owner chooses of an order; `first` is null while it is paused."""

    to: str
    fixed: str
    every: str
    note: str
    first: int | None
    ends: int | None


def _payment(wallet: WalletRecord, order: OrderRecord) -> EachPayment:
    asset, host = wallet.asset if order.fixed == "send" else order.receive_asset, visible_url(order.payee).host
    payee = order.payee_name or host
    return EachPayment(amount=order.value, asset_code=asset.code, asset_scale=asset.scale, payee=payee, host=host)


def plan_of(wallet: WalletRecord, order: OrderRecord) -> OrderPlan:
    """What the owner has chosen of an order."""
    schedule = schedule_of(order)
    return OrderPlan(
        **asdict(_payment(wallet, order)),
        to=order.payee,
        fixed=order.fixed,
        every=order.interval.rpartition("/")[2],
        note=order.note,
        first=order.next_at,
        ends=None if schedule.interval.last is None else schedule.at(schedule.interval.last),
    )


def _check_dates(work: Work, quote: QuoteRecord, draft: Draft) -> None:
    """Raises WrongState if a date came after the owner looked: it may just have been paid by the order to change."""
    dates = [
        schedule_of(draft).at(draft.first_window),
        *(run.window_at for run in store.runs_of(work, draft.plan.replaces, 1)),
    ]
    if any(at is not None and quote.created_at < at <= work.now for at in dates):
        raise WrongState(MEANWHILE)


def pause(work: Work, wallet: WalletRecord, order_id: str, until: int | None = None) -> None:
    """Pays nothing until the owner resumes it, or until clocks show a time: the dates before that are left out.

    Raises NotFound, or WrongState if that leaves out none or all.
    """
    order = find_order(work, wallet, order_id)
    if order.state != "active":
        return
    if until is None:
        _stop(work, order, "paused")
    else:
        schedule, waiting, following = schedule_of(order), _waiting(work, order), _following(work, order)
        window = max(following, schedule.begun(until - 1) + 1)
        next_at = schedule.at(window)
        if next_at is None or (window == following and not waiting):
            raise WrongState(NO_PAUSE)
        ORDERS.update(work, order.id, next_window=window, next_at=next_at, paused_until=schedule.moment(until))
        for run in waiting:
            _settle(work, run, "missed", "stopped")
    audit.record(work, "order.pause", order.id)


def is_away(work: Work, order: OrderRecord) -> bool:
    """Whether dates of the order are left out until its next one."""
    return order.state == "active" and order.next_window > _following(work, order)


def paused_until(work: Work, order: OrderRecord) -> int | None:
    """Until when dates of the order are left out, as its owner chose; None if none are."""
    return (order.paused_until or order.next_at) if is_away(work, order) else None


def _following(work: Work, order: OrderRecord) -> int:
    """The window after all that have begun or have a run, which a clock that was ahead may have made."""
    runs = store.runs_of(work, order.id, 1)
    return max(order.first_window, schedule_of(order).latest(work.now) + 1, *(run.window + 1 for run in runs))


def resume(work: Work, wallet: WalletRecord, order_id: str) -> None:
    """Goes on with the next window that begins from now on; those meanwhile are left out. Raises NotFound."""
    order = find_order(work, wallet, order_id)
    if order.state != "paused" and not is_away(work, order):
        return
    window = max(order.next_window if order.state == "paused" else 0, _following(work, order))
    next_at = schedule_of(order).at(window)
    ORDERS.update(work, order.id, state="active", problem=None, next_window=window, next_at=next_at)
    audit.record(work, "order.resume", order.id)
    _end_after_last(work, order.id)


def end(work: Work, wallet: WalletRecord, order_id: str) -> None:
    """Ends an order for good. Raises NotFound."""
    order = find_order(work, wallet, order_id)
    if not order.is_over:
        _stop(work, order, "cancelled")
        audit.record(work, "order.end", order.id)


def reopen(work: Work) -> None:
    """After the clock was ahead: windows that are still to come, or not over, are due again, unless they were paid."""
    for order in store.orders_ahead(work, work.now + CORRECTION, AT_ONCE):
        window = min(store.forget_runs(work, order.id, work.now + CORRECTION), order.next_window)
        ORDERS.update(work, order.id, next_window=window)
        if order.state in {"active", "ended"}:
            next_at = schedule_of(order).at(window)
            ORDERS.update(work, order.id, state="active", ended_at=None, next_at=next_at)


async def try_run(call: Units, remote: RemoteQuotes, order_id: str, window: int) -> None:
    """Pays a run that is due, or notes why not and when it is tried again. What is a fault of payres is raised in the
    first hour, and then delays it like any other failure."""

    def find(work: Work) -> tuple[RunRecord | None, OrderRecord, WalletRecord, int]:
        order = ORDERS.by_id(work, order_id)
        payer = WALLETS.by_id(work, order.wallet_address_id)
        return store.RUNS.find(work, order_id=order_id, window=window), order, payer, work.now

    run, order, payer, now = await call.read(find)
    if run is None or run.state != "waiting":
        return
    if now > run.window_at + store.LATE or run.problem == store.GIVEN_UP:  # late if the server was down meanwhile
        await call.write(partial(_fail, run=run, failure=run.problem or "late"))
        return
    try:
        payee = await find_payee(call, remote, payer, order.payee)
        if payee.asset != order.receive_asset:
            raise NotPaid("other_currency")
        amount = format_decimal(order.value, payer.asset if order.fixed == "send" else payee.asset)
        wish = kept(Wish(to=order.payee, amount=amount, fixed=order.fixed, note=order.note), payee)
        quote_id = await ask_price(call, remote, payer, payee, wish, order.value)
        await call.write(partial(pay, run=run, quote_id=quote_id))
    except NotPaid as error:
        failure = str(error)
    except DomainError as error:
        failure = str(error.details.get("reason", error.code))
    except Exception:
        if now < run.window_at + HOUR:
            raise
        log.exception("a payment of standing order %s failed; it is tried again", order_id)
        failure = "internal_error"
    else:
        return
    await call.write(partial(put_off, run=run, failure=failure))


def pay(work: Work, run: RunRecord, quote_id: str) -> None:
    """Pays a quote for a run, once; nothing if the run or its order has ended meanwhile.

    Raises NotPaid, and what confirm_payment raises; InvalidRequest if a wallet is inactive.
    """
    order, is_open = _open(work, run)
    if is_open and order.next_at is not None and order.next_at <= work.now:
        begin_window(work, order.id)  # the run had time until now
        return
    if not is_open:
        return
    wallet = WALLETS.by_id(work, order.wallet_address_id)
    if find_price(work, wallet, quote_id).quote.terms.debit > order.most:
        raise NotPaid("too_dear")
    _settle(work, _tried(run), "paid", payment_id=confirm_payment(work, wallet, quote_id))


def put_off(work: Work, run: RunRecord, failure: str) -> None:
    """Notes why a run could not be paid: it is tried again, fails when it is late, or pauses the order."""
    order, is_open = _open(work, run)
    if not is_open:
        return
    until = run.window_at + store.LATE
    if failure in store.LASTING:
        ORDERS.update(work, order.id, state="paused", problem=failure, next_at=None)
        _settle(work, _tried(run), "failed", failure)
    elif work.now >= until:
        _settle(work, _tried(run), "failed", failure)
    else:
        again = min(work.now + PAUSES[min(run.attempts, len(PAUSES) - 1)], until)
        tried = replace(_tried(run), problem=failure, retry_at=again)
        store.change_run(work, tried)
        if not run.attempts:
            _notify_owner(work, order, tried)


def _fail(work: Work, run: RunRecord, failure: str) -> None:
    if _open(work, run)[1]:
        _settle(work, run, "failed", failure)


def _tried(run: RunRecord) -> RunRecord:
    return replace(run, attempts=run.attempts + 1)


def _open(work: Work, run: RunRecord) -> tuple[OrderRecord, bool]:
    """The order, and whether it is still to pay this run."""
    order, found = ORDERS.by_id(work, run.order_id), store.RUNS.find(work, order_id=run.order_id, window=run.window)
    return order, order.state == "active" and found is not None and found.state == "waiting"


def begin_window(work: Work, order_id: str) -> None:
    """Begins a run for the latest window of an order that is due; earlier ones are missed."""
    order = ORDERS.by_id(work, order_id)
    if order.next_at is None or order.next_at > work.now:
        return
    schedule = schedule_of(order)
    latest = schedule.latest(work.now)
    end_of_batch = min(latest + 1, order.next_window + AT_ONCE)
    for run in _waiting(work, order):  # it had time until the next window
        _settle(work, run, "failed", run.problem or "late")
    for window in range(order.next_window, end_of_batch):
        if store.RUNS.find(work, order_id=order.id, window=window) is not None:  # it was paid while the clock was ahead
            continue
        at = schedule.at(window)
        assert at is not None, "the latest window is not after the last one"
        is_late = window < latest or work.now - at > store.LATE
        problem = "restored" if at < order.not_before else "late" if is_late else None
        run = RunRecord(order.id, window, at, "waiting", retry_at=work.now)
        RUNS.insert(work, run)
        if problem:
            _settle(work, run, "missed", problem)
    following = max(end_of_batch, order.next_window)
    next_at = schedule.at(following)
    if following > latest and next_at is not None and next_at <= work.now:  # the rules of the zone have changed
        next_at = work.now + HOUR
    ORDERS.update(work, order.id, next_window=following, next_at=next_at)
    work.changed.append(store.TRIES.changed)
    _end_after_last(work, order.id)


def _waiting(work: Work, order: OrderRecord) -> Sequence[RunRecord]:
    """The run that is still to be paid, if there is one: the newest."""
    return [run for run in store.runs_of(work, order.id, 1) if run.state == "waiting"]


def _stop(work: Work, order: OrderRecord, state: OrderState) -> None:
    """Pauses or cancels an order; a payment that is still waiting is not made."""
    ended_at = None if state == "paused" else work.now
    ORDERS.update(work, order.id, state=state, problem=None, next_at=None, ended_at=ended_at)
    for run in _waiting(work, order):
        _settle(work, run, "missed", "stopped")


def _settle(
    work: Work, run: RunRecord, state: RunState, problem: str | None = None, payment_id: str | None = None
) -> None:
    """Ends a run. Every one that is not paid passes here once, with the reason of the notice to its owner."""
    ended = replace(run, state=state, outgoing_payment_id=payment_id, problem=problem, retry_at=None)
    store.change_run(work, ended)
    if state != "paid" and problem != "stopped":
        _notify_owner(work, ORDERS.by_id(work, run.order_id), ended)
    _end_after_last(work, run.order_id)


def _notify_owner(work: Work, order: OrderRecord, run: RunRecord) -> None:
    """Tells the owner by mail, once a day: after a long pause, many windows are missed together."""
    wallet = WALLETS.by_id(work, order.wallet_address_id)
    kind = NOTICES["paused" if order.state == "paused" else run.state]
    schedule, data = schedule_of(order), asdict(_payment(wallet, order))
    following = schedule.at(max(order.next_window, schedule.latest(work.now) + 1)) if order.state == "active" else None
    data |= {"problem": run.problem, "day": run.window_at, "again": run.retry_at, "next": following}
    data |= {"until": run.window_at + store.LATE}
    key = f"{kind}:{order.id}:{work.now // DAY}"
    notify(work, wallet.owner_id, kind, key=key, wallet=wallet.path, **data)


def _end_after_last(work: Work, order_id: str) -> None:
    """Ends an order whose last window is over."""
    order = ORDERS.by_id(work, order_id)
    if order.state == "active" and schedule_of(order).at(order.next_window) is None and not _waiting(work, order):
        ORDERS.update(work, order_id, state="ended", next_at=None, ended_at=work.now)


class Windows(NamedTuple):
    """The interval of an order as text, and its first window."""

    interval: str
    first_window: int


def windows_of(first: int, every: str, times: int | None, day: int = 0) -> Windows:
    """The windows of the duration `every`, the first of which begins when clocks show `first`.

    Where its month is too short for the `day` of the month, the interval starts in an earlier month that has it, so
    that later windows begin on that day again.
    """
    start, skipped = datetime.fromtimestamp(first // SECOND, UTC), 0
    months = parse_interval(_interval_text("", start, every)).months
    if months and start.day == monthrange(start.year, start.month)[1] < day <= LONGEST_MONTH:
        while monthrange(start.year, start.month)[1] < day:
            year, month = divmod(start.year * 12 + start.month - 1 - months, 12)
            start, skipped = start.replace(year, month + 1, 1), skipped + 1
        start = start.replace(day=day)
    return Windows(_interval_text("" if times is None else skipped + times - 1, start, every), skipped)


def _interval_text(repetitions: int | Literal[""], start: datetime, every: str) -> str:
    return f"R{repetitions}/{start:%Y-%m-%dT%H:%M:%SZ}/{every}"


def draft_of(plan: OrderWish, payee: Payee, windows: Windows, zone: tzinfo) -> Draft:
    """The input, with its payee, to be stored with the quote."""
    wish = Wish(to=plan.to, amount=plan.amount, fixed=plan.fixed, note=plan.note)
    return Draft(**asdict(kept(wish, payee)), plan=plan, zone=str(zone), **windows._asdict())
