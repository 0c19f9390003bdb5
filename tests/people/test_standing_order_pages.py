"""Standing orders as an owner sees them, and as the server pays them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from urllib.parse import quote

import httpx2
import pytest

from payres.agenda.store import agenda
from payres.core.protocol.clock import HOUR, SECOND
from payres.core.store.outgoing_payments import OUTGOING
from payres.core.store.work import Work
from payres.operator import assets, wallets
from payres.operator import standing_orders as orders
from payres.operator.declared.shapes import facts_of
from payres.people.store import standing_orders as store
from payres.people.store.standing_orders import ORDERS, OrderRecord
from payres.testing.peering import peer
from tests.helpers import receiver_of, usd, wait_until
from tests.instance import Instance, run_instance
from tests.interledger.network import network
from tests.operator.pages.browser import words_of
from tests.people.browser import OwnersBrowser
from tests.people.test_sending import Sender, new_wallet, problem

PATH, NEW = "/account/orders", "/account/orders/new"
NOON = datetime(2027, 1, 10, 12, tzinfo=UTC)


def set_clock(instance: Instance, moment: datetime) -> None:
    instance.clock.freeze(True)
    instance.clock.advance(moment.timestamp() - instance.clock.now() / SECOND)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Instance]:
    """At noon on 10 January; it looks for what is due all the time."""
    monkeypatch.setattr(agenda, "LOOK_SECONDS", 0.02)
    with run_instance(tmp_path / "payres.db") as found:
        set_clock(found, NOON)
        yield found


@pytest.fixture
def sender(server: Instance) -> Iterator[Sender]:
    with Sender(server) as browser:
        yield browser


def look(sender: Sender, **given: str) -> httpx2.Response:
    usual = {"to": "bob", "amount": "12,50", "fixed": "send", "every": "P1M", "first": "2027-01-11", "until": "stop"}
    return sender.send(NEW, "look", usual | {"note": "Rent"} | given)


def set_up(sender: Sender, **given: str) -> str:
    """The path of a new order."""
    answer = look(sender, **given)
    assert answer.status_code == 303, words_of(answer)
    return press(sender, answer.headers["location"], "set-up")


def press(sender: Sender, path: str, choice: str) -> str:
    answer = sender.send(path, choice)
    assert answer.status_code == 303, words_of(answer)
    return str(answer.headers["location"])


def filled_in(form: httpx2.Response) -> dict[str, str]:
    """What fields hold, by name."""
    fields = re.findall(r"<input [^>]*>", form.text)
    named = ((re.search(' name="([^"]*)"', one), re.search(' value="([^"]*)"', one)) for one in fields)
    return {name[1]: value[1] for name, value in named if name and value}


def order_at(sender: Sender, path: str) -> OrderRecord:
    return sender.instance.read(lambda work: ORDERS.by_id(work, path.rpartition("/")[2]))


def states(sender: Sender, path: str) -> dict[int, str]:
    runs = sender.instance.read(lambda work: store.runs_of(work, path.rpartition("/")[2], 100))
    return {one.window: one.state for one in runs}


def sign_in_again(sender: Sender) -> None:
    """The session has ended meanwhile."""
    with OwnersBrowser(sender.instance, sender.path) as again:
        sender.http.cookies.set("payres_session", again.http.cookies["payres_session"], "127.0.0.1")


def advance(sender: Sender, path: str, time: timedelta, expected: Mapping[int, str]) -> None:
    """Time goes on, until the dates of the order stand like this."""
    sender.instance.clock.advance(time.total_seconds())
    sign_in_again(sender)
    wait_until(lambda: states(sender, path) == expected, lambda: str(states(sender, path)))


def test_owner_looks_over_what_is_paid_then(sender: Sender) -> None:
    draft = look(sender).headers["location"]
    page = sender.words(draft)
    for said in ("Send USD 12.50 to Bob every month?", "Times in a year 12", "In a year USD 150.00", "Note Rent"):
        assert said in page
    assert "Tomorrow, 11 Feb, 11 Mar and so on, until you stop it. Mornings, after 06:00." in page
    assert sender.words(PATH).count("Bob") == 0, "nothing is set up yet"
    order = press(sender, draft, "set-up")
    assert press(sender, draft, "set-up") == order, "pressing twice sets up one"
    assert "Coming up Standing orders B Bob Rent 12.50Tomorrow" in sender.words("/account")
    assert "Together at most USD 12.50 in a month. You have USD 100.00. B Bob Rent Next: tomorrow" in sender.words(PATH)
    advance(sender, order, timedelta(hours=18), {0: "paid"})
    assert sender.balance == "87.50"
    assert "Rent" in sender.words("/account/activity")
    page = sender.words(order)
    for said in ("Next 11 Feb, 06:00", "So far 1 payment", "Payments ✓ Today paid −12.50"):
        assert said in page
    [payment] = sender.instance.read(lambda work: OUTGOING.list(work, "WHERE metadata LIKE '%Rent%'"))
    page = sender.words(f"/account/payments/{payment.id}")
    assert "Bob has USD 12.50" in page
    assert "A standing order made this payment" in page
    sender.instance.check_ledger()


def test_payment_that_was_made_is_sent_again_every_month(sender: Sender) -> None:
    payment = sender.pay(sender.price("bob", "3", note="Lunch"))
    assert "Send again every month" in sender.words(payment)
    [quote] = sender.instance.read(lambda work: OUTGOING.list(work, "WHERE metadata LIKE '%Lunch%'"))
    for days, first in ((0, "2027-02-10"), (40, "2027-03-10")):
        sender.instance.clock.advance(days * 86400)
        sign_in_again(sender)
        form = sender.http.get(f"{NEW}?again={quote.quote_id}").text
        for value in ("3", "Lunch", first, sender.instance.wallet("bob")):
            assert f'value="{value}"' in form
    with Sender(sender.instance) as other:
        assert other.http.get(f"{NEW}?again={quote.quote_id}").status_code == 404


@pytest.mark.parametrize(
    ("given", "field", "said"),
    [
        ({"to": ""}, "to", "Type or paste the address"),
        ({"to": "nobody-here"}, "to", "There is no wallet at this address"),
        ({"amount": ""}, "amount", "Type an amount, like 12.50."),
        ({"amount": "0"}, "amount", "Type an amount above zero."),
        ({"note": "x" * 141}, "note", "A note has at most 140 characters."),
        ({"every": "PT1S"}, "every", "Choose one of these."),
        ({"first": ""}, "first", "Choose today or a later day"),
        ({"first": "2027-01-09"}, "first", "Choose today or a later day"),
        ({"first": "9999-12-31"}, "first", "Choose today or a later day"),
        ({"until": "day", "last": "2027-01-10"}, "last", "The last day cannot be before the first."),
        ({"until": "day", "last": "9999-12-31"}, "last", "Choose a day before"),
        ({"until": "day", "last": ""}, "last", "The last day cannot be before the first."),
        ({"until": "times", "times": "0"}, "times", "Type a number from 1 to 999."),
        ({"until": "times", "times": "1000"}, "times", "Type a number from 1 to 999."),
        ({"until": "times", "times": "٣"}, "times", "Type a number from 1 to 999."),
    ],
)
def test_what_cannot_be_set_up_is_said_at_its_field(
    sender: Sender, given: Mapping[str, str], field: str, said: str
) -> None:
    page = look(sender, **given)
    assert problem(page, field).startswith(said)
    assert "Nothing is set up yet." in words_of(page)
    kept = {"to": "bob", "amount": "12,50", "first": "2027-01-11", "note": "Rent"} | dict(given)
    assert all(f'value="{value}"' in page.text for name, value in kept.items() if name not in {"every", "until"})


def test_bill_is_no_receiver(sender: Sender) -> None:
    assert problem(look(sender, to=receiver_of(sender.instance, 100)), "to").startswith("This is a bill")
    assert problem(look(sender, to=sender.path), "to").startswith("This is your own wallet")


@pytest.mark.parametrize(
    ("given", "dates", "times", "last"),
    [
        ({"until": "day", "last": "2027-04-11"}, "until 11 April 2027", "Times in all 4 In all USD 50.00", 3),
        ({"until": "day", "last": "2027-01-11"}, "", "Times in all 1 In all USD 12.50", 0),
        ({"until": "day", "last": "2126-12-31"}, "until 11 December 2126", "Times in a year 12", 1199),
        ({"until": "times", "times": "2"}, "", "Times in all 2 In all USD 25.00", 1),
        ({"until": "times", "times": "24"}, "until 11 December 2028", "Times in a year 12", 23),
        ({"every": "P2W"}, "until you stop it", "Times in a year 27", None),
        ({"every": "P1Y"}, "until you stop it", "Times in a year 1", None),
        ({"every": "P1D"}, "until you stop it", "Times in a year 365 In a year USD 4,562.50", None),
    ],
)
def test_dates_and_the_sum_of_a_year_are_told(
    sender: Sender, given: Mapping[str, str], dates: str, times: str, last: int | None
) -> None:
    order = set_up(sender, **given)
    page = sender.words(f"{NEW}/{order.rpartition('/')[2]}")
    assert dates in page
    assert times in page
    repetitions = order_at(sender, order).interval.partition("/")[0]
    assert repetitions == ("R" if last is None else f"R{last}")


def test_first_day_may_be_today_and_money_may_come_later(sender: Sender) -> None:
    draft = look(sender, first="2027-01-10", amount="500").headers["location"]
    assert "The first payment is made at once." in sender.words(draft)
    assert "You have USD 100.00. That is too little for the first one." in sender.words(draft)
    order = press(sender, draft, "set-up")
    wait_until(lambda: states(sender, order) == {0: "waiting"})
    wait_until(lambda: "today, 13:00" in sender.words(order))
    for said in ("waiting Not paid yet: you had too little. It is tried again today, 13:00.", "Next 10 Feb, 06:00"):
        assert said in sender.words(order)
    assert "waiting Today is not paid yet: you had too little." in sender.words(PATH)
    sender.instance.write(lambda work: wallets.deposit(work, sender.path, "400.00"))
    advance(sender, order, timedelta(hours=1), {0: "paid"})
    assert sender.balance == "0.00"


def test_missed_ones_are_told(sender: Sender) -> None:
    order = set_up(sender, every="P1D")
    advance(sender, order, timedelta(days=2), {0: "missed", 1: "paid"})
    said = "missed Not paid: this server was not running then. Nothing was taken, and it is not paid later."
    assert said in sender.words(order)
    for page in (PATH, "/account"):
        assert "missed Yesterday was not paid: this server was not running then." in sender.words(page)
    sender.instance.write(lambda work: wallets.withdraw(work, sender.path, "87.50"))
    advance(sender, order, timedelta(days=1), {0: "missed", 1: "paid", 2: "waiting"})
    advance(sender, order, timedelta(days=1), {0: "missed", 1: "paid", 2: "failed", 3: "waiting"})
    sender.instance.write(lambda work: wallets.deactivate(work, "bob"))
    advance(sender, order, timedelta(hours=1), {0: "missed", 1: "paid", 2: "failed", 3: "failed"})
    for page in (PATH, order, "/account"):
        assert "paused It cannot be paid: there is no wallet at the address any more." in sender.words(page)
    assert order_at(sender, order).state == "paused"


def test_holiday_is_told_and_ends_early(sender: Sender) -> None:
    later, order = set_up(sender, first="2027-01-20", note="Later"), set_up(sender, every="P1W", note="Soon")
    listed = sender.words(PATH)
    assert listed.index("Soon") < listed.index("Later"), "what comes next stands first"
    refused = sender.send(order, "pause", {"until": "2027-01-11"})
    assert (refused.status_code, "Error: Standing order to Bob" in refused.text) == (409, True)
    assert "This leaves out no date, or all of them. Choose another day." in words_of(refused)
    assert sender.send(order, "pause", {"until": "2027-01-30"}).status_code == 303
    assert "Next 1 Feb, 06:00 Paused until 30 Jan" in sender.words(order)
    assert "Paused until 30 Jan. Next: 1 Feb" in sender.words(PATH)

    def shown_to_operators(work: Work) -> list[str | None]:
        found = [orders.standing_order(work, ORDERS.by_id(work, one.rpartition("/")[2])) for one in (order, later)]
        return [dict(facts_of(orders.ORDER.columns, one))["Paused until (UTC)"].text for one in found]

    assert sender.instance.read(shown_to_operators) == ["2027-01-30T00:00:00.000Z", ""], "in the zone of the order"
    listed = sender.words(PATH)
    assert listed.index("Later") < listed.index("Soon")
    assert press(sender, order, "resume") == order
    assert "Next Tomorrow, 06:00" in sender.words(order)
    assert order_at(sender, later).next_window == 0


def test_order_begins_from_a_receiver_and_from_a_bill(sender: Sender) -> None:
    sender.pay(sender.price("bob", "3"))
    bob, url = sender.instance.wallet("bob"), "/account/orders/new?to="
    assert f'href="{url}{quote(bob, safe="/")}">Standing order' in sender.http.get("/account/send?all=1").text
    made = sender.instance.client.create_incoming_payment(bob, usd(700))
    price = sender.http.get("/account/send", params={"bill": made["id"]}).headers["location"]
    paid = press(sender, price, "send")
    [again] = re.findall(r'href="([^"]*)">Send again every month', sender.http.get(paid).text)
    form = sender.http.get(again).text
    for kept in (f'value="{bob}"', 'value="7.00"', 'name="fixed" value="receive" checked'):
        assert kept in form


def test_paused_changed_and_ended(sender: Sender) -> None:
    order = set_up(sender, every="P1D", until="times", times="10")
    assert press(sender, order, "pause") == order
    assert "Next Paused" in sender.words(order)
    assert "Coming up Standing orders B Bob Rent 12.50Paused" in sender.words("/account"), "a way to go on with it"
    sender.instance.clock.advance(3 * 86400)
    sign_in_again(sender)
    assert press(sender, order, "resume") == order
    assert "Next Tomorrow, 06:00" in sender.words(order)
    assert states(sender, order) == {}
    form = sender.http.get(f"{NEW}?order={order.rpartition('/')[2]}").text
    for kept in ('value="12.50"', 'value="2027-01-14"', 'value="Rent"', 'value="7"', 'value="times" checked'):
        assert kept in form
    changed = set_up(sender, replaces=order.rpartition("/")[2], amount="20", first="2027-01-14", every="P1D")
    assert [order_at(sender, one).state for one in (order, changed)] == ["cancelled", "active"]
    advance(sender, changed, timedelta(days=1), {0: "paid"})
    assert (sender.balance, states(sender, order)) == ("80.00", {})
    assert "over" in words_of(look(sender, replaces=order.rpartition("/")[2]))
    assert "End it for good?" in sender.words(f"{changed}?ask=end")
    assert press(sender, changed, "end") == changed
    assert "Next Ended" in sender.words(changed)
    assert sender.words(PATH).count("Ended: today") == 1
    for choice in ("pause", "resume", "end"):
        assert press(sender, changed, choice) == changed
    assert order_at(sender, changed).state == "cancelled"
    actions = sender.instance.read(
        lambda work: work.execute("SELECT action FROM audit WHERE action LIKE 'order.%' ORDER BY id").fetchall()
    )
    assert [one for (one,) in actions] == [
        *("order.create", "order.pause", "order.resume", "order.create", "order.end")
    ]


def test_paused_one_is_changed_from_its_next_date_on(sender: Sender) -> None:
    order = set_up(sender, first="2027-01-10", until="times", times="10")
    wait_until(lambda: states(sender, order) == {0: "paid"})
    press(sender, order, "pause")
    sender.instance.clock.advance(35 * 86400)
    sign_in_again(sender)
    form = sender.http.get(f"{NEW}?order={order.rpartition('/')[2]}").text
    for kept in ('value="2027-03-10"', 'value="8"'):
        assert kept in form, "January is paid, and the date in February is left out"


def test_order_of_the_31st_stays_one_when_it_is_changed_in_february(sender: Sender) -> None:
    order = set_up(sender, first="2027-01-31")
    advance(sender, order, timedelta(days=22), {0: "paid"})
    form = sender.http.get(f"{NEW}?order={order.rpartition('/')[2]}")
    kept = filled_in(form)
    assert (kept["first"], kept["day"]) == ("2027-02-28", "31")
    draft = look(
        sender, **{one: kept[one] for one in ("first", "day", "replaces")}, amount="20", until="times", times="3"
    ).headers["location"]
    assert "28 Feb, 31 Mar, 30 Apr" in sender.words(draft), sender.words(draft)
    changes = (
        "What changes Amount USD 12.50 → USD 20.00 First on 28 February → 28 February The last day no last day → until "
    )
    assert changes.replace("First on 28 February → 28 February ", "") in sender.words(draft), "as the mail says it"
    assert "In all USD 60.00" in sender.words(draft)
    changed = press(sender, draft, "set-up")
    advance(sender, changed, timedelta(days=27), {1: "paid"})
    advance(sender, changed, timedelta(days=31), {1: "paid", 2: "paid"})
    assert sender.balance == "47.50"
    assert "So far 2 of 3 paid" in sender.words(changed)
    payment = sender.instance.read(lambda work: OUTGOING.list(work, "ORDER BY id DESC LIMIT 1"))[0]
    again = filled_in(sender.http.get(f"{NEW}?again={payment.quote_id}"))
    assert (again["first"], again["day"]) == ("2027-04-30", "31")


@pytest.mark.parametrize("first", ["2027-01-10", "2027-01-11"])
def test_date_that_was_paid_meanwhile_is_not_paid_by_the_change_too(sender: Sender, first: str) -> None:
    order = set_up(sender)
    draft = look(sender, replaces=order.rpartition("/")[2], amount="20", first=first).headers["location"]
    advance(sender, order, timedelta(hours=18, minutes=1), {0: "paid"})
    answer = sender.send(draft, "set-up")
    assert answer.status_code == 409
    assert "A date has passed meanwhile. Change it, and look again." in words_of(answer)
    assert (order_at(sender, order).state, sender.balance) == ("active", "87.50")
    form = sender.http.get(f"{NEW}?draft={draft[-36:]}").text
    for kept in ('value="20"', 'value="2027-02-11"'):
        assert kept in form, "the change begins after the date that is paid"


def test_order_of_another_is_not_found(sender: Sender) -> None:
    order = set_up(sender)
    draft, price = look(sender).headers["location"], sender.price("bob", "1")
    with Sender(sender.instance) as other:
        for path in (order, draft, f"{NEW}?order={order.rpartition('/')[2]}", f"{NEW}?draft={draft[-36:]}"):
            assert other.http.get(path).status_code == 404
        for path, choice in ((order, "end"), (order, "pause"), (draft, "set-up"), (f"{NEW}/{order[-36:]}", "set-up")):
            assert other.send(path, choice).status_code == 404
    assert sender.http.get(f"{NEW}/{price.rpartition('/')[2]}").status_code == 404, "it is the price of one payment"
    assert order_at(sender, order).state == "active"


def test_dates_are_in_the_zone_of_the_owner(sender: Sender) -> None:
    sender.http.cookies.set("payres_zone", "America/New_York", "127.0.0.1")
    order = set_up(sender, first="2027-03-13", every="P1D")
    assert order_at(sender, order).next_at == int(datetime(2027, 3, 13, 11, tzinfo=UTC).timestamp()) * SECOND
    for moment, hour in ((datetime(2027, 3, 13, 11, tzinfo=UTC), 10), (datetime(2027, 3, 14, 10, tzinfo=UTC), 10)):
        set_clock(sender.instance, moment)
        wait_until(lambda: (order_at(sender, order).next_at or 0) // HOUR % 24 == hour)  # noqa: B023 - called at once


def test_amount_that_arrives_in_another_currency_has_a_most(sender: Sender) -> None:
    path = new_wallet(sender.instance, "SEK")
    sender.instance.write(lambda work: assets.set_rate(work, "USD", "SEK", "10"))
    sender.instance.write(lambda work: assets.deposit_liquidity(work, "SEK", 2, "5000.00"))
    draft = look(sender, to=path, amount="100", fixed="receive").headers["location"]
    page = sender.words(draft)
    for said in (
        "Send up to USD 11.00 to Erik every month?",
        "Arrives SEK 100.00 Now about USD 10.00. Above USD 11.00 it is not paid",
    ):
        assert said in page
    order = press(sender, draft, "set-up")
    assert "Takes at most USD 11.00" in sender.words(order)
    sender.instance.write(lambda work: assets.set_rate(work, "USD", "SEK", "9"))
    advance(sender, order, timedelta(days=1), {0: "waiting"})
    wait_until(lambda: "it would have taken more than you allowed" in sender.words(order))
    sender.instance.write(lambda work: assets.set_rate(work, "USD", "SEK", "9.5"))
    advance(sender, order, timedelta(hours=1), {0: "paid"})
    assert (sender.balance, sender.instance.balance(path)) == ("89.47", "100.00")


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sequence[Instance]]:
    monkeypatch.setattr(agenda, "LOOK_SECONDS", 0.02)
    with network(tmp_path, "a", "b") as (a, b):
        peer(a, b)
        b.create_wallet("carol", name="Carol")
        for one in (a, b):
            one.clock.advance(NOON.timestamp() - one.clock.now() / SECOND)
        yield a, b


def test_wallet_on_another_server_is_paid(pair: Sequence[Instance]) -> None:
    a, b = pair
    with Sender(a) as sender:
        draft = look(sender, to=b.wallet("carol")).headers["location"]
        assert "Arrives About USD" in sender.words(draft)
        order = press(sender, draft, "set-up")
        for one in pair:
            one.clock.advance(86400)
        sign_in_again(sender)
        wait_until(lambda: b.balance("carol") != "0.00")
        assert states(sender, order) == {0: "paid"}
        wait_until(lambda: "✓ Today paid" in sender.words(order))
        a.check_ledger()
        [payment] = a.read(lambda work: OUTGOING.list(work, "WHERE metadata LIKE '%Rent%'"))
        a.write(partial(OUTGOING.update, row_id=payment.id, state="failed", failure="x", sent=0, delivered=0))
        assert f"failed Today was not paid: {b.base_url[7:]} did not say why." in sender.words("/account")


def test_server_that_does_not_answer_is_tried_again(pair: Sequence[Instance], sender: Sender) -> None:
    def unit(work: Work) -> None:
        ORDERS.update(work, order.rpartition("/")[2], payee="http://127.0.0.1:9/carol", payee_name=None)

    order = set_up(sender)
    sender.instance.write(unit)
    advance(sender, order, timedelta(days=1), {0: "waiting"})
    wait_until(lambda: "nobody answered" in sender.words(order))
    assert sender.balance == "100.00"
