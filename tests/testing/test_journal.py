"""The requests that a sandbox has answered, as tests see them."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlencode

import httpx2

from payres.core.protocol.clock import SECOND, MovableClock, SystemClock
from tests.helpers import Json, usd, wait_until
from tests.testing.sandboxes import Sandbox

READ_BILLS = {"type": "incoming-payment", "actions": ["read"]}


def requests(sandbox: Sandbox, **wanted: Any) -> list[Json]:
    found: list[Json] = sandbox.ask("GET", f"/requests?{urlencode(wanted)}")["requests"]
    return found


def last(sandbox: Sandbox, **wanted: Any) -> Json:
    return requests(sandbox, **wanted)[-1]


def test_requests_of_a_payment(sandbox: Sandbox) -> None:
    sandbox.ask("POST", "/consent-rules", {"decision": "approve"})
    app = sandbox.sign(sandbox.line["client"])  # one without tokens from before a reset
    bill = app.create_incoming_payment(sandbox.bob, usd(500))
    app.pay(sandbox.alice, bill["id"])
    app.close()
    httpx2.get(sandbox.bob)
    found = requests(sandbox)
    shop = sandbox.line["client"]["wallet_address"]
    assert [(one["operation"], one["wallet"], one["client"], one["status"]) for one in found] == [
        ("post-request", "bob", shop, 200),
        ("create-incoming-payment", "bob", shop, 201),
        ("post-request", "alice", shop, 200),
        ("create-quote", "alice", shop, 201),
        ("post-request", "alice", shop, 200),
        (None, "alice", shop, 302),
        ("post-continue", "alice", shop, 200),
        ("create-outgoing-payment", "alice", shop, 201),
        ("get-wallet-address", "bob", None, 200),
    ]
    assert [one["seq"] for one in found] == sorted({one["seq"] for one in found})
    assert {one["url"].startswith(f"{sandbox.base_url}/") for one in found} == {True}
    for wanted, expected in [
        ({"operation": "create-quote"}, found[3:4]),
        ({"wallet": "bob"}, [*found[:2], found[8]]),
        ({"client": shop, "status": 201}, [found[1], found[3], found[7]]),
        ({"fault": "slow"}, []),
        ({"status": 503, "wait": 0.01}, []),
    ]:
        assert requests(sandbox, **wanted) == expected, wanted
    sandbox.ask("DELETE", "/requests")
    assert requests(sandbox) == []


def test_one_request_with_all_that_is_known_of_it(sandbox: Sandbox) -> None:
    token = sandbox.app.grant({"type": "incoming-payment", "actions": ["create"]})
    path = "/incoming-payments?secret=x"
    headers = {"Cookie": "one=0123456789; two=0123456789", "Idempotency-Key": "k"}
    body = {"walletAddress": sandbox.bob, "metadata": {"token": "0123456789"}}
    for _ in range(2):
        assert sandbox.app.request("POST", path, body, token, headers).status_code == 201
    first, second = requests(sandbox, operation="create-incoming-payment")
    assert (first["replayed"], second["replayed"]) == (False, True)
    assert first["headers"]["authorization"] == f"GNAP {token[:6]}..."
    assert first["headers"]["cookie"] == "one=012345...; two=012345..."
    assert first["body"] == f'{{"walletAddress": "{sandbox.bob}", "metadata": {{"token": "012345..."}}}}'
    assert first["url"] == sandbox.base_url + path
    assert first["milliseconds"] > 0
    verifier = first["verifier"]
    assert (verifier["verdict"], verifier["kid"]) == ("valid", "key-1")
    assert {"@method", "@target-uri", "authorization", "content-digest"} <= set(verifier["components"])
    assert abs(verifier["created"] - SystemClock().now() // SECOND) < 3600
    base = verifier["signature_base"].splitlines()
    assert f'"@target-uri": {sandbox.base_url}{path}' in base
    assert f'"authorization": GNAP {token[:6]}...' in base


def test_what_the_verifier_says(sandbox: Sandbox) -> None:
    old = sandbox.sign(sandbox.line["client"], MovableClock(SystemClock().now() - 3600 * SECOND, frozen=True))
    other = sandbox.sign({**sandbox.ask("POST", "/clients", {}), "wallet_address": sandbox.app.wallet_address})
    ghost = sandbox.sign({**sandbox.line["client"], "kid": "key-2"})
    token = sandbox.app.grant({"type": "incoming-payment", "actions": ["create"]})
    cases: list[tuple[Callable[[], object], str, str | None, str | None]] = [
        (lambda: sandbox.app.request_grant(READ_BILLS), "valid", None, None),
        (lambda: sandbox.app.request_grant({"type": "x"}), "valid", "invalid_request", None),
        (lambda: old.request_grant(READ_BILLS), "refused", "invalid_client", "created_too_old"),
        (lambda: other.request_grant(READ_BILLS), "refused", "invalid_client", "signature_mismatch"),
        (lambda: ghost.request_grant(READ_BILLS), "refused", "invalid_client", "unknown_key"),
        (
            lambda: httpx2.post(sandbox.base_url, json={"client": sandbox.bob}),
            "unsigned",
            "invalid_client",
            "missing_signature",
        ),
        (lambda: sandbox.app.get("/quotes/1", "unknown"), "refused", "invalid_token", "unknown_token"),
        (lambda: sandbox.app.get("/alice"), "unsigned", None, None),
        (lambda: sandbox.app.request("POST", "/incoming-payments", {}, token), "valid", "invalid_request", None),
    ]
    for ask, verdict, code, reason in cases:
        ask()
        found = last(sandbox)
        verifier = found["verifier"]
        assert (verifier["verdict"], found["code"], found["reason"]) == (verdict, code, reason)
        assert verifier["reason"] == (reason if code == "invalid_client" else None)
        assert (verifier["signature_base"] is None) == (reason == "missing_signature")
    for one in (old, other, ghost):
        one.close()


def test_verdict_on_a_signature_that_was_not_looked_at(sandbox: Sandbox) -> None:
    old = sandbox.sign(sandbox.line["client"], MovableClock(SystemClock().now() - 3600 * SECOND, frozen=True))
    sandbox.ask("POST", "/faults", {"fault": "unavailable", "operation": "post-request", "times": None})
    for client, expected in [(sandbox.app, ("valid", None)), (old, ("refused", "created_too_old"))]:
        assert client.request_grant(READ_BILLS).status_code == 503
        found = last(sandbox)["verifier"]
        assert (found["verdict"], found["reason"]) == expected
    old.close()


def test_body_that_is_nested_too_deeply_is_answered_and_noted(sandbox: Sandbox) -> None:
    answer = httpx2.post(sandbox.base_url, content=b'{"a":' * 10_000, headers={"Content-Type": "application/json"})
    assert (answer.status_code, last(sandbox)["status"]) == (401, 401)


def test_body_that_is_too_long_is_not_kept_for_a_fault(sandbox: Sandbox) -> None:
    sandbox.ask("POST", "/faults", {"fault": "unavailable", "operation": "get-quote"})
    answer = httpx2.post(f"{sandbox.base_url}/quotes", content=(b"x" * 65_536 for _ in range(100)))
    assert answer.status_code == 413
    assert len(last(sandbox)["body"]) < 1_000_000


def test_waits_for_a_request_that_fits(sandbox: Sandbox) -> None:
    httpx2.get(sandbox.bob)
    cursor = sandbox.ask("GET", "/requests")["cursor"]
    with ThreadPoolExecutor() as others:
        waiting = others.submit(requests, sandbox, after=cursor, wallet="bob", wait=30)
        for wallet in (sandbox.alice, sandbox.bob):
            httpx2.get(wallet)
        assert [one["wallet"] for one in waiting.result()] == ["bob"]
    sandbox.ask("POST", "/reset", {})
    assert requests(sandbox) == []
    assert sandbox.refused("GET", f"/requests?after={cursor}", None) == (409, "wrong_state")


def test_requests_of_servers_to_each_other_are_in_the_journal_of_the_one_asked(sandbox: Sandbox) -> None:
    [peer] = sandbox.peers
    sandbox.ask("POST", "/consent-rules", {"decision": "approve"})
    there = peer.sign(sandbox.line["client"])
    bill = there.create_incoming_payment(peer.bob, usd(500))
    there.close()
    sandbox.ask("DELETE", "/requests")
    sandbox.app.pay(sandbox.alice, bill["id"])
    wait_until(lambda: peer.balance("bob") == "1005.00")
    found = requests(peer)
    assert {one["client"] for one in found if one["operation"] == "get-incoming-payment"} <= {
        None,
        f"{sandbox.base_url}/.well-known/pay",
    }
    assert any(one["url"].endswith("/ilp") and one["body"] is None for one in found)
    assert requests(sandbox, operation="create-incoming-payment") == []
