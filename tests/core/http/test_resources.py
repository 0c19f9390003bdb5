"""The order of errors: whatever is created, a request with several faults is answered with the same one first."""

from typing import Any

import pytest

from tests.conftest import Refused
from tests.helpers import Json, usd
from tests.instance import Instance

# The faults of a request in the order of docs/reference/errors.md, each with its status, its code and a detail.
FAULTS: dict[str, tuple[int, str, Json]] = {
    "accept": (406, "not_acceptable", {}),
    "media type": (415, "unsupported_media_type", {}),
    "token": (401, "invalid_token", {"reason": "unknown_token"}),
    "action": (403, "insufficient_access", {"reason": "action"}),
    "key": (400, "invalid_request", {"field": "Idempotency-Key"}),
    "body": (400, "invalid_request", {"field": "unknown"}),
    "wallet address": (403, "insufficient_access", {"reason": "identifier"}),
    "reused key": (422, "idempotency_key_reused", {"reason": "body"}),
}
# What each creation asks for that no rule permits, with the answer.
AGAINST_THE_RULES: dict[str, tuple[Json, tuple[int, str]]] = {
    "incoming-payment": ({"incomingAmount": usd(0)}, (400, "invalid_amount")),
    "quote": ({"receiver": "{base}/incoming-payments/none", "method": "ilp"}, (400, "invalid_receiver")),
    "outgoing-payment": ({"quoteId": "{base}/quotes/none"}, (400, "invalid_quote")),
}


@pytest.mark.parametrize("kind", AGAINST_THE_RULES)
def test_first_of_several_faults_is_the_same_for_all_creations(shared: Instance, refused: Refused, kind: str) -> None:
    client, alice, bob = shared.client, shared.wallet("alice"), shared.wallet("bob")
    asked, refusal = AGAINST_THE_RULES[kind]
    asked = {
        name: value.format(base=shared.base_url) if isinstance(value, str) else value for name, value in asked.items()
    }
    used_key = f'"used-for-{kind}"'
    making = client.grant({"type": "incoming-payment", "actions": ["create"], "identifier": alice})
    body = {"walletAddress": alice, "metadata": {"for": kind}}
    sent = client.request("POST", "/incoming-payments", body, making, {"idempotency-key": used_key})
    assert sent.status_code == 201, sent.text

    def item(action: str) -> Json:
        return {"type": kind, "actions": [action], "identifier": alice}

    creating, reading = client.grant(item("create")), client.grant(item("read"))

    def ask(faults: list[str]) -> Any:
        headers = {"idempotency-key": "a, b" if "key" in faults else used_key if "reused key" in faults else '"fresh"'}
        headers |= {"accept": "text/html"} if "accept" in faults else {}
        headers |= {"content-type": "text/plain"} if "media type" in faults else {}
        token = "none" if "token" in faults else reading if "action" in faults else creating
        body: Json = {"walletAddress": bob if "wallet address" in faults else alice} | asked
        body |= {"unknown": 1} if "body" in faults else {}
        return client.request("POST", f"/{kind}s", body, token, headers)

    order = list(FAULTS)
    for number, (status, code, details) in enumerate(FAULTS.values()):
        if (status, code) == (422, "idempotency_key_reused") and kind != "incoming-payment":
            details = {"reason": "path"}
        refused(ask(order[number:]), status, code, **details)
    refused(ask([]), *refusal)
