import gzip
import logging
from collections.abc import Iterator
from contextlib import closing
from copy import deepcopy
from typing import Any
from urllib.parse import quote as percent_encoded
from urllib.parse import urlsplit

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.core.http import wallet_addresses
from payres.core.payments import quotes
from payres.core.protocol.clock import format_time
from payres.core.protocol.errors import Unavailable
from tests.conftest import Refused
from tests.helpers import ERRORS, Json, usd
from tests.instance import Instance
from tests.signing_client import Client

JSON = {"content-type": "application/json"}
# What the Web Monetization extension (1.3.2) does at which description.
ROTATES = "Invalid Token"
RENEWS_THE_RECEIVER = "invalid receiver"
SWITCHES_GRANTS_OR_IS_OUT_OF_FUNDS = "unauthorized"  # by the code
RAISES_THE_AMOUNT = "non-positive receive amount"
RECONNECTS = "invalid client"


# The methods that each address takes.
ALLOWED = {
    "/": ("OPTIONS", "POST"),
    **dict.fromkeys(("/incoming-payments", "/outgoing-payments"), ("GET", "HEAD", "OPTIONS", "POST")),
    **dict.fromkeys(("/incoming-payments/1/complete", "/quotes"), ("OPTIONS", "POST")),
    **dict.fromkeys(("/continue/1", "/token/1"), ("DELETE", "OPTIONS", "POST")),
    **dict.fromkeys(("/incoming-payments/1", "/quotes/1", "/outgoing-payments/1"), ("GET", "HEAD", "OPTIONS")),
    **dict.fromkeys(("/outgoing-payment-grant", "/healthz"), ("GET", "HEAD", "OPTIONS")),
    **dict.fromkeys(("/alice", "/alice/jwks.json", "/alice/did.json"), ("GET", "HEAD", "OPTIONS")),
}


@pytest.mark.parametrize(("path", "allowed"), ALLOWED.items())
def test_wrong_method_is_refused_with_those_allowed_which_options_tells_too(
    shared: Instance, anonymous: httpx2.Client, refused: Refused, path: str, allowed: tuple[str, ...]
) -> None:
    for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "PROPFIND"} - set(allowed):
        for spelling in (path, f"{path}/" if path != "/" else path):
            answer = anonymous.request(method, shared.base_url + spelling)
            refused(answer, 405, "method_not_allowed")
            assert answer.headers["allow"] == ", ".join(allowed)
    for spelling in (path, f"{path}/") if path != "/" else ():  # whose OPTIONS is the discovery of grants
        answer = anonymous.options(shared.base_url + spelling)
        assert (answer.status_code, answer.content) == (204, b"")
        assert answer.headers["allow"] == ", ".join(allowed)
        assert "content-length" not in answer.headers


@pytest.mark.parametrize(
    "path",
    [
        "/nowhere",
        "/quotes/1/2",
        "/incoming-payments/1/cancel",
        "/continue",
        "/token/1/2",
        "/ilp/1",
        "/discovery",
        "/nowhere/jwks.json",
        "/nowhere/did.json",
        "/jwks.json",
        "/did.json",
        "/.well-known/other",
        "/a%0Ab",
        "/%F0%9F%98%80",
        f"/{'x' * 4000}",
        "/nowhere?redirect=1",
    ],
)
def test_unknown_path_is_not_found_whatever_the_method(
    shared: Instance, anonymous: httpx2.Client, refused: Refused, path: str
) -> None:
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "PROPFIND", "OPTIONS"):
        refused(anonymous.request(method, shared.base_url + path), 404, "not_found")


@pytest.mark.parametrize("media_type", [None, "", "text/plain", "application/jsonx", "application/gnap+json"])
@pytest.mark.parametrize("path", ["/", "/incoming-payments", "/quotes", "/outgoing-payments", "/continue/1"])
def test_body_that_is_not_declared_json_is_refused(
    shared: Instance, anonymous: httpx2.Client, refused: Refused, path: str, media_type: str | None
) -> None:
    headers = {} if media_type is None else {"content-type": media_type}
    answer = anonymous.post(shared.base_url + path, content=b"{}", headers=headers)
    refused(answer, 415, "unsupported_media_type")


@pytest.mark.parametrize("path", ["/", "/incoming-payments", "/quotes", "/outgoing-payments"])
@pytest.mark.parametrize("headers", [{}, {"content-type": ""}])
def test_absent_body_is_refused_and_told_what_to_send(
    shared: Instance, refused: Refused, path: str, headers: dict[str, str]
) -> None:
    """Although no member of an incoming payment is needed: what moves money is not created by an empty request."""
    spending = {"type": "outgoing-payment", "actions": ["create"], "identifier": shared.wallet("alice")}
    creating = [{"type": kind, "actions": ["create"]} for kind in ("incoming-payment", "quote")]
    token = shared.client.grant(*creating, spending) if path != "/" else None
    error = refused(shared.client.request("POST", path, None, token, headers), 400, "invalid_request", field="body")
    assert "send a JSON object, {} if it has no members" in error["details"]["hint"]


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(
    "path", ["/", "/incoming-payments", "/incoming-payments/1/complete", "/quotes", "/outgoing-payments", "/token/1"]
)
def test_long_body_is_refused(
    shared: Instance, anonymous: httpx2.Client, refused: Refused, path: str, chunked: bool
) -> None:
    size = shared.context.settings.max_body_bytes

    def pieces() -> Iterator[bytes]:
        yield b" " * size
        yield b"{"

    content = pieces() if chunked else b" " * (size + 1)
    refused(anonymous.post(shared.base_url + path, content=content, headers=JSON), 413, "too_large")


@pytest.mark.parametrize("codings", [["gzip"], ["br"], ["GZIP"], ["identity, gzip"], ["none"], ["identity", "gzip"]])
@pytest.mark.parametrize("path", ["/", "/quotes", "/incoming-payments/1/complete", "/continue/1"])
def test_encoded_body_is_refused(
    shared: Instance, anonymous: httpx2.Client, refused: Refused, path: str, codings: list[str]
) -> None:
    headers = [*JSON.items(), *(("content-encoding", coding) for coding in codings)]
    answer = anonymous.post(shared.base_url + path, content=gzip.compress(b"{}"), headers=headers)
    refused(answer, 415, "unsupported_media_type")
    assert answer.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize(("coding", "content"), [("identity", b"{}"), ("Identity", b"{}"), ("", b"{}"), ("gzip", b"")])
def test_identity_is_no_encoding_and_nothing_cannot_be_encoded(
    shared: Instance, anonymous: httpx2.Client, refused: Refused, coding: str, content: bytes
) -> None:
    headers = JSON | {"content-encoding": coding}
    answer = anonymous.post(f"{shared.base_url}/quotes", content=content, headers=headers)
    refused(answer, 401, "invalid_token", reason="missing_token")


def test_fault_is_answered_without_the_inside_and_logged_with_it(
    shared: Instance, refused: Refused, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("the secret inside")

    monkeypatch.setattr(quotes, "check_amounts", broken)
    receiver = f"{shared.base_url}/incoming-payments/1"
    body = {"walletAddress": shared.wallet("alice"), "receiver": receiver, "method": "ilp"}
    token = shared.client.grant({"type": "quote", "actions": ["create"]})
    with caplog.at_level(logging.ERROR, "payres.routes"):
        answer = shared.client.post("/quotes", body, token)
    refused(answer, 500, "internal_error")
    assert answer.headers["connection"] == "close"
    assert "secret" not in answer.text
    assert "the secret inside" in caplog.text
    monkeypatch.undo()
    refused(shared.client.post("/quotes", body, token), 400, "invalid_receiver")


def test_refusal_carries_its_headers(
    shared: Instance, anonymous: httpx2.Client, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopping(*_: object) -> None:
        raise Unavailable("The server is stopping", retry_after=5)

    monkeypatch.setattr(wallet_addresses, "context_of", stopping)
    answer = anonymous.get(shared.wallet("alice"))
    refused(answer, 503, "unavailable")
    assert answer.headers["retry-after"] == "5"


NASTY: list[Any] = [
    *(None, "", True, 0, -1, 1.5, 10**30, [], {}, [[]], {"": None}, "x" * 3000, "0" * 5000),
    *("\x00", "\ud800", "a\n", "\N{FULLWIDTH DIGIT NINE}", "//x", "http://[", "http://h:99999/", "http://h\x00/"),
    *("http://h:port/incoming-payments/1", "18446744073709551615", "2026-13-01T00:00:00Z", "9999-12-31T23:59:60Z"),
    *("R/9999-12-31T23:59:59Z/PT1S", "R999999999/0001-01-01T00:00:00Z/P999999999Y", "R/P1M/0001-01-01T00:00:00Z"),
]


def places(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every member of a JSON value, and to the members of these."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, member in members:
        yield (*here, name)
        yield from places(member, (*here, name))


def good_requests(shared: Instance) -> list[tuple[str, Json, str | None]]:
    """A good request to every address that takes a body, with its token."""
    payer, client = shared.create_wallet("fuzzed", deposit="5000000.00"), shared.client
    receiver = client.create_incoming_payment(shared.wallet("bob"))["id"]
    spending = {"type": "outgoing-payment", "actions": ["create"], "identifier": payer}
    limits = {"receiver": receiver, "debitAmount": usd(100), "interval": "R/2026-01-01T00:00:00Z/P1M"}
    finish = {"method": "redirect", "uri": "https://shop.example/", "nonce": "n"}
    asked = client.request_grant(spending).json()["continue"]
    incoming = client.grant({"type": "incoming-payment", "actions": ["create"]})
    quoting = client.grant({"type": "quote", "actions": ["create"]})
    paying = client.grant(spending)
    quote = {"walletAddress": payer, "receiver": receiver, "method": "ilp"}
    grant = {
        "client": client.wallet_address,
        "access_token": {"access": [spending | {"limits": limits}]},
        "interact": {"start": ["redirect"], "finish": finish},
        "subject": {"sub_ids": [{"id": payer, "format": "uri"}]},
    }
    expires_at = format_time(shared.clock.now() + 3600 * 1_000_000)
    payment = {"incomingAmount": usd(100), "expiresAt": expires_at, "metadata": {"a": 1}}
    quote_id = client.create_quote(payer, receiver, debitAmount=usd(100))["id"]
    return [
        ("/incoming-payments", {"walletAddress": payer} | payment, incoming),
        ("/quotes", quote | {"debitAmount": usd(100)}, quoting),
        ("/quotes", quote | {"receiveAmount": usd(100)}, quoting),
        ("/outgoing-payments", {"walletAddress": payer, "quoteId": quote_id, "metadata": {}}, paying),
        ("/outgoing-payments", {"walletAddress": payer, "incomingPayment": receiver, "debitAmount": usd(100)}, paying),
        ("/", grant, None),
        ("/", grant | {"client": {"jwk": {"kid": "k", "x": "A" * 43, "alg": "EdDSA", "kty": "OKP"}}}, None),
        (asked["uri"], {"interact_ref": "x"}, asked["access_token"]["value"]),
    ]


def test_no_body_makes_the_server_fail(shared: Instance) -> None:
    requests = good_requests(shared)

    @given(st.data())
    def attempt(data: st.DataObject) -> None:
        url, body, token = data.draw(st.sampled_from(requests))
        body = deepcopy(body)
        *way, last = data.draw(st.sampled_from(list(places(body))))
        parent: Any = body
        for name in way:
            parent = parent[name]
        parent[last] = data.draw(st.sampled_from(NASTY))
        assert shared.client.post(url, body, token).status_code < 500

    attempt()
    # They all came as far as the rules: the quote may be used up by now, and nobody knows that interact_ref.
    assert {shared.client.post(*one).status_code for one in requests if one[2]} <= {201, 404, 409}


class SlashClient(Client):
    """Puts a slash at the end of every path, as one SDK does with grant and continuation URLs."""

    def request(self, method: str, url: str, *arguments: Any, **options: Any) -> httpx2.Response:
        path, mark, query = (url if "://" in url else self.base_url + url).partition("?")
        answer = super().request(method, f"{path.rstrip('/')}/{mark}{query}", *arguments, **options)
        assert urlsplit(str(answer.request.url)).path.endswith("/")
        assert not answer.history
        assert not answer.has_redirect_location
        return answer


@pytest.fixture
def slashes(shared: Instance) -> Iterator[SlashClient]:
    known = shared.client
    about = (known.wallet_address, known.private_key, known.jwk)
    with closing(SlashClient(*about, shared.base_url, shared.clock, shared.approve)) as client:
        yield client


def test_every_address_takes_a_trailing_slash(
    shared: Instance, slashes: SlashClient, anonymous: httpx2.Client, refused: Refused
) -> None:
    sender, taker = shared.create_wallet("slash-sender", deposit="5.00"), shared.create_wallet("slash-taker")
    receiver = slashes.create_incoming_payment(taker, usd(100))
    assert anonymous.get(f"{receiver['id']}/").status_code == 200
    quote = slashes.create_quote(sender, f"{receiver['id']}/")
    payment = slashes.create_outgoing_payment(f"{sender}/", f"{quote['id']}/")
    incoming = slashes.grant({"type": "incoming-payment", "actions": ["read", "list", "complete"]})
    asked = {"type": "outgoing-payment", "actions": ["create", "read", "list"], "identifier": f"{sender}/"}
    granted = slashes.obtain_grant(asked)
    outgoing = granted["access_token"]
    reading = slashes.grant({"type": "quote", "actions": ["read"]})
    for url, token in (
        (receiver["id"], incoming),
        (f"/incoming-payments?wallet-address={percent_encoded(taker, '')}", incoming),
        (quote["id"], reading),
        (payment["id"], outgoing["value"]),
        (f"/outgoing-payments?wallet-address={percent_encoded(sender, '')}", outgoing["value"]),
        ("/outgoing-payment-grant", outgoing["value"]),
    ):
        assert slashes.get(url, token).status_code == 200, url
    assert slashes.post(f"{receiver['id']}/complete", None, incoming).json()["completed"] is True
    rotated = slashes.post(outgoing["manage"], None, outgoing["value"]).json()["access_token"]
    assert slashes.delete(rotated["manage"], rotated["value"]).status_code == 204
    assert slashes.delete(granted["continue"]["uri"], granted["continue"]["access_token"]["value"]).status_code == 204
    for path in ("alice/", "alice/jwks.json/", "healthz/"):
        assert anonymous.get(f"{shared.base_url}/{path}").status_code == 200


@pytest.mark.parametrize(
    ("status", "code", "reasons", "description"),
    [
        (401, "invalid_token", ["unknown_token", "expired_token", "revoked_token"], ROTATES),
        (400, "invalid_receiver", ["expired", "no_exchange_rate"], RENEWS_THE_RECEIVER),
        (403, "limit_exceeded", ["debitAmount", "receiveAmount", "revoked_grant"], SWITCHES_GRANTS_OR_IS_OUT_OF_FUNDS),
        (403, "insufficient_funds", ["wallet"], SWITCHES_GRANTS_OR_IS_OUT_OF_FUNDS),
        (403, "insufficient_funds", ["liquidity"], "insufficient funds"),  # which the wallet's owner cannot mend
        (400, "invalid_amount", ["nothing_arrives"], RAISES_THE_AMOUNT),
        (400, "invalid_client", ["unknown_key"], RECONNECTS),
        (401, "invalid_client", ["unknown_key"], "Signature validation error: unknown_key"),
    ],
)
def test_description_is_the_one_that_the_web_monetization_extension_knows(
    status: int, code: str, reasons: list[str], description: str
) -> None:
    """It chooses what to do by `description`. When a request gets which of these errors is in tests/specification,
    where each answer has the description that its class has for its reason.
    """
    kind = ERRORS[status, code]
    assert set(reasons) <= kind.reasons.keys()
    assert {kind.described(reason) for reason in reasons} == {description}
