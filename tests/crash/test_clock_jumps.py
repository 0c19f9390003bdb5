"""The machine's clock jumps an hour, forward or back, under a server: once set wrong, and set right again."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from payres.core.protocol.clock import DAY, HOUR, SECOND
from payres.core.protocol.errors import NotFound
from payres.core.store.accounts import RateRecord, list_rates, refresh_rate
from payres.core.store.work import Work
from payres.html.sign_in import Browser, find_session, known_browser, open_link, open_session
from payres.html.store.sessions import OF_OWNERS, owner_at
from payres.operator.wallets import make_password_link
from payres.testing.peering import peer
from tests.crash.conftest import check_ready
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

AN_HOUR = HOUR // SECOND
FUNDS = 100_000
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
