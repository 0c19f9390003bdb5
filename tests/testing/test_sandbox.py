"""The control API of `payres sandbox` as docs/sandbox.md promises it."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2

from payres.core.protocol.clock import DAY, SECOND, SystemClock, parse_time
from payres.testing.clock import MovableClock
from payres.testing.plugin import payres as payres
from tests.helpers import TIMEOUT, usd, wait_until
from tests.instance import Instance
from tests.testing.sandboxes import Sandbox
from tests.webhooks.endpoint import Endpoint, answering


def test_line_says_all_that_a_test_needs(sandbox: Sandbox) -> None:
    state = sandbox.ask("GET", "/")
    assert sandbox.line.items() <= state.items()
    assert abs(parse_time(state["now"]) - SystemClock().now()) < TIMEOUT * 1_000_000
    wallet = {"address": sandbox.alice, "asset_code": "USD", "asset_scale": 2, "balance": "1000.00"}
    assert sandbox.line["wallets"]["alice"] == sandbox.ask("GET", "/wallets/alice") == wallet


def test_money_moves_and_a_reset_brings_it_back(sandbox: Sandbox) -> None:
    sandbox.ask("POST", "/consent-rules", {"decision": "approve"})
    generation = sandbox.ask("GET", "/")["generation"]
    bill = sandbox.app.create_incoming_payment(sandbox.bob, usd(500))
    sandbox.app.pay(sandbox.alice, bill["id"])
    assert (sandbox.balance(), sandbox.balance("bob")) == ("995.00", "1005.00")
    sandbox.ask("PUT", "/wallets/carol", {"balance": "1.00"})
    assert sandbox.ask("POST", "/reset", {}) == {"generation": generation + 1}
    assert (sandbox.balance(), sandbox.balance("bob")) == ("1000.00", "1000.00")
    assert sandbox.ask("GET", "/consent-rules") == {"rules": []}
    assert sandbox.refused("GET", "/wallets/carol", {}) == (404, "not_found")
    assert httpx2.get(f"{sandbox.base_url}/carol").status_code == 404


def test_wallets_are_made_so(sandbox: Sandbox) -> None:
    for wanted, status, balance in [
        ({"asset_code": "EUR", "balance": "50.00", "name": "Carol"}, 201, "50.00"),
        ({"balance": "70.00"}, 200, "70.00"),
        ({"balance": "0.00", "active": False}, 200, "0.00"),
        ({"balance": "3.00", "active": True}, 200, "3.00"),
        ({"asset_code": "USD"}, 409, "3.00"),
        ({"asset_scale": 3}, 409, "3.00"),
        ({"balance": "x"}, 400, "3.00"),
        ({"colour": "red"}, 400, "3.00"),
        ({"asset_scale": "2"}, 400, "3.00"),
    ]:
        assert sandbox.control.put("/wallets/carol", json=wanted).status_code == status, wanted
        assert sandbox.balance("carol") == balance
    made = [sandbox.ask("POST", "/wallets", {"balance": "1.00"})["address"] for _ in range(2)]
    assert len(set(made)) == 2
    assert httpx2.get(made[0]).json()["assetCode"] == "USD"


def test_clients_and_keys(sandbox: Sandbox) -> None:
    made = sandbox.ask("POST", "/clients", {"name": "Kiosk"})
    kiosk, path = sandbox.sign(made), urlsplit(made["wallet_address"]).path[1:]
    item = {"type": "incoming-payment", "actions": ["read"]}
    assert kiosk.request_grant(item).status_code == 200
    for _ in range(2):
        sandbox.ask("DELETE", f"/wallets/{path}/keys/key-1")
    assert kiosk.request_grant(item).status_code != 200
    for _ in range(2):
        sandbox.ask("PUT", f"/wallets/{path}/keys/key-1", {"pem": made["private_key"]})
    assert kiosk.request_grant(item).status_code == 200
    sandbox.ask("PUT", f"/wallets/{path}/keys/key-1", {"jwk": {"kty": "OKP", "crv": "Ed25519", "x": sandbox.app.jwk.x}})
    assert kiosk.request_grant(item).status_code != 200
    for body in ({}, {"pem": "x"}, {"jwk": {"kty": "RSA"}}):
        assert sandbox.refused("PUT", f"/wallets/{path}/keys/key-2", body) == (400, "invalid_request")
    empty = sandbox.control.put(f"/wallets/{path}/keys/key-2", json={"jwk": {}}).json()["error"]["details"]
    assert empty["field"] == "jwk"
    assert "PEM" not in empty["hint"]
    kiosk.close()


def test_decides_on_one_grant(sandbox: Sandbox) -> None:
    for decision, parameter in (("approve", "interact_ref"), ("deny", "result")):
        redirect = sandbox.redirect()
        decided = sandbox.ask("POST", "/consents", {"redirect": redirect, "decision": decision})
        assert parameter in parse_qs(urlsplit(decided["redirect"]).query)
        body = {"redirect": redirect, "decision": decision}
        assert sandbox.refused("POST", "/consents", body) == (409, "wrong_state")
        assert sandbox.refused("POST", "/consents", {"grant": decided["grant"]}) == (409, "wrong_state")
    sandbox.redirect()
    grant = sandbox.admin.get("/grants").json()["result"][0]["id"]
    assert sandbox.ask("POST", "/consents", {"grant": grant})["grant"] == grant
    assert sandbox.refused("POST", "/consents", {"grant": "x"}) == (404, "not_found")
    assert sandbox.refused("POST", "/consents", {}) == (400, "invalid_request")
    assert sandbox.refused("POST", "/consents", {"redirect": "x"}) == (400, "invalid_request")


def test_rules_decide_in_their_order(sandbox: Sandbox) -> None:
    assert sandbox.open(sandbox.redirect()) is None, "without a rule the page asks"
    rules = [
        {"decision": "approve"},
        {"decision": "deny", "times": 1},
        {"decision": "deny", "times": 1, "client": sandbox.ask("POST", "/clients", {})["wallet_address"]},
        {"decision": "deny", "wallet": "bob"},
    ]
    made = [sandbox.ask("POST", "/consent-rules", rule) for rule in rules]
    assert [rule["id"] for rule in made] == [rule["id"] for rule in sandbox.ask("GET", "/consent-rules")["rules"]]
    found = [str(sandbox.open(sandbox.redirect())) for _ in range(3)]
    assert ["result=grant_rejected" in target for target in found] == [True, False, False]
    assert [sandbox.ask("GET", f"/consent-rules/{rule['id']}")["used"] for rule in made] == [2, 1, 0, 0]
    sandbox.ask("DELETE", f"/consent-rules/{made[0]['id']}")
    assert sandbox.refused("GET", f"/consent-rules/{made[0]['id']}", {}) == (404, "not_found")
    assert sandbox.open(sandbox.redirect()) is None


def test_rule_decides_without_a_finish_url_and_later(sandbox: Sandbox) -> None:
    for delay in (0, 0.01, 3600):
        sandbox.ask("POST", "/consent-rules", {"decision": "approve", "times": 1, "delay": delay})
        follow = continuing(sandbox)
        if delay == 0.01:
            wait_until(lambda: "access_token" in follow(), pause=0.05)  # noqa: B023 - called here
        else:
            assert ("access_token" in follow()) == (not delay)
    sandbox.ask("POST", "/consent-rules", {"decision": "approve", "delay": 0.01})
    assert "interact_ref" in str(sandbox.open(sandbox.redirect()))


def continuing(sandbox: Sandbox) -> Callable[[], dict[str, Any]]:
    """Asks for a grant without a finish URL; what asks whether it is given."""
    item = {"type": "outgoing-payment", "actions": ["create"], "identifier": sandbox.alice}
    asked = sandbox.app.request_grant(item, interact={"start": ["redirect"]}).json()

    def follow() -> dict[str, Any]:
        nonlocal asked
        asked = sandbox.app.post(asked["continue"]["uri"], None, asked["continue"]["access_token"]["value"]).json()
        return dict(asked)

    return follow


def test_clock_goes_forward_and_apps_sign_by_their_own(sandbox: Sandbox) -> None:
    token = sandbox.app.grant({"type": "incoming-payment", "actions": ["create"]})
    before = parse_time(sandbox.ask("GET", "/clock")["now"])
    assert parse_time(sandbox.ask("POST", "/clock", {"advance": 86_400})["now"]) - before >= 86_400 * 1_000_000
    answer = sandbox.app.post("/incoming-payments", {"walletAddress": sandbox.bob}, token)
    assert (answer.status_code, answer.json()["error"]["details"]["reason"]) == (401, "expired_token")
    assert sandbox.ask("POST", "/clock", {"set": "2120-01-01T00:00:00Z"})["now"].startswith("2120-01-01T00:00:0")
    for body, status in [
        ({"set": "2027-01-01T00:00:00Z"}, 409),
        ({"advance": -1}, 409),
        ({"advance": 7 * 365 * 86_400}, 400),
        ({}, 400),
        ({"set": "x"}, 400),
    ]:
        assert sandbox.control.post("/clock", json=body).status_code == status
    sandbox.ask("POST", "/reset", {})
    assert parse_time(sandbox.ask("GET", "/clock")["now"]) - before < TIMEOUT * 1_000_000


def test_signature_is_fresh_by_real_time_or_the_sandboxs(sandbox: Sandbox) -> None:
    sandbox.ask("POST", "/clock", {"advance": 86_400})
    for ahead, status in [(0, 200), (DAY, 200), (DAY // 2, 401), (-DAY, 401)]:
        app = sandbox.sign(sandbox.line["client"], MovableClock(SystemClock().now() + ahead, frozen=True))
        assert app.request_grant({"type": "incoming-payment", "actions": ["read"]}).status_code == status, ahead
        app.close()


def test_clock_stands_still_and_runs_on(sandbox: Sandbox) -> None:
    frozen = sandbox.ask("POST", "/clock", {"frozen": True})
    assert frozen == {**sandbox.ask("GET", "/clock"), "settled": True}
    set_to = sandbox.ask("POST", "/clock", {"set": "2120-01-01T00:00:00Z"})
    assert set_to == {"now": "2120-01-01T00:00:00.000Z", "frozen": True, "settled": True}
    running = sandbox.ask("POST", "/clock", {"frozen": False, "advance": 1})
    assert parse_time(running["now"]) - parse_time(set_to["now"]) < TIMEOUT * SECOND
    wait_until(lambda: sandbox.ask("GET", "/clock")["now"] > running["now"])


@contextmanager
def webhook(sandbox: Sandbox) -> Iterator[tuple[Endpoint, str]]:
    """An endpoint, and the secret of its webhook."""
    with Endpoint().running() as endpoint:
        added = sandbox.admin.post("/webhooks", json={"url": endpoint.url, "private": True})
        yield endpoint, added.json()["secret"]


def test_leap_does_what_is_due_and_a_webhook_is_tried_once(sandbox: Sandbox) -> None:
    sandbox.ask("POST", "/clock", {"advance": DAY // SECOND * 400})
    with webhook(sandbox) as (endpoint, secret):
        endpoint.answer = answering(500, 500, 200)
        sandbox.app.create_incoming_payment(sandbox.bob, usd(500))
        endpoint.wait_for(1)
        for number in (2, 3):
            assert sandbox.ask("POST", "/clock", {"advance": 3600})["settled"]
            assert len(endpoint.received) == number
        assert sandbox.ask("POST", "/clock", {"advance": 40 * 86_400})["settled"]
        created, expired = endpoint.received[2:]
        assert [one.event["type"] for one in (created, expired)] == [
            "incoming_payment.created",
            "incoming_payment.expired",
        ]
        sent = int(created.headers["webhook-timestamp"])
        assert abs(sent - SystemClock().now() // SECOND) < TIMEOUT, "receivers check it by their clock"
        created.verified(secret)


def test_reset_ends_what_is_under_way(sandbox: Sandbox) -> None:
    rule = sandbox.ask("POST", "/consent-rules", {"decision": "approve", "delay": 3600})
    release = threading.Event()
    with ThreadPoolExecutor() as others, webhook(sandbox) as (endpoint, _):
        endpoint.answer = lambda _: (200 if release.wait(TIMEOUT) else 500, {})
        opened = others.submit(httpx2.get, sandbox.redirect(), timeout=TIMEOUT)
        wait_until(lambda: sandbox.ask("GET", f"/consent-rules/{rule['id']}")["used"] == 1)
        sandbox.app.create_incoming_payment(sandbox.bob)
        endpoint.wait_for(1)
        moved = others.submit(sandbox.refused, "POST", "/clock", {"advance": 1})
        wait_until(lambda: parse_time(sandbox.ask("GET", "/clock")["now"]) - SystemClock().now() > SECOND // 2)
        resets = [others.submit(sandbox.ask, "POST", "/reset", {}) for _ in range(2)]
        first, second = sorted(reset.result()["generation"] for reset in resets)
        assert second == first + 1
        assert opened.result().status_code == 503
        assert moved.result() == (409, "wrong_state")
        release.set()


def test_repeated_under_a_key_it_is_done_once(sandbox: Sandbox) -> None:
    def post(path: str, body: Any, key: str = "k") -> httpx2.Response:
        return sandbox.control.post(path, json=body, headers={"Idempotency-Key": key})

    with ThreadPoolExecutor() as others:
        made = {answer.text for answer in others.map(lambda _: post("/wallets", {}), range(4))}
    assert len(made) == 1
    assert post("/wallets", {}, "other").text not in made
    for path, body in (("/wallets", {"name": "Other"}), ("/clients", {})):
        refused = post(path, body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "wrong_state")
    assert [post("/wallets", {"asset_code": ""}, "refused").status_code for _ in range(2)] == [400, 400]
    sandbox.ask("POST", "/reset", {})
    assert post("/wallets", {}).text not in made


def test_unknown_members_are_refused_with_the_names_of_those_there_are(sandbox: Sandbox) -> None:
    for path, names in [
        ("/wallets", "asset_code, asset_scale, balance, name, active"),
        ("/consent-rules", "times, wallet, client, decision (approve or deny), delay"),
        ("/reset", "none"),
    ]:
        error = sandbox.control.post(path, json={"decision": "deny", "colour": "red"}).json()["error"]
        assert error["code"] == "invalid_request"
        assert error["details"]["hint"].endswith(f"The members are: {names}")


def test_token_is_an_operators_key_with_every_scope(sandbox: Sandbox) -> None:
    assert sandbox.admin.put("/assets/USD/2/fee", json={"fixed": "0.10"}).status_code == 200
    bill = sandbox.app.create_incoming_payment(sandbox.bob, usd(500))
    assert sandbox.app.create_quote(sandbox.alice, bill["id"])["debitAmount"] == usd(510)
    assert sandbox.admin.get("/grants", headers={"Authorization": "Bearer x"}).status_code == 401


def test_payment_to_the_peer_arrives_and_costs_what_the_operators_say(sandbox: Sandbox) -> None:
    [peer] = sandbox.peers
    assert sandbox.line.keys() == peer.line.keys()
    assert sandbox.line["control_token"] == peer.line["control_token"]
    sandbox.admin.put("/assets/USD/2/fee", json={"fixed": "0.10"})
    peer.ask("PUT", "/wallets/carol", {"asset_code": "EUR"})
    for one in (sandbox, peer):
        assert one.admin.put("/rates/USD/EUR", json={"rate": "0.5"}).status_code == 200
    peer.admin.post("/assets/EUR/2/liquidity/deposits", json={"amount": "100.00"})
    sandbox.ask("POST", "/consent-rules", {"decision": "approve"})
    there = peer.sign(sandbox.line["client"])  # its key is published at the first
    bill = there.create_incoming_payment(
        f"{peer.base_url}/carol", {"value": "500", "assetCode": "EUR", "assetScale": 2}
    )
    payment = sandbox.app.pay(sandbox.alice, bill["id"])
    wait_until(lambda: peer.balance("carol") == "5.00", lambda: str(payment))
    wait_until(lambda: sandbox.balance() == "989.90")
    there.close()

    peer.ask("POST", "/clock", {"advance": 86_400})
    assert parse_time(sandbox.ask("GET", "/clock")["now"]) - SystemClock().now() > DAY // 2
    assert peer.ask("GET", "/consent-rules") == {"rules": []}
    generation = peer.ask("POST", "/reset", {})["generation"]
    assert (sandbox.balance(), sandbox.ask("GET", "/")["generation"]) == ("1000.00", generation)
    assert peer.refused("GET", "/wallets/carol", {}) == (404, "not_found")


def test_owner_pays_a_bill_in_one_call(sandbox: Sandbox) -> None:
    [peer] = sandbox.peers
    bill, of_any = (sandbox.app.create_incoming_payment(sandbox.bob, *asked)["id"] for asked in ([usd(500)], []))
    with closing(peer.sign(sandbox.line["client"])) as there:
        remote = there.create_incoming_payment(peer.bob, usd(300))["id"]
    paid = sandbox.ask("POST", "/payments", {"from": "alice", "bill": bill})
    assert (paid["walletAddress"], paid["receiver"], paid["sentAmount"]) == (sandbox.alice, bill, usd(500))
    sandbox.ask("POST", "/payments", {"from": sandbox.alice, "bill": of_any, "amount": "1.00"})
    assert sandbox.ask("POST", "/payments", {"from": "alice", "bill": remote})["receiveAmount"] == usd(300)
    wait_until(lambda: peer.balance("bob") == "1003.00")
    wait_until(lambda: (sandbox.balance(), sandbox.balance("bob")) == ("991.00", "1006.00"))
    [event] = sandbox.ask("GET", "/events?type=incoming_payment.completed&wallet=bob")["events"]
    assert event["data"]["id"] == bill
    sandbox.ask("PUT", "/wallets/closed", {"balance": "1.00", "active": False})
    for body, status, field, says in [
        ({"from": "alice", "bill": bill}, 400, "bill", "bill cannot be paid: the incoming payment is completed"),
        ({"from": "bob", "bill": of_any}, 400, "bill", "bill cannot be paid: it is the wallet that pays"),
        ({"from": "alice", "bill": of_any}, 400, "amount", "say in amount what leaves the wallet"),
        ({"from": "alice", "bill": sandbox.bob, "amount": "1.00"}, 400, "bill", "bill is the URL of"),
        ({"from": "closed", "bill": of_any, "amount": "1.00"}, 400, "from", "from is not an active wallet"),
        ({"from": "shop", "bill": of_any, "amount": "1.00"}, 409, None, "does not have the USD 1.00 that"),
    ]:
        answer = sandbox.control.post("/payments", json=body)
        details = answer.json()["error"]["details"]
        assert (answer.status_code, details.get("field")) == (status, field), body
        assert says in details["hint"]


def test_expires_what_it_is_told_to(sandbox: Sandbox) -> None:
    bill = sandbox.app.create_incoming_payment(sandbox.bob, usd(500))
    quote = sandbox.app.create_quote(sandbox.alice, bill["id"])
    redirect = sandbox.redirect()
    token = sandbox.app.grant({"type": "incoming-payment", "actions": ["create", "read"]})
    for what in ({"url": quote["id"]}, {"url": redirect}, {"url": bill["id"]}, {"token": token}):
        assert sandbox.control.post("/expire", json=what).status_code == 204, what
    decision = {"redirect": redirect, "decision": "approve"}
    assert sandbox.refused("POST", "/consents", decision) == (400, "invalid_request")
    assert sandbox.app.get(bill["id"], token).json()["error"]["details"]["reason"] == "expired_token"
    fresh = sandbox.app.grant({"type": "incoming-payment", "actions": ["read"]})
    assert parse_time(sandbox.app.get(bill["id"], fresh).json()["expiresAt"]) <= SystemClock().now()
    for body, status in [({}, 400), ({"token": "x"}, 404), ({"url": "x"}, 400), ({"url": bill["id"] + "0"}, 404)]:
        assert sandbox.control.post("/expire", json=body).status_code == status


def test_only_who_has_the_token_controls_it(sandbox: Sandbox) -> None:
    url, token = sandbox.line["control_url"], {"Authorization": f"Bearer {sandbox.line['control_token']}"}
    for headers, status in [
        ({}, 401),
        ({"Authorization": "Bearer x"}, 401),
        (token | {"Host": "attacker.example"}, 404),
        (token | {"X-Forwarded-For": "203.0.113.7"}, 404),
    ]:
        assert httpx2.post(f"{url}/reset", json={}, headers=headers).status_code == status
    assert sandbox.refused("POST", "/nothing", {}) == (404, "not_found")
    assert sandbox.refused("PUT", "/reset", {}) == (404, "not_found")


def test_other_servers_have_no_such_paths(payres: Instance) -> None:
    for path in ("/_sandbox", "/_sandbox/reset", "/_sandbox/clock"):
        assert httpx2.post(payres.base_url + path, json={}, headers={"Authorization": "Bearer x"}).status_code in {
            404,
            405,
        }
