"""`payres sandbox` as docs/sandbox.md promises it: a process of its own, asked over HTTP."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from payres.clock import SystemClock, parse_time
from payres.signatures.jwk import jwk_from_pem
from payres.testing.plugin import payres as payres
from tests.helpers import TIMEOUT, child, free_of_settings, is_refused, usd, wait_until
from tests.instance import Instance
from tests.signing_client import Client

Started = tuple["subprocess.Popen[str]", dict[str, Any]]


@contextmanager
def started(folder: Path, *options: str, **streams: Any) -> Iterator[Started]:
    command = [sys.executable, "-m", "payres", "sandbox", *options]
    inherited = free_of_settings(TMPDIR=str(folder), PAYRES_DATABASE=str(folder / "not-this.db"))
    given = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "env": inherited, "cwd": folder} | streams
    with child(command, **given) as process:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())


class Sandbox:
    def __init__(self, line: dict[str, Any]) -> None:
        self.line = line
        self.base_url: str = line["base_url"]
        token = {"Authorization": f"Bearer {line['control_token']}"}
        self.control = httpx2.Client(base_url=line["control_url"], headers=token, timeout=TIMEOUT)
        self.alice: str = line["wallets"]["alice"]["address"]
        self.bob: str = line["wallets"]["bob"]["address"]
        self.app = self.sign(line["client"])

    def sign(self, client: dict[str, str]) -> Client:
        pem = client["private_key"].encode()
        key = load_pem_private_key(pem, None)
        assert isinstance(key, Ed25519PrivateKey)
        jwk = jwk_from_pem(client["kid"], pem)
        return Client(client["wallet_address"], key, jwk, self.base_url, SystemClock(), self.open)

    def open(self, redirect: str) -> str | None:
        """Where a browser is sent that has no script and no password."""
        return httpx2.get(redirect).headers.get("location")

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = (
            self.control.request(method, path, json=body) if body is not None else self.control.request(method, path)
        )
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def refused(self, method: str, path: str, body: Any) -> tuple[int, str]:
        answer = self.control.request(method, path, json=body)
        return answer.status_code, answer.json()["error"]["code"]

    def redirect(self, **members: Any) -> str:
        item = {"type": "outgoing-payment", "actions": ["create"], "identifier": self.alice}
        return str(self.app.request_grant(item, **members).json()["interact"]["redirect"])

    def balance(self, path: str = "alice") -> str:
        return str(self.ask("GET", f"/wallets/{path}")["balance"])


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with started(tmp_path_factory.mktemp("sandbox")) as (_, line):
        found = Sandbox(line)
        yield found
        found.app.close()
        found.control.close()


@pytest.fixture
def sandbox(one: Sandbox) -> Sandbox:
    one.ask("POST", "/reset", {})
    return one


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
    kiosk.close()


def test_decides_on_one_grant(sandbox: Sandbox) -> None:
    for decision, parameter in (("approve", "interact_ref"), ("deny", "result")):
        redirect = sandbox.redirect()
        decided = sandbox.ask("POST", "/consents", {"redirect": redirect, "decision": decision})
        assert parameter in parse_qs(urlsplit(decided["redirect"]).query)
        body = {"redirect": redirect, "decision": decision}
        assert sandbox.refused("POST", "/consents", body) == (409, "wrong_state")
    assert sandbox.refused("POST", "/consents", {"redirect": "x"}) == (400, "invalid_request")


def test_rules_decide_in_their_order(sandbox: Sandbox) -> None:
    assert sandbox.open(sandbox.redirect()) is None, "without a rule the page asks"
    rules = [
        {"decision": "approve"},
        {"decision": "deny", "times": 1},
        {"decision": "deny", "times": 1, "client": sandbox.bob},
        {"decision": "deny", "wallet": "bob"},
    ]
    made = [sandbox.ask("POST", "/consent-rules", rule) for rule in rules]
    assert [rule["id"] for rule in made] == [rule["id"] for rule in sandbox.ask("GET", "/consent-rules")["rules"]]
    found = [str(sandbox.open(sandbox.redirect())) for _ in range(3)]
    assert ["result=grant_rejected" in target for target in found] == [True, False, False]
    assert sandbox.ask("GET", f"/consent-rules/{made[1]['id']}")["times"] == 0
    sandbox.ask("DELETE", f"/consent-rules/{made[0]['id']}")
    assert sandbox.refused("GET", f"/consent-rules/{made[0]['id']}", {}) == (404, "not_found")
    assert sandbox.open(sandbox.redirect()) is None


def test_rule_decides_at_once_where_no_finish_was_given(sandbox: Sandbox) -> None:
    sandbox.ask("POST", "/consent-rules", {"decision": "approve"})
    item = {"type": "outgoing-payment", "actions": ["create"], "identifier": sandbox.alice}
    asked = sandbox.app.request_grant(item, interact={"start": ["redirect"]}).json()["continue"]
    answer = sandbox.app.post(asked["uri"], None, asked["access_token"]["value"])
    assert "access_token" in answer.json(), answer.text


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
        ({}, 400),
        ({"set": "x"}, 400),
    ]:
        assert sandbox.control.post("/clock", json=body).status_code == status
    sandbox.ask("POST", "/reset", {})
    assert parse_time(sandbox.ask("GET", "/clock")["now"]) - before < TIMEOUT * 1_000_000


def test_expires_what_it_is_told_to(sandbox: Sandbox) -> None:
    bill = sandbox.app.create_incoming_payment(sandbox.bob, usd(500))
    quote = sandbox.app.create_quote(sandbox.alice, bill["id"])
    redirect = sandbox.redirect()
    token = sandbox.app.grant({"type": "incoming-payment", "actions": ["create", "read"]})
    for what in ({"url": quote["id"]}, {"url": redirect}, {"url": bill["id"]}, {"token": token}):
        assert sandbox.control.post("/expire", json=what).status_code == 204, what
    decision = {"redirect": redirect, "decision": "approve"}
    assert sandbox.refused("POST", "/consents", decision) == (400, "invalid_interaction")
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
    assert sandbox.refused("PUT", "/reset", {}) == (405, "method_not_allowed")


def test_other_servers_have_no_such_paths(payres: Instance) -> None:
    for path in ("/_sandbox", "/_sandbox/reset", "/_sandbox/clock"):
        assert httpx2.post(payres.base_url + path, json={}, headers={"Authorization": "Bearer x"}).status_code in {
            404,
            405,
        }


def test_ends_with_standard_input_and_by_signals(tmp_path: Path) -> None:
    for number, how in enumerate(("stdin", "terminate")):
        folder = tmp_path / str(number)
        folder.mkdir()
        with started(folder) as (process, line):
            assert process.stdin is not None
            assert len(list(folder.iterdir())) == 1, "its folder, and no database of settings"
            (process.stdin.close if how == "stdin" else process.terminate)()
            assert process.wait(TIMEOUT) == 0
            assert is_refused(urlsplit(line["base_url"]).port or 0)
        assert list(folder.iterdir()) == []


def test_ends_with_its_parent(tmp_path: Path) -> None:
    script = f"{sys.executable} -m payres sandbox < /dev/null & sleep 300"
    with child(["sh", "-c", script], stdout=subprocess.PIPE, env=free_of_settings(TMPDIR=str(tmp_path))) as process:
        assert process.stdout is not None
        port = urlsplit(json.loads(process.stdout.readline())["base_url"]).port or 0
        assert not is_refused(port), "/dev/null is no leash"
        process.kill()
        wait_until(lambda: is_refused(port), seconds=TIMEOUT)
        wait_until(lambda: list(tmp_path.iterdir()) == [], seconds=TIMEOUT)


def test_start_that_fails_says_why(one: Sandbox, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "payres", "sandbox", "--port", str(urlsplit(one.base_url).port)]
    done = subprocess.run(command, env=free_of_settings(), capture_output=True, text=True, timeout=TIMEOUT)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: The sandbox did not start")


def test_consent_by_flag(tmp_path: Path) -> None:
    with started(tmp_path, "--consent", "deny") as (_, line):
        sandbox = Sandbox(line)
        assert "grant_rejected" in str(sandbox.open(sandbox.redirect()))
        sandbox.app.close()
        sandbox.control.close()
