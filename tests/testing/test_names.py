"""Names in rules, faults and filters of the control API: either form is taken, and what can never match is refused."""

from urllib.parse import quote, urlencode

import pytest

from tests.helpers import Json
from tests.testing.sandboxes import Sandbox

DENY: Json = {"decision": "deny"}
# A body, and what the error says about it.
NEVER: list[tuple[str, Json, str]] = [
    ("/consent-rules", DENY | {"wallet": "carol"}, "There is no wallet 'carol', but: alice, bob, shop"),
    ("/consent-rules", DENY | {"wallet": "http://127.0.0.1:9/alice"}, "but: alice, bob, shop"),
    ("/consent-rules", DENY | {"client": "nobody"}, "/shop"),
    ("/consent-rules", DENY | {"client": "bob"}, "/shop"),  # without a key
    ("/consent-rules", DENY | {"client": "http://127.0.0.1:9/shop"}, "/shop"),
    ("/consent-rules", DENY | {"client": "a b"}, "/shop"),
    ("/consent-rules", {"decision": "maybe"}, "decision (approve or deny)"),
    ("/payments", {"from": "carol", "bill": "x"}, "There is no from 'carol', but: alice, bob, shop"),
    *(
        ("/faults", {"fault": name, **members}, hint)
        for name, members, hint in (
            ("lost", {}, "There is no fault 'lost', but: unavailable, too_many_requests"),
            ("slow", {"operation": "create-bill"}, "There is no operation 'create-bill', but: create-incoming-payment"),
            ("slow", {"wallet": "carol"}, "alice, bob, shop"),
            ("slow", {"client": "bob"}, "/shop"),
            ("slow", {"operation": "get-wallet-address", "client": "shop"}, "is not signed"),
            ("slow", {"operation": "discover", "wallet": "bob"}, "is of no wallet"),
            ("expired_token", {"operation": "post-request"}, "has no access token"),
            ("revoked_grant", {"operation": "get-wallet-address"}, "has no access token"),
            ("revoked_token", {"operation": "post-continue"}, "has no access token"),
            ("expired_token", {"operation": "delete-continue"}, "has no access token"),
            ("bad_signature", {"operation": "get-wallet-address-keys"}, "has no signature"),
            ("duplicate_event", {"client": "shop"}, "has a wallet, but no client"),
            ("wrong_hash", {"operation": "post-request"}, "is not of an operation"),
            ("slow_settlement", {"operation": "create-quote"}, "happens to create-outgoing-payment"),
            ("receiver_unreachable", {"operation": "get-quote"}, "happens to create-quote and create-outgoing-payment"),
        )
    ),
]


@pytest.mark.parametrize(("path", "body", "hint"), NEVER)
def test_what_can_never_match_is_refused(sandbox: Sandbox, path: str, body: Json, hint: str) -> None:
    answer = sandbox.control.post(path, json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")
    assert hint in answer.json()["error"]["details"]["hint"]


@pytest.mark.parametrize("has_address", [False, True])
def test_either_form_of_a_name_matches(sandbox: Sandbox, has_address: bool) -> None:
    alice, shop = (sandbox.alice, sandbox.app.wallet_address) if has_address else ("ALICE", "shop")
    rule = sandbox.ask("POST", "/consent-rules", DENY | {"wallet": alice, "client": shop})
    assert (rule["wallet"], rule["client"]) == ("alice", sandbox.app.wallet_address)
    assert "result=grant_rejected" in str(sandbox.open(sandbox.redirect()))
    fault = {"fault": "unavailable", "operation": "post-request", "wallet": alice, "client": shop}
    sandbox.ask("POST", "/faults", fault)
    item = {"type": "quote", "actions": ["create"], "identifier": sandbox.alice}
    assert sandbox.app.request_grant(item).status_code == 503
    filters = urlencode({"wallet": alice, "client": shop, "fault": "unavailable", "operation": "post-request"})
    assert len(sandbox.ask("GET", f"/requests?{filters}")["requests"]) == 1
    for path in ("", "/keys/none"):
        sandbox.control.request(
            "DELETE" if path else "GET", f"/wallets/{quote(alice, safe='')}{path}"
        ).raise_for_status()
    assert sandbox.control.put(f"/wallets/{quote(alice, safe='')}", json={"balance": "7.00"}).status_code == 200


def test_client_of_another_server_is_known_by_its_keys(sandbox: Sandbox) -> None:
    [peer] = sandbox.peers
    rule = peer.ask("POST", "/consent-rules", DENY | {"client": sandbox.app.wallet_address})
    assert rule["client"] == sandbox.app.wallet_address
