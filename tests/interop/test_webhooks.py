"""The official library for receivers of webhooks, of npm, accepts ours; `tests/webhooks/test_deliveries.py` tries
that of PyPI."""

from typing import Any

from payres.core.protocol.clock import SystemClock
from payres.core.store.events import EventRecord
from payres.webhooks.sender import Sender, WebhookTarget
from payres.webhooks.store.webhooks import WebhookRecord
from tests.interop.conftest import RunScenario
from tests.webhooks.endpoint import Endpoint

NEW = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
OLD = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
DATA = '{"metadata":{"note":"\N{EURO SIGN} and \\u00e9","sums":[1.0,1e2]}}'.encode()


async def test_webhooks_are_verified(run_scenario: RunScenario) -> None:
    now = SystemClock().now()
    event = EventRecord(7, "incoming_payment.completed", "1", DATA, now)
    with Endpoint().running() as endpoint:
        webhook = WebhookRecord("1", endpoint.url, "*", 1, "active", b"", None, None, 0, now)
        sender = Sender(SystemClock(), allow_private_hosts=False)
        attempt = await sender.send(WebhookTarget(webhook, (NEW, OLD)), event)
        await sender.aclose()
    assert attempt.error is None
    [received] = endpoint.received
    request: dict[str, Any] = {"headers": received.headers, "body": received.body.decode()}
    requests = {
        "with the new secret": request | {"secret": NEW},
        "with the one before": request | {"secret": OLD},
        "with another secret": request | {"secret": "whsec_AAAA"},
        "changed": request | {"secret": NEW, "body": request["body"].replace("completed", "expired")},
        "with another id": request | {"secret": NEW, "headers": request["headers"] | {"webhook-id": "evt_1"}},
    }
    verdicts = run_scenario("webhooks", {"requests": requests})
    assert [verdicts[name]["accepted"] for name in requests] == [True, True, False, False, False]
    assert verdicts["with the new secret"]["event"] == received.event
