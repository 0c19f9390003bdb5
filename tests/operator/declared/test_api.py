import re
from pathlib import Path

import httpx2
import pytest

from payres.core.protocol.clock import MINUTE, SECOND
from payres.operator.api_keys import SCOPES, revoke_api_key
from payres.operator.declared.api import admin_endpoints
from payres.operator.declared.declarations import Operation
from payres.operator.store.api_keys import API_KEYS
from tests.helpers import Json
from tests.instance import Instance, run_instance
from tests.operator.programs import BASE, DOCUMENT, NewProgram, Program

ENDPOINTS = [endpoint for endpoint in admin_endpoints() if endpoint.scopes]


def error_of(answer: httpx2.Response, status: int, code: str) -> Json:
    assert answer.status_code == status, answer.text
    error: Json = answer.json()["error"]
    assert error["code"] == code
    details: Json = error["details"]
    return details


def path_of(endpoint: Operation) -> str:
    return endpoint.path.replace("{", "").replace("}", "")


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda one: f"{one.method} {one.path}")
def test_every_endpoint_wants_a_key_with_its_scope(
    endpoint: Operation, program: Program, new_program: NewProgram
) -> None:
    url = f"{program.instance.base_url}{BASE}{path_of(endpoint)}"
    answer = program.http.request(endpoint.method, url)
    assert error_of(answer, 401, "invalid_token")["reason"] == "missing_token"
    assert answer.headers["www-authenticate"] == "Bearer"
    for scope in endpoint.scopes:
        other = new_program(*(SCOPES.keys() - {*scope.split("|")}))
        details = error_of(other.ask(endpoint.method, path_of(endpoint)), 403, "insufficient_access")
        assert (details["reason"], details["scope"]) == ("scope", scope)


@pytest.mark.parametrize("change", ["id", "secret", "prefix", "nothing left"])
def test_wrong_keys_are_all_alike(change: str, program: Program, new_program: NewProgram) -> None:
    prefix, key_id, secret = program.key.split("_", 2)
    key = {
        "id": f"{prefix}_{new_program('keys:read').id}_{secret}",
        "secret": f"{prefix}_{key_id}_{secret[:-1]}",
        "prefix": f"other_{key_id}_{secret}",
        "nothing left": "_",
    }[change]
    url = f"{program.instance.base_url}{BASE}/api-keys"
    answer = program.http.get(url, headers={"Authorization": f"Bearer {key}"})
    assert error_of(answer, 401, "invalid_token")["reason"] == "unknown_token"
    assert answer.headers["www-authenticate"] == "Bearer"


def test_key_ends_when_it_is_revoked_or_expires(program: Program, new_program: NewProgram) -> None:
    revoked = new_program("keys:read")
    revoked.get("/api-keys")
    program.instance.write(lambda work: revoke_api_key(work, revoked.id))
    assert error_of(revoked.ask("GET", "/api-keys"), 401, "invalid_token")["reason"] == "revoked_token"
    expiring = new_program("keys:read")
    program.instance.write(
        lambda work: (
            work.execute(
                "UPDATE api_key SET expires_at = ? WHERE id = ?", (work.now + 60 * SECOND, expiring.id)
            ).rowcount
        )
    )
    expiring.get("/api-keys")
    program.instance.clock.advance(60)
    assert error_of(expiring.ask("GET", "/api-keys"), 401, "invalid_token")["reason"] == "expired_token"


def test_use_is_written_down_once_a_minute(program: Program, new_program: NewProgram) -> None:
    user, instance = new_program("keys:read"), program.instance

    def last_used() -> int:
        record = instance.read(lambda work: API_KEYS.get(work, user.id))
        assert record is not None
        return record.last_used_at or 0

    user.get("/api-keys")
    first = last_used()
    user.get("/api-keys")
    assert last_used() == first > 0
    instance.clock.advance(60)
    user.get("/api-keys")
    assert last_used() >= first + MINUTE


def test_answer_to_a_copy_is_the_first_one(program: Program) -> None:
    wallet = program.instance.create_wallet("copied").rpartition("/")[2]
    body = {"amount": "10.00"}
    first = program.ask("POST", f"/wallets/{wallet}/deposits", body, "key-1")
    again = program.ask("POST", f"/wallets/{wallet}/deposits", body, "key-1")
    assert (first.status_code, again.status_code, again.content) == (201, 201, first.content)
    assert program.instance.balance(wallet) == "10.00"
    other = program.ask("POST", f"/wallets/{wallet}/deposits", {"amount": "11.00"}, "key-1")
    assert error_of(other, 422, "idempotency_key_reused")["reason"] == "body"
    elsewhere = program.ask("POST", f"/wallets/{wallet}/withdrawals", body, "key-1")
    assert error_of(elsewhere, 422, "idempotency_key_reused")["reason"] == "path"


def test_keys_of_two_programs_are_apart(program: Program, new_program: NewProgram) -> None:
    program.instance.create_wallet("apart")
    for one in (program, new_program("wallets:fund")):
        one.post("/wallets/apart/deposits", {"amount": "1.00"}, "key-apart")
    assert program.instance.balance("apart") == "2.00"


def test_what_shows_a_secret_is_kept_under_no_key(program: Program) -> None:
    body = {"name": "mine", "scopes": ["keys:read"]}
    details = error_of(program.ask("POST", "/api-keys", body, "key-2"), 400, "invalid_request")
    assert details["field"] == "Idempotency-Key"


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"first": "0"}, "first"),
        ({"first": "101"}, "first"),
        ({"last": "1"}, "cursor"),
        ({"first": "1", "last": "1", "cursor": "0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11"}, "last"),
        ({"cursor": "mine"}, "cursor"),
        ({"frist": "1"}, "frist"),
        ({"first": ["1", "1"]}, "first"),
    ],
)
def test_page_that_cannot_be_read_is_refused(params: Json, field: str, program: Program) -> None:
    assert error_of(program.ask("GET", "/wallets", **params), 400, "invalid_request")["field"] == field


def test_pages_lead_to_each_other(program: Program, new_program: NewProgram) -> None:
    made = [new_program("keys:read").id for _ in range(5)][::-1]
    first = program.get("/api-keys", first=2)
    assert [one["id"] for one in first["result"]] == made[:2]
    assert first["pagination"]["hasNextPage"]
    assert not first["pagination"]["hasPreviousPage"]
    second = program.get("/api-keys", first=2, cursor=first["pagination"]["endCursor"])
    assert [one["id"] for one in second["result"]] == made[2:4]
    back = program.get("/api-keys", last=2, cursor=second["pagination"]["startCursor"])
    assert back == first


@pytest.mark.parametrize("body", [{"name": "x"}, {"name": "x", "scopes": ["keys:read"], "more": 1}, [], "text"])
def test_body_that_breaks_a_rule_is_refused(body: object, program: Program) -> None:
    error_of(program.ask("POST", "/api-keys", body), 400, "invalid_request")


def test_other_methods_and_addresses(program: Program) -> None:
    assert program.ask("PUT", "/api-keys").status_code == 405
    error_of(program.ask("GET", "/nothing"), 404, "not_found")
    assert program.ask("GET", "/api-keys/").status_code == 200, "a slash at the end does not count"
    assert program.ask("HEAD", "/api-keys").status_code == 200


@pytest.mark.parametrize(
    "path", sorted(path for path, item in DOCUMENT["paths"].items() if "{" in path and "get" in item)
)
def test_errors_give_no_advice_for_a_shell(path: str, program: Program) -> None:
    hint = error_of(program.ask("GET", re.sub("{[^}]*}", "1", path.removeprefix(BASE))), 404, "not_found")["hint"]
    assert "payres " not in hint


def test_scripts_of_other_origins_are_never_let_in(payres: Instance, http: httpx2.Client) -> None:
    url = f"{payres.base_url}{BASE}/api-keys"
    asked = {"Origin": "https://a.example", "Access-Control-Request-Method": "GET"}
    for answer in (http.options(url, headers=asked), http.get(url, headers=asked)):
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_key_is_looked_at_though_its_address_guesses(http: httpx2.Client, tmp_path: Path) -> None:
    """Other clients behind the same proxy may have guessed keys from its address."""
    with run_instance(tmp_path / "payres.db", rate_limit_unauthenticated=1, admin_hosts="203.0.113.0/24") as instance:
        program = Program(instance, http, "keys:read")
        url, from_there = f"{instance.base_url}{BASE}/api-keys", {"X-Forwarded-For": "203.0.113.1"}
        while http.get(url, headers=from_there).status_code != 429:
            pass
        good = http.get(url, headers=from_there | {"Authorization": f"Bearer {program.key}"})
        bad = http.get(url, headers=from_there | {"Authorization": "Bearer payres_1_2"})
        assert (good.status_code, bad.status_code) == (200, 429)
