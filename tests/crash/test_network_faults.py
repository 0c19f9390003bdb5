"""The way to another server goes wrong, before a payment and in the middle of it, and comes right again."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from payres.core.protocol import limits
from payres.core.protocol.clock import SECOND
from payres.core.remote import http, ip_addresses
from payres.interledger.node import node_of
from payres.testing.peering import peer
from tests.crash.conftest import check_ready
from tests.crash.faulty_link import MODES, FaultyLink, Mode, faulty_link
from tests.instance import Instance, run_instance
from tests.interledger.network import (
    SLOWLY,
    Waits,
    amount,
    bill,
    change,
    check_books,
    ended,
    hurried,
    quote,
    received,
    sent,
    wait_for_packet,
    wallet_money,
)

FUNDS = 100_000
VALUE = 3_000


Pair = tuple[Instance, Instance, FaultyLink]

UNHURRIED = {"idle_timeout": 30 * SECOND, "probe_timeout": 30 * SECOND}


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    """Two peers. All that the first asks of the second, and its packets too, go by a link that may go wrong."""
    with ExitStack() as stack:
        link = stack.enter_context(faulty_link())
        monkeypatch.setattr(ip_addresses, "find_addresses", link.resolve)
        monkeypatch.setattr(limits, "FAILED_LOOKUP_SECONDS", 0)  # so that nobody waits for a name to come right
        monkeypatch.setattr(http, "FAILED_SERVER_SECONDS", 0)
        a = stack.enter_context(run_instance(tmp_path / "a.db", ilp_address="test.a"))
        there = f"http://localhost:{link.port}"
        b = stack.enter_context(run_instance(tmp_path / "b.db", ilp_address="test.b", base_url=there))
        link.beyond = b._server._listener.getsockname()[1]
        peer(a, b)
        change(b, "a", max_packet=50)
        hurried(a, packet_lifetime=2 * SECOND, **UNHURRIED)
        yield a, b, link


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Waits:
    return Waits(monkeypatch)


@pytest.mark.parametrize("mode", MODES)
def test_quote_is_refused_while_the_receiver_cannot_be_asked(
    mode: Mode, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, link = pair
    receiver = bill(b, b.wallet("bob"), 500)
    link.become(mode)
    with monkeypatch.context() as patch:
        http = node_of(a.context).receivers._http
        patch.setattr(http, "_bounds", msgspec.structs.replace(http._bounds, seconds=0.2))  # or it hangs for seconds
        refused = quote(a, receiver)
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert error["code"] == "invalid_receiver"
    assert error["details"]["reason"] in {"unreachable", "bad_content"}
    check_well(a)
    link.become("fine")
    assert quote(a, receiver).status_code == 201


def test_payment_ends_although_the_way_goes_wrong_in_its_middle(pair: Pair, waits: Waits) -> None:
    a, b, link = pair
    hurried(a, **SLOWLY)
    receiver = bill(b, b.wallet("bob"), VALUE)
    created = a.client.pay(a.wallet("alice"), receiver)
    wait_for_packet(a, "b")
    link.become("hang")
    check_well(a)
    under_way = sent(a, created)
    link.become("fine")
    paid = waits.end((a, b), created)
    assert under_way.state == "sending"
    check_paid(a, b, paid.record.state, receiver)


def test_payment_fails_and_its_money_is_free_when_the_way_stays_wrong(pair: Pair, waits: Waits) -> None:
    a, b, link = pair
    receiver = bill(b, b.wallet("bob"), 500)
    quoted = a.client.create_quote(a.wallet("alice"), receiver)
    link.become("other server")
    hurried(a, idle_timeout=SECOND)
    created = a.client.create_outgoing_payment(a.wallet("alice"), quoted["id"])
    a.wait_for(created)
    paid = ended(a, created)
    assert (paid.record.state, paid.record.sent) == ("failed", 0)
    assert paid.record.failure
    assert wallet_money(a, "alice") == (FUNDS, 0)
    check_well(a)
    link.become("fine")
    hurried(a, **UNHURRIED)
    again = a.client.pay(a.wallet("alice"), receiver, receiveAmount=amount(500))
    check_paid(a, b, waits.end((a, b), again).record.state, receiver, 500)


def check_paid(a: Instance, b: Instance, state: str, receiver: str, value: int = VALUE) -> None:
    """The payment was sent and received in full, once, and both servers say so."""
    assert state == "completed"
    assert received(b, receiver).received == value
    assert wallet_money(a, "alice") == (FUNDS - value, 0)
    assert wallet_money(b, "bob") == (FUNDS + value, 0)
    check_books(a, b)


def check_well(a: Instance) -> None:
    """Faults of other servers do not affect a server, and its health check says so."""
    check_ready(a)
    assert received(a, bill(a, a.wallet("bob"), 1)).received == 0
