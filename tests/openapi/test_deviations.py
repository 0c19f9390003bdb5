"""Every deviation and amendment is one: a real answer needs it, and the documents do not have it."""

import json
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx2
import pytest

from payres.core.http import admission, protocol
from payres.core.process.rate_limiter import RateLimiter, too_many
from payres.core.protocol.clock import HOUR, SECOND, format_time
from payres.core.protocol.errors import Unavailable
from payres.core.protocol.limits import MAX_HEADER_BYTES
from tests.helpers import TIMEOUT, Json, read_to_end, receiver_of, usd
from tests.instance import Instance
from tests.openapi import documents
from tests.openapi.conformance import UndocumentedAnswerError, is_documented
from tests.openapi.deviations import (
    DEVIATIONS,
    LENIENCIES,
    MORE_IN_ACCESS,
    MORE_START_MODES,
    NO_AUTHORIZATION,
    NO_WALLET_ADDRESS,
)
from tests.openapi.documents import Operation


class Asked(NamedTuple):
    """A good request for an operation, to be spoilt by a test."""

    method: str
    path: str
    body: Json | None = None
    token: str | None = None


Spoil = Callable[[Instance, Asked], httpx2.Response]


def access(payres: Instance, kind: str, *actions: str) -> str:
    return payres.client.grant({"type": kind, "actions": list(actions), "identifier": payres.wallet("alice")})


def spending(payres: Instance) -> Json:
    return {"type": "outgoing-payment", "actions": ["create"], "identifier": payres.wallet("alice")}


def ask(payres: Instance, operation: str) -> Asked:
    """The operation's method, path, a body that is enough to come far, and a token that permits it."""
    alice = payres.wallet("alice")
    found = next(one for one in documents.operations() if one.id == operation)
    method, path = found.method.upper(), found.path.replace("{id}", "1")
    if found.document == documents.WALLET_ADDRESS_SERVER:
        return Asked(method, f"/alice{path}".rstrip("/"))
    if found.document == documents.AUTH_SERVER:
        access_token = {"access": [{"type": "quote", "actions": ["read"]}]}
        body = {"client": payres.client.wallet_address, "access_token": access_token}
        return Asked(method, path, body if operation == "post-request" else None, None if path == "/" else "unknown")
    action, _, kind = operation.partition("-")
    permission = "create" if operation == "get-outgoing-payment-grant" else action.replace("get", "read")
    token = access(payres, kind.removesuffix("-grant").removesuffix("s"), permission)
    if action == "list":
        return Asked(method, f"{path}?wallet-address={alice}", None, token)
    body = {"walletAddress": alice}
    if operation == "create-quote":
        wanted = {"receiver": receiver_of(payres), "method": "ilp", "debitAmount": usd(100)}
        return Asked(method, path, body | wanted, token)
    return Asked(method, path, body if action == "create" else None, token)


def send(payres: Instance, asked: Asked, **changes: Any) -> httpx2.Response:
    asked = asked._replace(**changes)
    return payres.client.request(asked.method, asked.path, asked.body, asked.token)


def break_database(payres: Instance, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(payres.context.database.__class__, "read", broken)


def malformed(payres: Instance, asked: Asked) -> httpx2.Response:
    path, _, query = asked.path.partition("?")
    if path.startswith("/token/") or (asked.method in {"GET", "DELETE"} and not query):
        return over_socket(payres, asked, b"content-length: many\r\n\r\n")
    if path == "/continue/1":
        follow_up = payres.client.request_grant(spending(payres)).json()["continue"]
        return payres.client.post(follow_up["uri"], {"interact_ref": 1}, follow_up["access_token"]["value"])
    if path.endswith("/complete"):
        return payres.client.request("POST", path, raw=b"done", token=asked.token)
    return send(payres, asked, path=path, body=None if asked.method == "GET" else {"walletAddress": 1})


def with_header(name: str, value: str) -> Spoil:
    return lambda payres, asked: payres.client.request(asked.method, asked.path, asked.body, asked.token, {name: value})


def with_members(**members: Any) -> Spoil:
    """The good request with these members in its body; `{base}` is the address of the server."""

    def spoilt(payres: Instance, asked: Asked) -> httpx2.Response:
        body = {k: v.format(base=payres.base_url) if isinstance(v, str) else v for k, v in members.items()}
        return send(payres, asked, body=(asked.body or {}) | body)

    return spoilt


def compressed(payres: Instance, asked: Asked) -> httpx2.Response:
    return with_header("content-encoding", "gzip")(payres, asked._replace(body=asked.body or {}))


def with_bad_amount(payres: Instance, asked: Asked) -> httpx2.Response:
    if "incoming" in asked.path:
        return with_members(incomingAmount=usd(0))(payres, asked)
    return with_members(incomingPayment=receiver_of(payres), debitAmount=usd(0))(payres, asked)


def too_late(payres: Instance, asked: Asked) -> httpx2.Response:
    if asked.path == "/outgoing-payments":
        quoted = ask(payres, "create-quote")
        body = (asked.body or {}) | {"quoteId": send(payres, quoted).json()["id"]}
        assert send(payres, asked, body=body).status_code == 201
        return send(payres, asked, body=body)
    expires_at = format_time(payres.clock.now() + HOUR)
    payment = payres.client.create_incoming_payment(payres.wallet("alice"), expiresAt=expires_at)
    payres.clock.advance(3601)
    token = access(payres, "incoming-payment", "complete")
    return payres.client.post(f"{payment['id']}/complete", token=token)


def after_denial(payres: Instance, asked: Asked) -> httpx2.Response:
    answer = payres.client.request_grant(spending(payres)).json()
    payres.deny(answer["interact"]["redirect"])
    return payres.client.post(answer["continue"]["uri"], token=answer["continue"]["access_token"]["value"])


def with_other_token(payres: Instance, asked: Asked) -> httpx2.Response:
    answer = payres.client.obtain_grant({"type": "quote", "actions": ["read"]})
    return send(payres, asked, path=answer["access_token"]["manage"], token=access(payres, "quote", "read"))


def of_nobody(payres: Instance, asked: Asked) -> httpx2.Response:
    return send(payres, asked, path=asked.path.replace("alice", "nobody"))


def with_long_body(payres: Instance, asked: Asked) -> httpx2.Response:
    long = b" " * (payres.context.settings.max_body_bytes + 1)
    return payres.client.request(asked.method, asked.path, raw=long, token=asked.token)


def under_a_used_key(payres: Instance, asked: Asked) -> httpx2.Response:
    key = {"idempotency-key": f"used-for-{asked.path}"}
    wallet = payres.wallet("alice")
    token = access(payres, "incoming-payment", "create")
    assert payres.client.request("POST", "/incoming-payments", {"walletAddress": wallet}, token, key).is_success
    body = (asked.body or {}) | ({"metadata": {}} if asked.path == "/incoming-payments" else {})
    return payres.client.request(asked.method, asked.path, body, asked.token, key)


def over_socket(payres: Instance, asked: Asked, rest_of_head: bytes) -> httpx2.Response:
    address, answer = urlsplit(payres.base_url), b""
    # On a busy machine the time for a head may be over before the server has read any of it: then nobody has asked.
    for _ in range(100):
        with socket.create_connection((address.hostname, address.port), timeout=TIMEOUT) as connection:
            connection.sendall(f"{asked.method} {asked.path} HTTP/1.1\r\nhost: h\r\n".encode() + rest_of_head)
            answer = read_to_end(connection)
        if answer:
            break
    head, _, body = answer.partition(b"\r\n\r\n")
    request = httpx2.Request(asked.method, payres.base_url + asked.path)
    return httpx2.Response(int(head.split()[1]), content=body, request=request)


PROVOKE: dict[tuple[int, str], Spoil] = {
    (400, "invalid_request"): malformed,
    (400, "invalid_amount"): with_bad_amount,
    (400, "invalid_expiry"): with_members(expiresAt="1999-12-31T23:59:59Z"),
    (400, "invalid_quote"): with_members(quoteId="{base}/quotes/1"),
    (400, "invalid_receiver"): with_members(incomingPayment="{base}/incoming-payments/1", debitAmount=usd(100)),
    (401, "user_denied"): after_denial,
    (401, "invalid_token"): with_other_token,
    (404, "invalid_continuation"): send,
    (404, "not_found"): of_nobody,
    (406, "not_acceptable"): with_header("accept", "image/png"),
    (408, "too_slow"): partial(over_socket, rest_of_head=b""),
    (409, "wrong_state"): too_late,
    (413, "too_large"): with_long_body,
    (415, "unsupported_media_type"): compressed,
    (422, "idempotency_key_reused"): under_a_used_key,
    (429, "too_many_requests"): send,
    (431, "too_large"): with_header("x-long", "a" * MAX_HEADER_BYTES),
    (500, "internal_error"): send,
    (503, "unavailable"): send,
}
SPOIL: dict[str, Spoil] = {
    NO_AUTHORIZATION: partial(send, token=None),
    NO_WALLET_ADDRESS: partial(send, body={}),
    MORE_START_MODES: with_members(interact={"start": ["redirect", "card"]}),
    MORE_IN_ACCESS: with_members(
        access_token={"access": [{"type": "quote", "actions": ["read"], "datatypes": ["all"]}]}
    ),
}
EACH = [(operation, one.status, one.code) for one in DEVIATIONS for operation in one.operations]


def refuse(*_: object) -> None:
    raise too_many(SECOND, "Wait")


@pytest.mark.parametrize(("operation", "status", "code"), EACH)
def test_deviation_is_met_and_is_one(
    payres: Instance, monkeypatch: pytest.MonkeyPatch, operation: str, status: int, code: str
) -> None:
    asked = ask(payres, operation)
    if status == 408:
        monkeypatch.setattr(protocol, "REQUEST_SECONDS", 0.02)
    if status == 429:
        monkeypatch.setattr(admission, "address_of", lambda _: "203.0.113.1")  # this machine's own is not counted
        monkeypatch.setattr(RateLimiter, "check", refuse)  # of the address, or of the client that signs
    if status == 500:
        break_database(payres, monkeypatch, ZeroDivisionError())
    if status == 503:
        break_database(payres, monkeypatch, Unavailable("The database is locked"))
    answer = PROVOKE[status, code](payres, asked)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    found = called(answer, operation)
    assert not is_documented(found, status, answer.json()), "the document has this answer: take it off the list"


def called(answer: httpx2.Response, operation: str) -> Operation:
    """What the request of an answer called, which must be this."""
    found = documents.find_operation(answer.request.method, answer.request.url.path)
    assert found is not None
    assert found.id == operation
    return found


@pytest.mark.parametrize(
    ("operation", "request_is"), [(operation, one.request) for one in LENIENCIES for operation in one.operations]
)
def test_leniency_is_met(payres: Instance, operation: str, request_is: str) -> None:
    asked = ask(payres, operation)
    if operation == "get-incoming-payment":
        asked = asked._replace(path=receiver_of(payres))
    if operation in {"post-token", "delete-token"}:
        given = payres.client.obtain_grant({"type": "quote", "actions": ["read"]})["access_token"]
        asked = asked._replace(path=given["manage"])
    answer = SPOIL[request_is](payres, asked)
    assert answer.is_success, answer.text
    called(answer, operation)


def test_documents_are_those_of_the_official_client() -> None:
    package = json.loads((documents.PACKAGE / "package.json").read_text(encoding="utf-8"))
    assert package["version"] == "7.4.0"
    assert {documents.load(name)["info"]["version"] for name in documents.DOCUMENTS} == {"1.3.0"}
    assert len(documents.operations()) == 18


def test_answers_of_the_test_client_are_checked(shared: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("payres.core.http.wallet_addresses.WalletAddress", lambda **members: {"id": members["id"]})
    with pytest.raises(UndocumentedAnswerError, match="assetCode"):
        shared.client.get(shared.wallet("alice"))
