"""What docs/testing.md promises of instances besides its examples, which tests/test_docs.py runs."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from payres.client import access
from payres.client.errors import NotFound
from payres.core.protocol.errors import DomainError
from payres.interledger.node import node_of
from payres.operator import peers
from payres.testing.instance import Instance, run_instance
from payres.testing.peering import peer
from payres.testing.plugin import payres as payres


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


def test_bill_of_any_amount_is_paid_with_one(payres: Instance) -> None:
    payment = payres.pay("alice", payres.bill("bob").id, "2.50")
    assert payment.sent_amount.value == "250"
    assert payres.balance("bob") == "1002.50"
