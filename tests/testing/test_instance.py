"""What docs/testing.md promises of instances besides its examples, which tests/test_docs.py runs."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest

from payres.client import Client, access, webhooks
from payres.client.errors import ConfigurationError, NotFound, OpenPaymentsError
from payres.core.protocol.errors import DomainError
from payres.interledger.node import node_of
from payres.operator import peers
from payres.testing.faults import KINDS
from payres.testing.instance import Instance, run_instance
from payres.testing.peering import peer
from payres.testing.plugin import payres as payres
from payres.testing.receiver import receive_webhooks
from tests.helpers import Json, wait_until
from tests.webhooks.endpoint import Endpoint


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Instance]:
    with run_instance(tmp_path / "other.db", ilp_address="test.other") as instance:
        yield instance


def test_instances_share_nothing(payres: Instance, other: Instance) -> None:
    other.create_wallet("carol", "EUR", deposit="5.00")
    assert other.base_url != payres.base_url
    assert httpx2.get(other.wallet("carol")).status_code == 200
    assert httpx2.get(payres.wallet("carol")).status_code == 404


def test_new_client_is_a_client_of_its_own(payres: Instance) -> None:
    bill, kiosk = payres.bill("bob"), payres.new_client("kiosk")
    grant = kiosk.grant.obtain(f"{payres.base_url}/", access.incoming_payment("read"))
    with pytest.raises(NotFound):
        kiosk.incoming_payment.get(bill.id, grant)


def test_app_that_goes_by_the_time_of_its_machine_works_after_the_clock_has_moved(payres: Instance) -> None:
    """It signs by that time, and takes webhooks only that are of now."""
    received = list[str]()
    with Client(**payres.new_app("kiosk")) as kiosk, receive_webhooks(payres) as receiver:
        take = receiver.take

        def noted(headers: dict[str, str], body: bytes) -> int:
            received.append(webhooks.verify(body, headers, receiver.secret).type)
            return take(headers, body)

        receiver.take = noted  # type: ignore[method-assign]
        for seconds in (301, 86_400):
            payres.clock.advance(seconds)
            kiosk.grant.obtain(f"{payres.base_url}/", access.incoming_payment("read"))
            payres.bill("bob")
        receiver.wait_for("incoming_payment.created", count=2)
    assert received == ["incoming_payment.created"] * 2


def test_terms_of_peers_hold_on_both_sides(payres: Instance, other: Instance) -> None:
    peer(payres, other, "JPY", 0, credit_limit="20000", max_packet=500, routes=["test.third"])
    here = payres.read(lambda tx: peers.require_peer(tx, "test.other"))
    there = other.read(lambda tx: peers.require_peer(tx, "test.payres"))
    for one in (here, there):
        assert (one.asset_code, one.asset_scale, one.floor, one.max_packet) == ("JPY", 0, -20_000, 500)


def test_instances_with_one_address_cannot_be_peers(payres: Instance, tmp_path: Path) -> None:
    with run_instance(tmp_path / "twin.db") as twin, pytest.raises(DomainError, match="own ILP address"):
        peer(payres, twin)


def test_waiting_for_a_payment_that_does_not_end_fails(
    payres: Instance, other: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer(payres, other)
    monkeypatch.setattr(node_of(payres.context).payments, "send", lambda _: None)
    payment = payres.pay("alice", other.bill("bob", "5.00").id)
    for seconds in (0.05, 0, -1):
        with pytest.raises(AssertionError, match=f"is still in progress after {seconds:g} s: .*sent_amount"):
            payres.wait_for(payment, seconds)


def test_what_is_not_on_this_server_is_named(payres: Instance, other: Instance) -> None:
    peer(payres, other)
    payment = payres.pay("alice", other.bill("bob", "5.00"))
    bill, five_minutes = cast("Any", payres.bill("bob")), cast("Any", timedelta(minutes=5))
    for call, error, said in (
        (lambda: other.wait_for(payment), DomainError, f"{payment.id} is no outgoing payment of this server"),
        (lambda: payres.wait_for(bill), ConfigurationError, "of type IncomingPayment, not OutgoingPayment"),
        (lambda: payres.bill("nobody"), DomainError, "There is no wallet nobody"),
        (lambda: payres.pay("nobody", payment.receiver), DomainError, "There is no wallet nobody"),
        (lambda: payres.balance("nobody"), DomainError, "There is no wallet nobody"),
        (lambda: payres.clock.advance(five_minutes), ConfigurationError, "timedelta, not int or float"),
    ):
        with pytest.raises(error, match=said):
            call()
    assert payres.wait_for(payment).sent_amount.value == "500"


MEMBERS: dict[str, Json] = {
    "no_answer": {"seconds": 0.01},
    "slow": {"seconds": 0.01},
    "slow_settlement": {"seconds": 0.01},
    "partial_failure": {"deliver": "2.00"},
}


@pytest.mark.parametrize("name", KINDS)
def test_every_fault_of_the_sandbox_happens_here_too(
    payres: Instance, other: Instance, endpoint: Endpoint, name: str
) -> None:
    peer(payres, other)
    secret = payres.webhook(endpoint.url, "outgoing_payment.*")
    bill = other.bill("bob", "5.00")
    fault = payres.fault(name, **MEMBERS.get(name, {}))
    with suppress(OpenPaymentsError):
        payres.pay("alice", bill.id)
    wait_until(lambda: fault.used == 1)
    if name == "duplicate_event":
        wait_until(lambda: len(endpoint.received) > len({one.verified(secret)["id"] for one in [*endpoint.received]}))


def test_fault_that_can_never_happen_is_refused(payres: Instance) -> None:
    for name, members, says in [
        ("lost", {}, "There is no fault 'lost', but: unavailable"),
        ("slow_settlement", {}, "happens to packets between servers"),
        ("slow", {"wallet": "carol"}, "There is no wallet 'carol', but: alice, bob, shop"),
        ("slow", {"colour": "red"}, "unknown field `colour`.* The options are: .*seconds, deliver"),
    ]:
        with pytest.raises((DomainError, ValueError), match=says):
            payres.fault(name, **members)


def test_mistake_of_a_test_is_named(payres: Instance) -> None:
    given: Any
    for given, says in [
        (lambda: payres.clock.advance(-1), "The clock goes forward"),
        (lambda: payres.clock.advance(1e10), "at most a hundred years"),
        (lambda: payres.webhook(None), "url is None, not str"),  # type: ignore[arg-type]
        (lambda: payres.create_wallet("carol", deposit=50), "deposit is of type int, not str"),  # type: ignore[arg-type]
        (lambda: payres.bill(None), "wallet is None, not str or WalletAddress"),  # type: ignore[arg-type]
    ]:
        with pytest.raises((DomainError, ConfigurationError), match=says):
            given()


def test_wallets_and_bills_are_named_by_all_that_an_app_has_of_them(payres: Instance) -> None:
    bob = payres.client.wallet_address.get(payres.wallet("bob"))
    for wallet in (bob, bob.id, "bob"):
        payres.pay(payres.wallet("alice"), payres.bill(wallet, "1.00"))
    assert payres.balance("bob") == "1003.00"


def test_bill_of_any_amount_is_paid_with_one(payres: Instance) -> None:
    payment = payres.pay("alice", payres.bill("bob").id, "2.50")
    assert payment.sent_amount.value == "250"
    assert payres.balance("bob") == "1002.50"
