"""The receiver of webhooks for tests of apps."""

import json

import pytest

from payres.core.protocol.clock import SECOND
from payres.testing.plugin import payres_webhooks as payres_webhooks
from payres.testing.receiver import WebhookReceiver, receive_webhooks
from payres.webhooks.sender import signed_headers
from tests.helpers import TIMEOUT, usd
from tests.instance import Instance


def test_events_come_once_and_again_after_a_refusal(payres: Instance, payres_webhooks: WebhookReceiver) -> None:
    payres_webhooks.answers += [500]
    bill = payres.client.create_incoming_payment(payres.wallet("bob"), usd(500))
    payres.client.pay(payres.wallet("alice"), bill["id"])
    [completed] = payres_webhooks.wait_for("incoming_payment.completed", seconds=TIMEOUT)
    assert completed["data"]["id"] == bill["id"]
    payres.clock.advance(60)
    payres_webhooks.wait_for("incoming_payment.created", seconds=TIMEOUT)
    assert len({event["id"] for event in payres_webhooks.events}) == len(payres_webhooks.events)
    assert payres_webhooks.refused == []


def test_only_the_events_asked_for_come(payres: Instance) -> None:
    with receive_webhooks(payres, "incoming_payment.*") as receiver:
        payres.client.create_incoming_payment(payres.wallet("bob"))
        receiver.wait_for("incoming_payment.created", seconds=TIMEOUT)
        with pytest.raises(
            AssertionError, match=r"0 of 1 outgoing_payment\.created have come in 0 s; of all: incoming_payment"
        ):
            receiver.wait_for("outgoing_payment.created", seconds=0)


def test_requests_of_others_are_refused(payres: Instance, payres_webhooks: WebhookReceiver) -> None:
    body = json.dumps({"id": "evt_1", "type": "x"}).encode()
    now = payres.clock.now() // SECOND
    good = dict(signed_headers("evt_1", now, body, [payres_webhooks.secret]))
    old = dict(signed_headers("evt_1", now - 301, body, [payres_webhooks.secret]))
    other = dict(signed_headers("evt_1", now, body, ["whsec_eA=="]))
    for headers, sent, status in [
        ({}, body, 401),
        (old, body, 401),
        (other, body, 401),
        (good, body + b" ", 401),
        (good, body, 204),
        (good, body, 204),
    ]:
        assert payres_webhooks.take(headers, sent) == status
    assert [event["id"] for event in payres_webhooks.events] == ["evt_1"]
    assert len(payres_webhooks.refused) == 4
