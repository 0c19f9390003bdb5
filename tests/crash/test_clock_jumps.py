"""The machine's clock jumps an hour, forward or back, under a server: once set wrong, and set right again."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from payres.accounts.limits import MAX_MAILS_ASKED_FOR, MAX_WRONG_PASSWORDS
from payres.accounts.notices import ask
from payres.accounts.password_links import make_link, open_link
from payres.accounts.second_factors import ask_removal, has_factor, remove_if_due
from payres.accounts.sessions import Browser, find_session, known_browser, open_session
from payres.accounts.store.browsers import trusted_until
from payres.accounts.store.codes import replace_totp
from payres.accounts.store.owners import OF_OWNERS, OwnerRecord, owner_at
from payres.accounts.store.sessions import insert_session
from payres.core.protocol.clock import DAY, HOUR, SECOND
from payres.core.protocol.errors import InvalidInteraction, NotFound
from payres.core.protocol.identifiers import hash_secret
from payres.core.protocol.limits import BURST_SECONDS
from payres.core.store.accounts import RateRecord, list_rates, refresh_rate
from payres.core.store.events import OUTBOX
from payres.core.store.grants import GrantState
from payres.core.store.rows import PageQuery
from payres.core.store.work import Work
from payres.html.language import Language
from payres.operator.grants import approve
from payres.operator.movements import undoable_until
from payres.operator.store.grants import page_of_grants
from payres.operator.store.operators import OF_OPERATORS, OPERATORS, access_of, put_operator
from payres.operator.wallets import deposit, make_password_link
from payres.testing.peering import peer
from tests.crash.conftest import check_ready
from tests.helpers import last_segment
from tests.instance import Instance, run_instance
from tests.interledger.network import (
    SLOWLY,
    amount,
    bill,
    change,
    check_books,
    hurried,
    quote,
    received,
    sent,
    wait_for_packet,
    wallet_money,
)
from tests.people.test_sign_in import sign_in

AN_HOUR = HOUR // SECOND
FUNDS = 100_000
RATE = 10  # requests of a client in a second
JUMPS = (AN_HOUR, -AN_HOUR)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Sequence[Instance]]:
    """Two peers with clocks of their own; a payment between them takes many packets."""
    with (
        run_instance(tmp_path / "a.db", ilp_address="test.a", continue_wait=5) as a,
        run_instance(tmp_path / "b.db", ilp_address="test.b") as b,
    ):
        peer(a, b)
        change(b, "a", max_packet=50)
        hurried(a, packet_lifetime=2 * SECOND, idle_timeout=30 * SECOND, probe_timeout=30 * SECOND)
        yield a, b


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Instance]:
    with run_instance(tmp_path / "one.db", continue_wait=5, rate_limit_per_client=RATE) as a:
        yield a


def test_payments_here_go_on_after_each_jump(pair: Sequence[Instance]) -> None:
    a, _ = pair
    spent = 0
    for jump in (0, *JUMPS):
        created = [pay_bob(a) for _ in range(5)]
        a.clock.advance(jump)
        spent += 5 * 100
        assert {a.wait_for(one)["sentAmount"]["value"] for one in created} == {"100"}
        created = [pay_bob(a)]  # with grants asked for after the jump
        spent += 100
        assert a.wait_for(created[0])["sentAmount"] == amount(100)
        assert wallet_money(a, "alice") == (FUNDS - spent, 0)
        check_well(a)


def test_limit_of_an_hour_is_kept_in_each_hour_whatever_the_clock_does(pair: Sequence[Instance]) -> None:
    a, _ = pair
    start = datetime.fromtimestamp(a.clock.now() // HOUR * HOUR / SECOND - 5 * AN_HOUR, UTC)
    limits = {"debitAmount": amount(250), "interval": f"R20/{start:%Y-%m-%dT%H:%M:%SZ}/PT1H"}
    item = {"type": "outgoing-payment", "actions": ["create"], "identifier": a.wallet("alice"), "limits": limits}
    token = a.client.obtain_grant(item)["access_token"]
    for jump in (0, *JUMPS):
        a.clock.advance(jump)
        token = a.client.post(token["manage"], token=token["value"]).json()["access_token"]
        for _ in range(3):
            quote = a.client.create_quote(a.wallet("alice"), bill(a, a.wallet("bob"), 100))
            body = {"walletAddress": a.wallet("alice"), "quoteId": quote["id"]}
            assert a.client.post("/outgoing-payments", body, token["value"]).status_code in {201, 403}
    windows = a.read(
        lambda tx: tx.execute("SELECT window_start, sum(debit) FROM outgoing_payment GROUP BY 1").fetchall()
    )
    assert [debit for _, debit in windows] == [200, 200]


def test_remote_payment_loses_nothing_when_the_clock_jumps_in_its_middle(pair: Sequence[Instance]) -> None:
    a, b = pair
    hurried(a, **SLOWLY)
    receiver = bill(b, b.wallet("bob"), 3000)
    created = a.client.pay(a.wallet("alice"), receiver)
    wait_for_packet(a, "b")
    a.clock.advance(-AN_HOUR)
    assert sent(a, created).state == "sending"
    check_well(a)
    a.clock.advance(AN_HOUR)
    a.wait_for(created)
    record = sent(a, created)
    assert record.sent == record.delivered == received(b, receiver).received
    assert (record.state == "completed") == (record.sent == 3000)
    assert wallet_money(a, "alice") == (FUNDS - record.sent, 0)
    check_books(a, b)


@pytest.mark.parametrize("jump", [AN_HOUR, -AN_HOUR])
def test_remote_payment_by_a_wrong_clock_is_refused_or_arrives(jump: int, pair: Sequence[Instance]) -> None:
    a, b = pair
    receiver = bill(b, b.wallet("bob"), 500)
    a.clock.advance(jump)
    refused = quote(a, receiver)  # the other server takes no signature of another hour
    assert refused.status_code == 400
    assert refused.json()["error"]["details"]["reason"] in {"refused", "no_path"}
    a.clock.advance(-jump)
    assert quote(a, receiver).status_code == 201
    paid = a.wait_for(a.client.pay(a.wallet("alice"), receiver))
    assert paid["sentAmount"] == amount(500)
    check_books(a, b)


def test_what_a_clock_that_was_ahead_has_begun_ends_when_it_is_set_right(pair: Sequence[Instance]) -> None:
    """Sessions, links, tokens, quotes and rates would last until the time that the clock had."""
    a, _ = pair
    month = 30 * DAY // SECOND
    a.clock.advance(month)
    alice, now = a.read(lambda work: owner_at(work, "alice")), a.clock.now()
    assert alice is not None
    signed_in = a.write(lambda work: open_session(work, OF_OWNERS, alice, Browser()))
    link = a.write(lambda work: make_password_link(work, "alice").url.rpartition("/")[2])
    a.write(lambda work: refresh_rate(work, RateRecord("USD", "EUR", "0.5", now, now + HOUR)))
    item = {"type": "incoming-payment", "actions": ["create"], "identifier": a.wallet("bob")}
    token = a.client.obtain_grant(item)["access_token"]
    offered = a.client.create_quote(a.wallet("alice"), bill(a, a.wallet("bob"), 100))
    spending = {"type": "outgoing-payment", "actions": ["create"], "identifier": a.wallet("alice")}
    paying = a.client.obtain_grant(spending | {"limits": {"debitAmount": amount(500)}})["access_token"]
    assert create(a, token).status_code == 201

    def lasting(work: Work) -> list[bool]:
        session, known = find_session(work, OF_OWNERS, signed_in.session), {alice.id: signed_in.known}
        rates = [one.holds_at(work.now) for one in list_rates(work)]
        try:
            by_link = open_link(work, OF_OWNERS, link)
        except NotFound:
            by_link = None
        browser = known_browser(work, OF_OWNERS, alice.id, Browser(None, known))
        return [session is not None, by_link is not None, *rates, browser is not None]

    assert a.read(lasting) == [True] * 4
    a.clock.advance(-month)
    assert a.read(lasting) == [False] * 3 + [True], "the owner signs in again, and is no stranger"
    a.write(lambda work: refresh_rate(work, RateRecord("USD", "EUR", "0.6", work.now, work.now + HOUR)))
    assert [one.holds_at(a.clock.now()) for one in a.read(list_rates)] == [True]
    assert create(a, token).json()["error"]["details"]["reason"] == "expired_token"
    token, paying = (a.client.post(one["manage"], token=one["value"]).json()["access_token"] for one in (token, paying))
    assert create(a, token).status_code == 201
    payment = {"walletAddress": a.wallet("alice"), "quoteId": offered["id"]}
    refused = a.client.post("/outgoing-payments", payment, paying["value"])
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_quote")
    assert a.wait_for(pay_bob(a))["sentAmount"] == amount(100)
    check_well(a)


def pay_bob(a: Instance) -> dict[str, Any]:
    """A payment of a dollar, just made."""
    return a.client.pay(a.wallet("alice"), bill(a, a.wallet("bob"), 100))


def create(a: Instance, token: dict[str, Any]) -> httpx2.Response:
    """The answer to a request for an incoming payment."""
    return a.client.post("/incoming-payments", {"walletAddress": a.wallet("bob")}, token["value"])


def check_well(a: Instance) -> None:
    """The ledger balances, and the server is ready and says so."""
    a.check_ledger()
    check_ready(a)


MONTH = 30 * DAY // SECOND
# What is done while the clock is 30 days ahead, and a question for when it is right again. `True` is right.
Case = Callable[[Instance], Callable[[], bool]]


def spending(a: Instance) -> dict[str, Any]:
    """The answer to a request for consent, with a limit that alice's app has asked for."""
    item = {"type": "outgoing-payment", "actions": ["create"], "identifier": a.wallet("alice")}
    asked: dict[str, Any] = a.client.request_grant(item | {"limits": {"debitAmount": amount(100)}}).json()
    return asked


def continued(a: Instance, asked: dict[str, Any], back: str | None = None) -> httpx2.Response:
    body = {} if back is None else {"interact_ref": parse_qs(urlsplit(back).query)["interact_ref"][0]}
    return a.client.post(asked["continue"]["uri"], body, asked["continue"]["access_token"]["value"])


def states(a: Instance, state: GrantState) -> int:
    return len(a.read(lambda tx: page_of_grants(tx, state, PageQuery(9), a.clock.now(), False))[0])


def of_alice(a: Instance, unit: Callable[[Work, OwnerRecord], Any]) -> Any:
    def run(work: Work) -> Any:
        alice = owner_at(work, "alice")
        assert alice is not None
        return unit(work, alice)

    return a.write(run)


def approval_lapses(a: Instance) -> Callable[[], bool]:
    asked = spending(a)
    back = a.approve(asked["interact"]["redirect"])
    return lambda: (
        continued(a, asked, back).json()["error"]["details"]["reason"] == "approval_expired"
        and (states(a, "approved"), states(a, "lapsed")) == (0, 1)
    )


def request_for_consent_expires(a: Instance) -> Callable[[], bool]:
    asked = spending(a)

    def right() -> bool:
        with pytest.raises(InvalidInteraction):
            a.write(partial(approve, id=last_segment(asked["continue"]["uri"])))
        return (states(a, "pending"), states(a, "expired")) == (0, 1)

    return right


def codes_asked_for_do_not_count(a: Instance) -> Callable[[], bool]:
    def ask_five(work: Work, alice: OwnerRecord) -> bool:
        for _ in range(MAX_MAILS_ASKED_FOR):
            ask(work, alice.id, "alice@mail.example", Language("en", work.now))
        return True

    of_alice(a, ask_five)
    return lambda: of_alice(a, ask_five)


def sessions_and_links_are_none_of_theirs(a: Instance) -> Callable[[], bool]:
    def sign_in(work: Work) -> int:
        put_operator(work, "eva", "full", None, work.now)
        eva = OPERATORS.find(work, name="eva")
        assert eva is not None
        make_link(work, OF_OPERATORS, eva.id)
        insert_session(work, OF_OPERATORS, b"session", eva.id, work.now)
        return eva.id

    eva = a.write(sign_in)
    assert a.read(lambda tx: access_of(tx, eva, a.clock.now()))[1] == 1
    return lambda: a.read(lambda tx: access_of(tx, eva, a.clock.now()))[:2] == (None, 0)


def browser_is_not_trusted(a: Instance) -> Callable[[], bool]:
    known = hash_secret(of_alice(a, lambda work, alice: open_session(work, OF_OWNERS, alice, Browser())).known)

    def until(work: Work, alice: OwnerRecord) -> int | None:
        return trusted_until(work, OF_OWNERS, known, alice.id, work.now)

    assert of_alice(a, until)
    return lambda: of_alice(a, until) is None


def removal_of_factors_takes_its_day(a: Instance) -> Callable[[], bool]:
    def begin(work: Work, alice: OwnerRecord) -> None:
        replace_totp(work, OF_OWNERS, alice.id, b"", work.now)
        work.execute("UPDATE totp SET confirmed_at = ?", (work.now,))
        ask_removal(work, OF_OWNERS, alice)

    def tried(work: Work, alice: OwnerRecord) -> bool:
        remove_if_due(work, OF_OWNERS, alice)
        return has_factor(work, OF_OWNERS, alice.id)

    of_alice(a, begin)

    def right() -> bool:
        found = [of_alice(a, tried)]
        for seconds in (DAY // SECOND - 60, 120):
            a.clock.advance(seconds)
            found.append(of_alice(a, tried))
        return found == [True, True, False]

    return right


def deposit_can_be_undone_no_more(a: Instance) -> Callable[[], bool]:
    made = a.write(lambda work: deposit(work, "alice", "1.00"))
    assert a.read(lambda work: undoable_until(work, made))
    return lambda: a.read(lambda work: undoable_until(work, made)) is None


@pytest.mark.parametrize(
    "case",
    [
        approval_lapses,
        request_for_consent_expires,
        codes_asked_for_do_not_count,
        sessions_and_links_are_none_of_theirs,
        browser_is_not_trusted,
        removal_of_factors_takes_its_day,
        deposit_can_be_undone_no_more,
    ],
)
def test_what_was_done_while_the_clock_was_ahead_ends_when_it_is_set_right(one: Instance, case: Case) -> None:
    one.clock.advance(MONTH)
    right = case(one)
    one.clock.advance(-MONTH)
    assert right()


def rates_are_full_again(a: Instance) -> Callable[[], bool]:
    def status() -> int:
        item = {"type": "incoming-payment", "actions": ["create"], "identifier": a.wallet("bob")}
        return a.client.request_grant(item).status_code

    assert 429 in {status() for _ in range(2 * RATE * BURST_SECONDS)}
    return lambda: {status() for _ in range(RATE)} == {200}


def passwords_of_before_are_forgotten(a: Instance) -> Callable[[], bool]:
    def status(wallet: str = "alice") -> int:
        with httpx2.Client(base_url=a.base_url) as http:
            return sign_in(http, wallet, "wrong, and long enough").status_code

    assert [status() for _ in range(MAX_WRONG_PASSWORDS + 1)][-1] == 429
    a.clock.advance(16 * 60)
    assert status("bob") == 401
    return lambda: status() == 401


def parts_of_a_bill_are_told_again(a: Instance) -> Callable[[], bool]:
    receiver = bill(a, a.wallet("bob"), 300)

    def told() -> int:
        a.client.pay(a.wallet("alice"), receiver, debitAmount=amount(100))
        type_of = "incoming_payment.partial_payment_received"
        return len(a.read(lambda tx: OUTBOX.list(tx, "WHERE type = ?", type_of)))

    assert told() == 1
    return lambda: told() == 2


@pytest.mark.parametrize(
    "case", [rates_are_full_again, passwords_of_before_are_forgotten, parts_of_a_bill_are_told_again]
)
def test_clock_that_is_set_back_a_day_keeps_nobody_waiting(one: Instance, case: Case) -> None:
    right = case(one)
    one.clock.advance(-DAY / SECOND)
    assert right()


def test_app_need_not_wait_for_longer_when_the_clock_is_set_back(one: Instance) -> None:
    item = {"type": "outgoing-payment", "actions": ["create"], "identifier": one.wallet("alice")}
    asked = one.client.request_grant(item, interact={"start": ["redirect"]}).json()
    assert continued(one, asked).json()["error"]["code"] == "too_fast"
    one.clock.advance(-30)
    assert continued(one, asked).status_code == 200
