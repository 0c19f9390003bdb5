"""The faults of a sandbox, as an app meets them."""

import base64
import hashlib
import socket
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from tests.helpers import TIMEOUT, Json, usd, wait_until
from tests.openapi.conformance import UndocumentedAnswerError
from tests.signing_client import Client
from tests.testing.sandboxes import Sandbox, started
from tests.webhooks.endpoint import Endpoint

CREATE = "create-incoming-payment"
BILLS = {"type": "incoming-payment", "actions": ["create", "read"]}


@pytest.fixture
def app(sandbox: Sandbox) -> Iterator[Client]:
    """Without tokens of before a reset."""
    sandbox.ask("POST", "/consent-rules", {"decision": "approve"})
    with closing(sandbox.sign(sandbox.line["client"])) as app:
        yield app


def fault(sandbox: Sandbox, name: str, **members: Any) -> str:
    return str(sandbox.ask("POST", "/faults", {"fault": name, **members})["id"])


def used(sandbox: Sandbox, id: str) -> int:
    return int(sandbox.ask("GET", f"/faults/{id}")["used"])


def bills(sandbox: Sandbox) -> int:
    """How many there are, by what the operator sees."""
    return len(sandbox.admin.get("/payments").json()["result"])


def create(sandbox: Sandbox, app: Client, token: str) -> httpx2.Response:
    return app.request("POST", "/incoming-payments", {"walletAddress": sandbox.bob}, token)


@pytest.mark.parametrize(
    ("name", "status", "code", "is_done"),
    [
        ("unavailable", 503, "unavailable", False),
        ("too_many_requests", 429, "too_many_requests", False),
        ("internal_error", 500, "internal_error", False),
        ("bad_gateway", 502, None, True),
        ("lost_answer", None, None, True),
        ("no_answer", None, None, False),
        ("connection_reset", None, None, False),
        ("slow", 201, None, True),
        ("truncated", 201, None, True),
        ("expired_token", 401, "invalid_token", False),
        ("revoked_token", 401, "invalid_token", False),
        ("revoked_grant", 401, "invalid_token", False),
        ("rotated_key", 401, "invalid_client", False),
        ("bad_signature", 401, "invalid_client", False),
    ],
)
def test_fault_of_a_request(
    sandbox: Sandbox, app: Client, name: str, status: int | None, code: str | None, is_done: bool
) -> None:
    token = app.grant(BILLS)
    before = bills(sandbox)
    waits = {"seconds": 0.01} if name in {"slow", "no_answer"} else {}
    id = fault(sandbox, name, operation=CREATE, **waits)
    if name == "bad_gateway":  # which says nothing that payres would
        with pytest.raises(UndocumentedAnswerError, match="text/html"):
            create(sandbox, app, token)
    elif status is None or name == "truncated":
        with pytest.raises((httpx2.ReadError, httpx2.RemoteProtocolError)):
            create(sandbox, app, token)
    else:
        answer = create(sandbox, app, token)
        assert answer.status_code == status
        assert code is None or answer.json()["error"]["code"] == code
        assert answer.headers.get("retry-after") == {503: "0", 429: "0"}.get(status)
    assert bills(sandbox) == before + is_done
    assert used(sandbox, id) == 1
    [seen] = sandbox.ask("GET", f"/requests?fault={name}")["requests"]
    assert (seen["operation"], seen["status"], seen["code"]) == (CREATE, status, code)
    if name in {"rotated_key", "bad_signature"}:
        assert seen["reason"] == {"rotated_key": "unknown_key", "bad_signature": "signature_mismatch"}[name]
        assert 'keyid="key-1"' in seen["headers"]["signature-input"]
    works_then = name not in {"expired_token", "revoked_token", "revoked_grant"}
    assert create(sandbox, app, token).status_code == (201 if works_then else 401)


def test_reset_connection_sends_no_byte(sandbox: Sandbox) -> None:
    fault(sandbox, "connection_reset")
    address = urlsplit(sandbox.base_url)
    with socket.create_connection((address.hostname, address.port), timeout=TIMEOUT) as connection:
        connection.sendall(b"GET /alice HTTP/1.1\r\nHost: x\r\n\r\n")
        with pytest.raises(ConnectionResetError):
            connection.recv(1)


def test_token_that_really_expires_can_be_rotated(sandbox: Sandbox, app: Client) -> None:
    for name, rotated in [("expired_token", 200), ("revoked_token", 404), ("revoked_grant", 404)]:
        granted = app.request_grant(BILLS).json()["access_token"]
        fault(sandbox, name)
        assert create(sandbox, app, granted["value"]).status_code == 401
        path = urlsplit(granted["manage"]).path
        assert app.request("POST", path, None, granted["value"]).status_code == rotated, name


def test_filters_skip_times_and_order(sandbox: Sandbox, app: Client) -> None:
    other = sandbox.ask("POST", "/clients", {})["wallet_address"]
    standing = fault(sandbox, "unavailable", wallet="bob", times=None, operation="get-wallet-address")
    newest = fault(sandbox, "internal_error", wallet="bob", times=None, skip=1)
    first = fault(sandbox, "too_many_requests", wallet="bob", times=2, skip=1)
    never = fault(sandbox, "bad_gateway", client=other, times=None)
    seen = [httpx2.get(sandbox.bob).status_code for _ in range(5)]
    assert seen == [503, 429, 429, 500, 500]
    assert httpx2.get(sandbox.alice).status_code == 200
    assert [used(sandbox, one) for one in (standing, newest, first, never)] == [1, 2, 2, 0]
    sandbox.ask("DELETE", f"/faults/{newest}")
    assert httpx2.get(sandbox.bob).status_code == 503
    sandbox.ask("DELETE", "/faults")
    assert sandbox.ask("GET", "/faults") == {"faults": []}
    assert httpx2.get(sandbox.bob).status_code == 200


def test_faults_that_cannot_be(sandbox: Sandbox) -> None:
    for body, hint in [
        ({"fault": "slow", "x": 1}, "fault, operation"),
        ({"fault": "unavailable", "seconds": 1}, "does not wait"),
        ({"fault": "slow", "deliver": "1.00"}, "partial_failure"),
        ({"fault": "partial_failure"}, "needs it"),
        ({"fault": "partial_failure", "deliver": "-1"}, "deliver"),
        ({"fault": "slow", "times": 0}, "times"),
        ({}, "fault"),
    ]:
        answer = sandbox.control.post("/faults", json=body)
        assert answer.status_code == 400, body
        details = answer.json()["error"]["details"]
        assert any(word in details["hint"] for word in hint.split(", ")), (body, details)


@pytest.mark.parametrize("by_rule", [True, False])
def test_false_hash(sandbox: Sandbox, by_rule: bool) -> None:
    def ask(decision: str) -> Json:
        finish = {"method": "redirect", "uri": "http://127.0.0.1/done?a=1", "nonce": "n1"}
        answer = sandbox.app.request_grant(
            {"type": "outgoing-payment", "actions": ["create"], "identifier": sandbox.alice},
            interact={"start": ["redirect"], "finish": finish},
        ).json()["interact"]
        if by_rule:
            sandbox.ask("POST", "/consent-rules", {"decision": decision, "times": 1})
            target = sandbox.open(answer["redirect"])
        else:
            body = {"redirect": answer["redirect"], "decision": decision}
            target = sandbox.ask("POST", "/consents", body)["redirect"]
        found = parse_qs(urlsplit(target or "").query)
        if "hash" in found:
            text = "\n".join(("n1", answer["finish"], found["interact_ref"][0], f"{sandbox.base_url}/"))
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            return {"is_right": found["hash"] == [digest]}
        return {"result": found["result"]}

    id = fault(sandbox, "wrong_hash", wallet="alice")
    assert ask("deny") == {"result": ["grant_rejected"]}
    assert used(sandbox, id) == 0
    assert ask("approve") == {"is_right": False}
    assert ask("approve") == {"is_right": True}
    assert used(sandbox, id) == 1


def test_event_that_comes_twice(tmp_path_factory: pytest.TempPathFactory, endpoint: Endpoint) -> None:
    folder = tmp_path_factory.mktemp("webhook")
    with started(folder, "--webhook", endpoint.url) as (_, line), Sandbox(line) as sandbox:
        id = fault(sandbox, "duplicate_event", wallet="bob")
        for _ in range(2):
            sandbox.app.create_incoming_payment(sandbox.bob, usd(500))
        wait_until(lambda: len(created(endpoint)) == 3)
        assert len(set(created(endpoint))) == 2
        assert used(sandbox, id) == 1


def created(endpoint: Endpoint) -> list[str]:
    found = [one.event for one in endpoint.received]
    return [one["id"] for one in found if one["type"] == "incoming_payment.created"]


def test_packets_need_a_peer(tmp_path_factory: pytest.TempPathFactory) -> None:
    with started(tmp_path_factory.mktemp("alone")) as (_, line), Sandbox(line) as sandbox:
        assert sandbox.refused("POST", "/faults", {"fault": "slow_settlement"}) == (409, "wrong_state")


def remote_bill(sandbox: Sandbox) -> str:
    with closing(sandbox.peers[0].sign(sandbox.line["client"])) as there:
        return str(there.create_incoming_payment(sandbox.peers[0].bob, usd(500))["id"])


def read(sandbox: Sandbox, app: Client, payment: Json) -> Json:
    token = app.grant({"type": "outgoing-payment", "actions": ["read-all"], "identifier": sandbox.alice})
    found: Json = app.get(payment["id"], token).json()
    return found


def failed(sandbox: Sandbox, app: Client, payment: Json) -> Json:
    wait_until(lambda: read(sandbox, app, payment)["failed"])
    return read(sandbox, app, payment)


def test_receiver_that_cannot_be_reached(sandbox: Sandbox, app: Client) -> None:
    id = fault(sandbox, "receiver_unreachable", operation="create-quote")
    token = app.grant({"type": "quote", "actions": ["create"], "identifier": sandbox.alice})
    body = {"walletAddress": sandbox.alice, "receiver": remote_bill(sandbox), "method": "ilp"}
    answer = app.post("/quotes", body, token)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_receiver")
    assert app.post("/quotes", body, token).status_code == 201
    assert used(sandbox, id) == 1


@pytest.mark.parametrize(
    ("name", "members", "sent"),
    [
        ("receiver_unreachable", {"operation": "create-outgoing-payment"}, "0"),
        ("partial_failure", {"deliver": "2.009"}, "200"),
        ("partial_failure", {"deliver": "0", "wallet": "alice"}, "0"),
    ],
)
def test_payment_that_fails(sandbox: Sandbox, app: Client, name: str, members: Json, sent: str) -> None:
    local = app.create_incoming_payment(sandbox.bob, usd(500))["id"]
    bill = remote_bill(sandbox)
    id = fault(sandbox, name, **members)
    assert app.pay(sandbox.alice, local)["sentAmount"]["value"] == "500"
    payment = failed(sandbox, app, app.pay(sandbox.alice, bill))
    assert payment["sentAmount"]["value"] == sent
    assert used(sandbox, id) == 1
    assert sandbox.peers[0].balance("bob") == f"{1000 + int(sent) // 100}.00"
    assert sandbox.balance() == f"{1000 - 5 - int(sent) // 100}.00"
    [seen] = sandbox.ask("GET", f"/requests?fault={name}")["requests"]
    assert (seen["operation"], seen["status"]) == ("create-outgoing-payment", 201)
    app.pay(sandbox.alice, remote_bill(sandbox))
    wait_until(lambda: sandbox.peers[0].balance("bob") == f"{1005 + int(sent) // 100}.00")


def has_bob(sandbox: Sandbox, balance: str) -> bool:
    return sandbox.balance("bob") == balance


def test_packets_that_are_held(sandbox: Sandbox, app: Client) -> None:
    first, second, third = (remote_bill(sandbox) for _ in range(3))
    fault(sandbox, "slow_settlement", seconds=3600)
    fault(sandbox, "slow_settlement", seconds=0.01)
    held = app.pay(sandbox.alice, first)
    assert held["sentAmount"]["value"] == "0"
    for number, bill in enumerate((second, third), start=1):
        app.pay(sandbox.alice, bill)
        wait_until(partial(has_bob, sandbox.peers[0], f"{1000 + 5 * number}.00"))
    now = read(sandbox, app, held)
    assert (now["failed"], now["sentAmount"]["value"]) == (False, "0")
