"""The pytest plugin: what it promises to tests of other projects."""

from pathlib import Path

import httpx2
import pytest

from payres.testing.client import Client
from payres.testing.instance import Instance, run_instance
from tests.helpers import usd


def test_instance_is_funded_and_answers(payres: Instance) -> None:
    assert payres.balance("alice") == payres.balance("bob") == "1000.00"
    assert httpx2.get(payres.wallet("alice")).json()["publicName"] == "Alice"


def test_instance_takes_a_payment_end_to_end(payres: Instance) -> None:
    receiver = payres.client.create_incoming_payment(payres.wallet("bob"), usd(500))
    payment = payres.client.pay(payres.wallet("alice"), receiver["id"])
    assert payment["debitAmount"] == usd(500)
    assert (payres.balance("alice"), payres.balance("bob")) == ("995.00", "1005.00")
    payres.check_ledger()


def test_instance_clock_moves_tokens_out_of_date(payres: Instance) -> None:
    token = payres.client.grant({"type": "quote", "actions": ["read"]})
    assert payres.client.get("/quotes/none", token).status_code == 404
    payres.clock.advance(601)
    answer = payres.client.get("/quotes/none", token)
    assert (answer.status_code, answer.json()["error"]["details"]["reason"]) == (401, "expired_token")


def test_instance_can_deny_consent(payres: Instance) -> None:
    item = {"type": "outgoing-payment", "actions": ["create"], "identifier": payres.wallet("alice")}
    asked = payres.client.request_grant(item).json()
    finished = payres.deny(asked["interact"]["redirect"])
    assert finished is not None
    assert finished.endswith("result=grant_rejected")
    follow_up = asked["continue"]
    answer = payres.client.post(follow_up["uri"], None, follow_up["access_token"]["value"])
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "user_denied")


def test_instances_do_not_share_anything(payres: Instance, tmp_path: Path) -> None:
    with run_instance(tmp_path / "other.db", ilp_address="test.other") as other:
        other.create_wallet("carol", "EUR", deposit="5.00")
        assert other.base_url != payres.base_url
        assert httpx2.get(other.wallet("carol")).status_code == 200
        assert httpx2.get(payres.wallet("carol")).status_code == 404


def test_new_client_is_a_client_of_its_own(payres: Instance) -> None:
    other: Client = payres.new_client("kiosk")
    receiver = payres.client.create_incoming_payment(payres.wallet("bob"))
    token = other.grant({"type": "incoming-payment", "actions": ["read"]})
    assert other.get(receiver["id"], token).status_code == 404


def test_plugin_serves_other_projects(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_checkout(payres):
            receiver = payres.client.create_incoming_payment(payres.wallet("bob"))
            assert receiver["receivedAmount"]["value"] == "0"
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:schemathesis").assert_outcomes(passed=1)
