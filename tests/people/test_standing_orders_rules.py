"""When standing orders pay, and that each date is paid once at most, whatever dies or jumps."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from datetime import datetime
from functools import partial
from typing import Any, cast
from zoneinfo import ZoneInfo

import pytest

from payres.accounts.store import mail
from payres.accounts.store.mail import ADDRESSES, MAILS, AddressRecord
from payres.core.protocol.clock import DAY, HOUR, SECOND
from payres.core.protocol.errors import NotFound, WrongState
from payres.core.store import connections
from payres.core.store.rows import number
from payres.core.store.wallets import require_wallet
from payres.core.store.work import Work
from payres.interledger.quoting import RemoteQuotes
from payres.operator import assets, wallets
from payres.operator.store.restored_rights import end_by_restore
from payres.operator.upkeep import invariant_checks
from payres.people import standing_orders as rules
from payres.people.limits import MAX_ORDERS_OF_WALLET
from payres.people.notice_texts import message_of
from payres.people.payee_lookup import find_payee
from payres.people.sending import ask_price
from payres.people.standing_orders import OrderWish
from payres.people.store import standing_orders as store
from payres.people.store.standing_orders import ORDERS, OrderRecord, RunRecord
from tests.people.mail_server import text_of
from tests.works import InSteps, Killed, in_steps, savepoint, work_at

NO_REMOTE = cast("RemoteQuotes", None)  # nobody is on another server
VALUE = 1000


def at(text: str, zone: str = "UTC") -> int:
    """A moment, as clocks of a zone show it."""
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * SECOND


class Books:
    """A database with wallets of alice and bob, a clock, and a server that is killed at will."""

    def __init__(self, connection: Any, now: int) -> None:
        self.connection = connection
        self.now = now
        self.dies_at = 0

        def furnish(work: Work) -> None:
            for path in ("alice", "bob"):
                wallets.create_wallet(work, path, "USD", 2, path.capitalize(), None)
            wallets.deposit(work, "alice", "100000.00")

        self.run(furnish)

    def run(self, unit: Callable[[Work], Any]) -> Any:
        """A unit of work; its process dies at the statement with the number `dies_at`, which undoes the unit."""
        work, ran = work_at(self.connection, self.now), 0
        execute = work.execute

        def counted(*values: Any) -> Any:
            nonlocal ran
            ran += 1
            if ran == self.dies_at:
                raise Killed
            return execute(*values)

        with savepoint(self.connection):
            work.execute = counted
            return unit(work)

    def wallet(self, path: str = "alice") -> Any:
        return self.run(lambda work: require_wallet(work, path))

    def set_up(self, first: str, every: str = "P1M", times: int | None = None, **given: Any) -> str:
        """A new order of ten dollars to bob, the first of which is due at a time of the day, and its id."""
        zone = ZoneInfo(given.pop("zone", "UTC"))
        windows = rules.windows_of(at(first), every, times, given.pop("day", 0))
        wish, units = OrderWish(to="bob", amount="10", every=every, **given), InSteps(self.run)
        payee = in_steps(find_payee, units, NO_REMOTE, self.wallet(), "http://127.0.0.1:8080/bob")
        draft = rules.draft_of(wish, payee, windows, zone)
        quote = in_steps(ask_price, units, NO_REMOTE, self.wallet(), payee, draft, VALUE, is_plan=True)
        made: str = self.run(lambda work: rules.set_up(work, self.wallet(), quote))
        return made

    def change(self, rule: Callable[..., None], order_id: str, path: str = "alice") -> None:
        """What the owner of a wallet does with an order."""
        self.run(partial(rule, wallet=self.wallet(path), order_id=order_id))

    def step_and_die(self, dies_at: int, most: int = 1 << 30) -> None:
        """The same, and a unit may die in the middle."""
        self.dies_at = dies_at
        with suppress(Killed):
            self.step(most)
        self.dies_at = 0

    def step(self, most: int = 1 << 30) -> None:
        """What the worker does when it looks; the process dies before a unit that writes after so many."""
        self.run(self.begin)
        due = "SELECT order_id, window FROM standing_order_run WHERE retry_at <= ?"
        for order_id, window in self.connection.execute(due, (self.now,)).fetchall():
            in_steps(rules.try_run, InSteps(self.run, most), NO_REMOTE, order_id, window)

    def begin(self, work: Work) -> None:
        """Begins what is due."""
        for (order_id,) in work.execute("SELECT id FROM standing_order WHERE next_at <= ?", (work.now,)).fetchall():
            rules.begin_window(work, order_id)

    def until(self, moment: int, pause: int = HOUR // 2) -> None:
        """Time goes on, and the worker looks again and again."""
        while self.now < moment:
            self.now = min(self.now + pause, moment)
            self.step()

    def order(self, order_id: str) -> OrderRecord:
        return ORDERS.by_id(self.connection, order_id)

    def runs(self, order_id: str) -> Sequence[RunRecord]:
        return store.runs_of(self.connection, order_id, 1000)[::-1]

    def states(self, order_id: str) -> dict[int, str]:
        return {one.window: one.state for one in self.runs(order_id)}

    @property
    def paid(self) -> int:
        """How many payments were made."""
        return number(self.connection, "SELECT count(*) FROM outgoing_payment")

    def check(self) -> None:
        broken = invariant_checks.first_broken(invariant_checks.check(work_at(self.connection, self.now)))
        assert broken is None, broken


@pytest.fixture
def books() -> Iterator[Books]:
    with closing(connections.connect_writer(":memory:")) as connection:
        found = Books(connection, at("2027-01-10T12:00"))
        yield found
        found.check()


def test_31_january_is_followed_by_28_february_at_the_same_time_of_the_day(books: Books) -> None:
    order = books.set_up("2027-01-31T06:00", zone="Europe/Berlin")
    due = [books.order(order).next_at]
    for _ in range(3):
        books.now = due[-1] or 0
        books.step()
        due.append(books.order(order).next_at)
    days = ("2027-01-31", "2027-02-28", "2027-03-31", "2027-04-30")  # summer time begins on 28 March
    assert due == [at(f"{day}T06:00", "Europe/Berlin") for day in days]
    assert due[1] == at("2027-02-28T05:00")
    assert due[2] == at("2027-03-31T04:00")
    assert books.states(order) == dict.fromkeys(range(3), "paid")
    assert books.paid == 3


@pytest.mark.parametrize(
    ("first", "every", "day", "days"),
    [
        ("2027-02-28", "P1M", 31, ("2027-02-28", "2027-03-31", "2027-04-30")),
        ("2027-02-28", "P1M", 30, ("2027-02-28", "2027-03-30", "2027-04-30")),
        ("2027-02-28", "P1M", 0, ("2027-02-28", "2027-03-28", "2027-04-28")),
        ("2027-04-30", "P3M", 31, ("2027-04-30", "2027-07-31", "2027-10-31")),
        ("2027-02-28", "P3M", 31, ("2027-02-28", "2027-05-31", "2027-08-31")),
        ("2027-02-28", "P1Y", 29, ("2027-02-28", "2028-02-29", "2029-02-28")),
        # Another day was chosen, or no month has such a day.
        ("2027-02-15", "P1M", 31, ("2027-02-15", "2027-03-15", "2027-04-15")),
        ("2027-02-28", "P1M", 99, ("2027-02-28", "2027-03-28", "2027-04-28")),
        ("2027-02-28", "P1W", 31, ("2027-02-28", "2027-03-07", "2027-03-14")),
    ],
)
def test_day_of_the_month_is_that_of_the_order(
    books: Books, first: str, every: str, day: int, days: Sequence[str]
) -> None:
    order = books.set_up(f"{first}T06:00", every, len(days), day=day)
    for number_paid, expected in enumerate(days, 1):
        assert books.order(order).next_at == at(f"{expected}T06:00")
        books.step()
        assert books.paid == number_paid - 1, "not before its date"
        books.now = at(f"{expected}T06:00")
        books.step()
        assert books.paid == number_paid
    assert books.order(order).state == "ended"


@pytest.mark.parametrize(("late", "state"), [(3 * DAY, "paid"), (3 * DAY + 1, "missed"), (28 * DAY, "missed")])
def test_what_is_more_than_three_days_late_is_not_paid(books: Books, late: int, state: str) -> None:
    order = books.set_up("2027-01-11T06:00")
    books.now = at("2027-01-11T06:00") + late
    books.step()
    assert books.states(order) == {0: state}
    assert books.paid == (state == "paid")
    assert books.order(order).next_at == at("2027-02-11T06:00")


def test_years_of_downtime_are_told_a_few_at_a_time(books: Books) -> None:
    order = books.set_up("2027-01-11T06:00", "P1D")
    books.now = at("2027-01-11T06:00") + 200 * DAY
    books.step()
    assert len(books.runs(order)) == rules.AT_ONCE
    for _ in range(3):
        books.step()
    assert books.states(order) == dict.fromkeys(range(200), "missed") | {200: "paid"}


@pytest.mark.parametrize("every", ["P1D", "P1M"])
def test_clock_that_goes_six_weeks_back_pays_nothing_again(books: Books, every: str) -> None:
    order = books.set_up("2027-01-11T06:00", every)
    books.until(at("2027-03-01T12:00"), DAY)
    before, paid, next_at = books.states(order), books.paid, books.order(order).next_at
    books.now -= 42 * DAY
    books.until(at("2027-03-01T12:00"))
    assert (books.states(order), books.paid, books.order(order).next_at) == (before, paid, next_at)
    books.until(at("2027-04-01T12:00"), DAY)
    assert books.paid > paid


def told_by_mail(work: Work) -> None:
    """Mail is on, and alice has an address."""
    mail.turn(work, on=True)
    owner_id = require_wallet(work, "alice").owner_id
    ADDRESSES.replace(work, AddressRecord(owner_id, "alice@mail.example", work.now, "en", "UTC"))


def test_low_balance_is_tried_for_three_days_and_then_fails(books: Books) -> None:
    order = books.set_up("2027-01-11T06:00")
    books.run(told_by_mail)
    books.run(lambda work: wallets.withdraw(work, "alice", "99990.01"))
    due, tried = at("2027-01-11T06:00"), []
    for _ in range(6):
        [run] = books.runs(order) or [RunRecord(order, 0, due, "waiting", retry_at=due)]
        tried.append(((run.retry_at or 0) - due) // HOUR)
        books.now = run.retry_at or 0
        books.step()
    assert tried == [0, 1, 7, 31, 55, 72]
    [run] = books.runs(order)
    assert (run.state, run.problem, run.attempts, run.retry_at) == ("failed", "wallet", 6, None)
    told = books.run(lambda work: work.execute("SELECT kind FROM mail ORDER BY id").fetchall())
    assert told == [("order_waiting",), ("order_failed",)]
    assert (books.order(order).state, books.paid) == ("active", 0)
    books.run(lambda work: wallets.deposit(work, "alice", "50.00"))
    books.until(at("2027-02-12T06:00"), DAY)
    assert books.states(order) == {0: "failed", 1: "paid"}


def test_payment_that_waited_when_the_server_went_down_is_not_made_late(books: Books) -> None:
    order = books.set_up("2027-01-11T06:00")
    books.run(lambda work: wallets.withdraw(work, "alice", "99990.01"))
    books.until(at("2027-01-11T09:00"))
    books.run(lambda work: wallets.deposit(work, "alice", "50.00"))
    books.now += 10 * DAY
    books.step()
    assert (books.states(order), books.runs(order)[0].problem, books.paid) == ({0: "failed"}, "wallet", 0)


def test_next_date_ends_the_tries_of_the_one_before(books: Books) -> None:
    order = books.set_up("2027-01-11T06:00", "P1D")
    books.run(lambda work: wallets.withdraw(work, "alice", "99990.01"))
    books.until(at("2027-01-13T07:30"))
    assert books.states(order) == {0: "failed", 1: "failed", 2: "waiting"}
    books.run(lambda work: wallets.deposit(work, "alice", "500.00"))
    books.until(at("2027-01-13T16:00"))
    assert (books.states(order)[2], books.paid) == ("paid", 1), "it does not catch up"


def test_receiver_that_is_gone_pauses_the_order(books: Books) -> None:
    order = books.set_up("2027-01-11T06:00", "P1D")
    books.run(lambda work: wallets.deactivate(work, "bob"))
    books.until(at("2027-01-13T12:00"))
    assert books.states(order) == {0: "failed"}
    assert (books.order(order).state, books.order(order).problem) == ("paused", "no_wallet")
    books.run(lambda work: wallets.activate(work, "bob"))
    books.change(rules.resume, order)
    assert books.order(order).problem is None
    books.until(at("2027-01-14T12:00"))
    assert books.states(order) == {0: "failed", 3: "paid"}, "dates meanwhile are left out"


def test_closed_wallet_of_the_payer_pauses_the_order(books: Books) -> None:
    order = books.set_up("2027-01-11T06:00")
    books.run(lambda work: wallets.deactivate(work, "alice"))
    books.until(at("2027-01-11T12:00"))
    assert (books.order(order).state, books.order(order).problem) == ("paused", "invalid_request")


def test_receiver_with_another_currency_pauses_the_order(books: Books) -> None:
    order = books.set_up("2027-01-11T06:00")
    ORDERS.update(books.connection, order, receive_code="EUR")
    books.until(at("2027-01-11T12:00"))
    assert (books.order(order).problem, books.paid) == ("other_currency", 0)


@pytest.mark.parametrize(("fee", "paid", "problem"), [("0.00", 1, None), ("0.80", 1, None), ("1.61", 0, "too_dear")])
def test_price_may_rise_a_tenth_where_fees_are(books: Books, fee: str, paid: int, problem: str | None) -> None:
    books.run(lambda work: assets.set_fee(work, "USD", 2, "0.50", 0))
    order = books.set_up("2027-01-11T06:00", fixed="receive")
    assert books.order(order).most == 1155
    books.run(lambda work: assets.set_fee(work, "USD", 2, fee, 0))
    books.until(at("2027-01-11T06:30"))
    assert (books.paid, books.runs(order)[0].problem) == (paid, problem)


def test_amount_that_arrives_is_exact_where_nothing_changes_the_price(books: Books) -> None:
    order = books.set_up("2027-01-11T06:00", fixed="receive")
    assert books.order(order).most == VALUE
    books.run(lambda work: assets.set_fee(work, "USD", 2, "0.01", 0))
    books.until(at("2027-01-11T06:30"))
    assert books.runs(order)[0].problem == "too_dear"


@pytest.mark.parametrize("change", [rules.pause, rules.end])
def test_stopped_between_price_and_payment_pays_nothing(books: Books, change: Callable[..., None]) -> None:
    order = books.set_up("2027-01-11T06:00")
    books.now = at("2027-01-11T06:00")
    with suppress(Killed):
        books.step(1)  # the price is asked for
    [run] = books.runs(order)
    quotes = "SELECT max(id) FROM quote"
    [quote] = books.connection.execute(quotes).fetchone()
    books.change(change, order)
    books.run(lambda work: rules.pay(work, run, quote))
    books.run(lambda work: rules.put_off(work, run, "wallet"))
    books.until(at("2027-01-13T06:00"))
    assert (books.paid, books.states(order)) == (0, {0: "missed"})
    assert books.runs(order)[0].problem == "stopped"


def test_price_that_is_paid_twice_takes_once(books: Books) -> None:
    order = books.set_up("2027-01-11T06:00")
    books.now = at("2027-01-11T06:00")
    with suppress(Killed):
        books.step(1)
    [run], [first] = books.runs(order), books.connection.execute("SELECT max(id) FROM quote").fetchone()
    with suppress(Killed):
        books.step(1)
    [second] = books.connection.execute("SELECT max(id) FROM quote").fetchone()
    for quote in (first, first, second):
        books.run(partial(rules.pay, run=run, quote_id=quote))
    assert (books.paid, books.states(order)) == (1, {0: "paid"})


def test_death_at_each_statement_of_a_payment_pays_once(books: Books) -> None:
    order, deaths = books.set_up("2027-01-11T06:00", "P1D", 1), 0
    books.now = at("2027-01-11T06:00")
    while books.order(order).state == "active":
        deaths += 1
        books.step_and_die(deaths)
        assert books.paid == sum(one.state == "paid" for one in books.runs(order))
        books.check()
    assert deaths > 20
    assert (books.states(order), books.paid) == ({0: "paid"}, 1)


def test_last_date_that_waits_keeps_the_order_until_it_fails(books: Books) -> None:
    order = books.set_up("2027-01-11T06:00", times=1)
    books.run(lambda work: wallets.withdraw(work, "alice", "99999.00"))
    books.until(at("2027-01-14T05:30"))
    assert (books.order(order).state, books.states(order)) == ("active", {0: "waiting"})
    books.until(at("2027-01-14T06:00"))
    assert (books.order(order).state, books.states(order)) == ("ended", {0: "failed"})


def test_paused_until_after_the_last_date_ends(books: Books) -> None:
    order = books.set_up("2027-01-11T06:00", "P1D", 2)
    books.change(rules.pause, order)
    books.until(at("2027-01-20T12:00"), DAY)
    books.change(rules.resume, order)
    assert (books.order(order).state, books.states(order)) == ("ended", {})


def test_holiday_leaves_out_the_dates_before_a_day(books: Books) -> None:
    order = books.set_up("2027-01-11T06:00", "P1D", 9, zone="Europe/Berlin")
    books.until(at("2027-01-11T12:00"))
    for day, is_away in (("2027-01-14", True), ("2027-01-13", True)):
        books.change(partial(rules.pause, until=at(f"{day}T00:00")), order)
        assert books.run(lambda work: rules.is_away(work, books.order(order))) is is_away
    books.until(at("2027-01-15T12:00"))
    assert books.states(order) == {0: "paid", 2: "paid", 3: "paid", 4: "paid"}
    books.change(partial(rules.pause, until=at("2027-01-19T06:00")), order)
    books.change(rules.resume, order)
    for day in ("2027-01-16", "2027-01-20"):  # no date before the one, none after the other
        with pytest.raises(WrongState):
            books.change(partial(rules.pause, until=at(f"{day}T00:00")), order)
    books.until(at("2027-01-20T12:00"))
    assert books.states(order) == dict.fromkeys((0, *range(2, 9)), "paid")


def test_payment_that_waits_is_left_out_by_a_holiday(books: Books) -> None:
    order = books.set_up("2027-01-11T06:00")
    books.run(lambda work: wallets.withdraw(work, "alice", "99995.00"))
    books.until(at("2027-01-11T12:00"))
    assert books.states(order) == {0: "waiting"}
    books.change(partial(rules.pause, until=at("2027-01-12T00:00")), order)
    assert books.states(order) == {0: "missed"}
    assert books.order(order).next_at == at("2027-02-11T06:00")


def test_setting_up_twice_makes_one_and_a_change_replaces_the_first(books: Books) -> None:
    first = books.set_up("2027-01-11T06:00")
    books.run(told_by_mail)
    assert books.run(lambda work: rules.set_up(work, books.wallet(), first)) == first
    second = books.set_up("2027-02-11T06:00", "P1W", times=3, replaces=first)
    [told] = books.run(lambda work: [message_of(work, one) for one in MAILS.list(work, "")])
    assert told["Subject"] == "A standing order was changed: USD 10.00 to Bob"
    changes = "11 January 2027 → 11 February 2027; no last day → until 25 February 2027"
    assert f"Changed: every month → every week; {changes}" in " ".join(text_of(told).split())
    assert [books.order(one).state for one in (first, second)] == ["cancelled", "active"]
    with pytest.raises(WrongState, match="over"):
        books.set_up("2027-02-11T06:00", replaces=first)
    for change in (rules.pause, rules.resume, rules.end):
        books.change(change, first)
        with pytest.raises(NotFound):
            books.change(change, second, "bob")
    assert books.order(first).state == "cancelled"
    books.until(at("2027-02-12T06:00"), DAY)
    assert (books.states(first), books.states(second), books.paid) == ({}, {0: "paid"}, 1)


def test_order_that_is_changed_while_it_is_paused_cannot_go_on(books: Books) -> None:
    paused = books.set_up("2027-01-11T06:00")
    books.change(rules.pause, paused)
    books.set_up("2027-01-11T06:00", replaces=paused)
    books.change(rules.resume, paused)
    books.until(at("2027-01-11T06:30"))
    assert (books.order(paused).state, books.paid) == ("cancelled", 1)


def test_wallet_has_so_many_orders_and_no_more(books: Books) -> None:
    made = [books.set_up("2027-01-11T06:00") for _ in range(MAX_ORDERS_OF_WALLET)]
    with pytest.raises(WrongState, match="as many"):
        books.set_up("2027-01-11T06:00")
    books.set_up("2027-01-11T06:00", replaces=made[0])


@pytest.mark.parametrize("times", [None, 4])
def test_dates_that_a_clock_ahead_began_are_due_again_unless_paid(books: Books, times: int | None) -> None:
    order = books.set_up("2027-01-11T06:00", "P1D", times=times)
    stopped = books.set_up("2027-01-11T06:00", "P1D")
    books.until(at("2027-01-11T06:30"))
    books.now += 3 * DAY
    books.step()
    assert books.states(order) == {0: "paid", 1: "missed", 2: "missed", 3: "paid"}
    books.change(rules.end, stopped)
    books.now -= 3 * DAY - HOUR
    books.run(rules.reopen)
    books.check()
    assert not store.orders_ahead(books.connection, books.now, 9), "those that have ended stay as they are"
    assert (books.order(order).state, books.states(order)) == ("active", {0: "paid", 3: "paid"})
    assert books.order(order).next_at == at("2027-01-12T06:00")
    books.until(at("2027-01-14T20:00"))
    assert books.states(order) == dict.fromkeys(range(4), "paid")
    assert books.paid == 4 + 2
    assert books.order(order).state == ("active" if times is None else "ended")


@pytest.mark.parametrize(
    ("every", "balance", "ahead", "after"),
    [
        ("P1D", "100000.00", {0: "missed", 1: "missed", 2: "missed", 3: "missed", 4: "paid"}, {0: "paid", 4: "paid"}),
        ("P1M", "100000.00", {0: "missed"}, {0: "paid"}),
        ("P1D", "9.99", {0: "failed", 1: "missed", 2: "missed", 3: "missed", 4: "waiting"}, {0: "waiting"}),
        ("P1M", "9.99", {0: "failed"}, {0: "waiting"}),
    ],
)
def test_date_that_a_clock_ahead_gave_up_is_tried_again(
    books: Books, every: str, balance: str, ahead: Mapping[int, str], after: Mapping[int, str]
) -> None:
    order = books.set_up("2027-01-11T06:00", every)
    if balance == "9.99":
        books.run(lambda work: wallets.withdraw(work, "alice", "99990.01"))
        books.until(at("2027-01-11T06:30"))
    books.now = at("2027-01-15T06:30")
    books.step()
    assert books.states(order) == ahead
    books.now = at("2027-01-11T07:00")
    books.run(rules.reopen)
    books.step()
    assert books.states(order) == after
    assert not store.orders_ahead(books.connection, books.now, 9)


def test_date_that_was_given_up_while_the_clock_was_right_is_not_tried_again(books: Books) -> None:
    stopped, given_up, gone = (books.set_up("2027-01-11T06:00") for _ in range(3))
    daily = books.set_up("2027-01-10T13:00", "P1D")
    books.run(lambda work: wallets.withdraw(work, "alice", "99990.01"))
    books.until(at("2027-01-11T06:30"))
    books.change(rules.pause, stopped)
    books.run(lambda work: store.give_up_run(work, given_up, 0, work.now))
    books.run(lambda work: wallets.deactivate(work, "bob"))
    books.until(at("2027-01-11T14:00"))
    books.run(lambda work: wallets.activate(work, "bob"))
    for paused in (stopped, gone):
        books.change(rules.resume, paused)
    problems = [books.runs(one)[0].problem for one in (stopped, given_up, gone, daily)]
    assert problems == ["stopped", store.GIVEN_UP, "no_wallet", "wallet"]
    assert not store.orders_ahead(books.connection, books.now, 9)


def test_run_that_is_tried_when_the_next_date_has_come_is_not_paid(books: Books) -> None:
    order = books.set_up("2027-01-11T06:00", "P1D")
    books.now = at("2027-01-11T06:00")
    books.run(books.begin)
    books.now = at("2027-01-12T06:00")
    in_steps(rules.try_run, InSteps(books.run), NO_REMOTE, order, 0)
    assert books.states(order) == {0: "failed", 1: "waiting"}
    books.step()
    assert books.states(order) == {0: "failed", 1: "paid"}


def test_fault_of_payres_is_told_to_the_owner_after_an_hour(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    order = books.set_up("2027-01-11T06:00", "P1D")
    books.now = at("2027-01-11T06:00")
    monkeypatch.setattr(rules, "find_payee", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        books.step()
    assert books.runs(order)[0].problem is None
    books.now += HOUR
    books.step()
    assert (books.runs(order)[0].problem, books.runs(order)[0].retry_at) == ("internal_error", books.now + HOUR)
    monkeypatch.undo()
    books.now += HOUR
    books.step()
    assert books.states(order) == {0: "paid"}


def test_what_was_paid_after_the_backup_is_not_paid_again(books: Books) -> None:
    """The payment is lost with the state that the restore replaced; it may have left for another server."""
    order = books.set_up("2027-01-11T06:00", "P1D")
    ends = books.set_up("2027-01-11T06:00", times=1)
    books.now = at("2027-01-11T06:00")
    books.run(books.begin)
    with closing(connections.connect_writer(":memory:")) as copy:
        books.connection.backup(copy)
        books.until(at("2027-01-13T06:30"))
        assert books.states(order) == dict.fromkeys(range(3), "paid")
        books.connection, before = copy, books.connection
        books.run(lambda work: end_by_restore(work, work.now))
        books.until(at("2027-01-14T06:30"))
        assert books.states(order) == {0: "missed", 1: "missed", 2: "missed", 3: "paid"}
        assert {one.problem for one in books.runs(order)} == {"restored", None}
        assert (books.order(ends).state, books.states(ends)) == ("ended", {0: "missed"})
        books.check()
        books.connection = before


@pytest.mark.parametrize("seed", range(6))
def test_kills_jumps_and_downtime_never_pay_a_date_twice(books: Books, seed: int) -> None:
    chance = random.Random(seed)
    orders = [books.set_up("2027-01-11T06:00", every, zone="Europe/Berlin") for every in ("P1D", "P1W", "P1M")]
    settled: Mapping[tuple[str, int], str] = {}
    for _ in range(200):
        choice = chance.random()
        if choice < 0.05:
            books.now -= chance.randrange(42 * DAY)
        elif choice < 0.25:
            books.now += chance.randrange(10 * DAY)
        else:
            books.now += chance.randrange(DAY)
        if choice > 0.9:
            change = chance.choice([rules.pause, rules.resume, rules.resume])
            books.change(change, chance.choice(orders))
        books.step_and_die(chance.choice([0, 0, chance.randrange(1, 60)]), chance.choice([0, 1, 2, 9]))
        runs = [one for order in orders for one in books.runs(order)]
        assert books.paid == sum(one.state == "paid" for one in runs)
        assert len({one.outgoing_payment_id for one in runs if one.state == "paid"}) == books.paid
        now_settled = {(one.order_id, one.window): one.state for one in runs if one.state != "waiting"}
        assert settled.items() <= now_settled.items(), "what is settled stays"
        settled = now_settled
    assert books.paid > 5
    assert wallets.wallet(books.run(lambda work: work), books.wallet("bob")).balance == f"{books.paid * 10}.00"
