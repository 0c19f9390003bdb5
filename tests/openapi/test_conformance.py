import json
from typing import Any

import pytest

from payres.testing.instance import Instance
from tests.openapi import documents
from tests.openapi.conformance import Answer, UndocumentedAnswerError, check_answer

USD_1 = {"value": "100", "assetCode": "USD", "assetScale": 2}
WALLET = {
    "id": "http://h/alice",
    "assetCode": "USD",
    "assetScale": 2,
    "authServer": "http://h/",
    "resourceServer": "http://h",
}
PAYMENT = {
    "id": "http://h/incoming-payments/1",
    "walletAddress": "http://h/alice",
    "completed": False,
    "receivedAmount": USD_1,
    "expiresAt": "2026-02-01T00:00:00.000Z",
    "createdAt": "2026-01-01T00:00:00.000Z",
}
PAGE = {"pagination": {"hasNextPage": False, "hasPreviousPage": False}, "result": [PAYMENT]}
SPENT = {"spentDebitAmount": USD_1, "spentReceiveAmount": None}
HINT = {"hint": "Send it elsewhere"}
REFUSAL = {"error": {"code": "not_found", "description": "There is nothing", "details": HINT}}
LATE = {"error": {"code": "wrong_state", "description": "Used", "details": HINT}}
GNAP = {"www-authenticate": "GNAP as_uri=http://h/"}


def answer(method: str, path: str, status: int, body: Any = None, **headers: str) -> Answer:
    content = b"" if body is None else json.dumps(body).encode()
    return Answer(method, path, status, {"content-type": "application/json"} | headers, content)


def test_documents_are_those_of_the_official_client() -> None:
    package = json.loads((documents.PACKAGE / "package.json").read_text(encoding="utf-8"))
    assert package["version"] == "7.4.0"
    assert {documents.load(name)["info"]["version"] for name in documents.DOCUMENTS} == {"1.3.0"}
    assert len(documents.operations()) == 18


@pytest.mark.parametrize(
    ("method", "path", "operation"),
    [
        ("GET", "/incoming-payments", "list-incoming-payments"),
        ("GET", "/incoming-payments/1/", "get-incoming-payment"),
        ("POST", "/incoming-payments/1/complete", "complete-incoming-payment"),
        ("POST", "/", "post-request"),
        ("DELETE", "/token/1", "delete-token"),
        ("HEAD", "/alice", "get-wallet-address"),
        ("GET", "/shops/alice/jwks.json", "get-wallet-address-keys"),
        ("GET", "/.well-known/pay", "get-wallet-address"),
        ("GET", "/.well-known/pay/did.json", "get-wallet-address-did-document"),
        ("GET", "/interact/1/2", None),
        ("GET", "/healthz", None),
        ("GET", "/", None),
        ("DELETE", "/quotes/1", None),
    ],
)
def test_operation_is_found_by_method_and_path(method: str, path: str, operation: str | None) -> None:
    found = documents.find_operation(method, path)
    assert (found.id if found else None) == operation


@pytest.mark.parametrize(
    "good",
    [
        answer("GET", "/alice", 200, WALLET),
        answer("HEAD", "/alice", 200),
        answer("GET", "/incoming-payments", 200, PAGE),
        answer("GET", "/outgoing-payment-grant", 200, SPENT),
        answer("DELETE", "/token/1", 204),
        answer("GET", "/quotes/1", 404, REFUSAL),
        answer("GET", "/alice", 404, REFUSAL),
        answer("PUT", "/quotes", 405, REFUSAL),
        answer("GET", "/healthz", 503, {"status": "unavailable"}),
        answer("GET", "/interact/1/2", 200, None, **{"content-type": "text/html"}),
        answer("GET", "/token/1", 401, REFUSAL, **GNAP),
        answer(
            "POST",
            "/outgoing-payments",
            409,
            LATE,
        ),
    ],
)
def test_documented_answer_passes(good: Answer) -> None:
    check_answer(good)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (answer("GET", "/alice", 200, WALLET | {"assetScale": 256}), "assetScale"),
        (answer("GET", "/alice", 200, WALLET | {"publicName": None}), "publicName"),
        (answer("GET", "/alice", 200, WALLET, **{"content-type": "text/html"}), "Content-Type"),
        (answer("GET", "/alice", 201, WALLET), "no response 201"),
        (answer("GET", "/incoming-payments", 200, PAGE | {"result": [PAYMENT | {"methods": []}]}), "methods"),
        (answer("GET", "/incoming-payments", 200, PAGE | {"result": [PAYMENT | {"createdAt": "now"}]}), "createdAt"),
        (answer("GET", "/outgoing-payment-grant", 200, SPENT | {"spentDebitAmount": USD_1 | {"value": "-1"}}), "Debit"),
        (answer("DELETE", "/token/1", 204, {}), "no body"),
        (answer("GET", "/quotes/1", 404, {"detail": "Not Found"}), "no response 404 ''"),
        (answer("GET", "/quotes/1", 401, REFUSAL), "WWW-Authenticate"),
        (answer("GET", "/quotes/1", 418, REFUSAL), "no response 418"),
        (answer("POST", "/", 401, REFUSAL, **GNAP), "no response 401 'not_found'"),
        (answer("GET", "/quotes/1", 404, {"error": {"code": "not_found", "description": "No"}}), "details"),
        (answer("PUT", "/quotes", 200, {}), "no such method"),
        (answer("GET", "/nowhere/at/all", 500, {"oops": True}), "no response 500"),
    ],
)
def test_undocumented_answer_is_reported(bad: Answer, why: str) -> None:
    with pytest.raises(UndocumentedAnswerError, match=why):
        check_answer(bad)


def test_answers_of_the_test_client_are_checked(shared: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("payres.routes.wallet_addresses.WalletAddress", lambda **members: {"id": members["id"]})
    with pytest.raises(UndocumentedAnswerError, match="assetCode"):
        shared.client.get(shared.wallet("alice"))
