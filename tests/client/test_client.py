"""The client against a real server, and against servers that answer in other ways."""

import asyncio
import base64
import gc
import hashlib
import json
import logging
import ssl
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from copy import copy
from decimal import Decimal
from threading import Barrier
from typing import Any
from urllib.parse import quote_plus

import httpx2
import pytest

from payres.client import AsyncClient, Client, Grant, PendingGrant, access, attempts, clients, decimal, errors, money
from payres.core.protocol.amounts import Asset
from payres.core.protocol.wire import Amount
from payres.core.signatures.jwk import generate_private_key, private_pem
from tests.client.clients import Script, opened
from tests.helpers import TIMEOUT, Json, amount, usd
from tests.instance import Instance

BASE = "https://pay.example"
WALLET = f"{BASE}/alice"
ONE = f"{BASE}/outgoing-payments/1"
KEY = generate_private_key()
MADE: Json = {"id": ONE, "walletAddress": WALLET, "createdAt": "2026-01-01T00:00:00Z", "receiver": f"{BASE}/r"}
MADE |= {"debitAmount": usd(500), "receiveAmount": usd(500), "sentAmount": usd(0), "failed": False}
BILL: Json = {"id": ONE, "walletAddress": WALLET, "createdAt": "2026-01-01T00:00:00Z", "completed": False}
BILL |= {"receivedAmount": usd(0), "incomingAmount": usd(500), "methods": []}
QUOTE: Json = {name: MADE[name] for name in MADE if name not in ("sentAmount", "failed")} | {"method": "ilp"}
TOKEN: Json = {"value": "new", "manage": f"{BASE}/token/2", "access": []}
FIVE = Amount(value="500", asset_code="USD", asset_scale=2)


def answer(status: int, body: Any = None, **headers: str) -> httpx2.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.Response(status, headers=named, content=b"" if body is None else json.dumps(body).encode())


def scripted(script: httpx2.MockTransport, **options: Any) -> Any:
    return opened(WALLET, KEY, "key-1", transport=script, is_documented=False, **options)


def error(code: str, description: str = "", **details: str) -> Json:
    return {"error": {"code": code, "description": description, "details": details}}


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that the client would pause, and does not."""
    found: list[float] = []
    sleep = attempts.Core.sleep

    async def skip(self: attempts.Core, seconds: float) -> None:
        found.append(seconds)
        await sleep(self, 0)

    monkeypatch.setattr(attempts.Core, "sleep", skip)
    return found


def test_a_payment_from_beginning_to_end(payres: Instance) -> None:
    alice, shop = (payres.create_wallet(name, deposit="100.00") for name in ("payer", "payee"))
    app = payres.new_client("app")
    rotated: list[Grant] = []
    options: Json = {"strict": True, "clock": payres.clock, "on_rotate": rotated.append}
    with opened(app.wallet_address, private_pem(app.private_key), app.jwk.kid, **options) as client:
        me, you = client.wallet_address.get(alice), client.wallet_address.get(shop)
        assert client.wallet_address.get_keys(app.wallet_address)[0].kid == app.jwk.kid
        assert client.wallet_address.get_did_document(shop)["id"].startswith("did:web:")
        billing = client.grant.obtain(
            you, access.incoming_payment("create", "read", "list", "complete", identifier=you.id)
        )
        bills = [client.incoming_payment.create(you, billing, metadata={"note": "☕"}) for _ in range(3)]
        assert [one.id for one in client.incoming_payment.iterate(you, billing)] == [one.id for one in bills[::-1]]
        quoting = client.grant.obtain(me, access.quote("create", "read", identifier=me.id))
        payres.clock.advance(100_000)  # all tokens expire
        quote = client.quote.create(me, quoting, receiver=bills[0].id, debit_amount=money("5.00", me))
        assert rotated == [quoting]
        assert client.quote.get(quote.id, quoting) == quote
        spending = access.outgoing_payment("create", "read", "list", identifier=me.id, debit_amount=quote.debit_amount)
        with pytest.raises(errors.InteractionNeeded):
            client.grant.obtain(me, spending)
        pending = PendingGrant.load(client.grant.start(me, spending, finish="https://shop.example/done").dump())
        back = payres.approve(pending.redirect)
        assert back is not None
        with pytest.raises(errors.HashMismatch):
            client.grant.finish(pending, back.replace("hash=", "hash=A"))
        grant = Grant.load(client.grant.finish(pending, back).dump())
        assert grant.value not in repr(grant)
        made = client.outgoing_payment.create(me, grant, quote_id=quote.id)
        sent = client.outgoing_payment.wait(made.id, grant, timeout=20)
        assert decimal(sent.sent_amount) == Decimal("5.00")
        assert client.outgoing_payment.get_grant_spent_amounts(me, grant).spent_debit_amount == FIVE
        assert [one.id for one in client.outgoing_payment.iterate(me, grant)] == [made.id]
        assert client.incoming_payment.complete(bills[0].id, billing).completed
        assert client.incoming_payment.get_public(bills[0].id).received_amount == FIVE
        another = client.quote.create(me, quoting, receiver=bills[1].id, debit_amount=money("1", me))
        with pytest.raises(errors.LimitExceeded) as refusal:
            client.outgoing_payment.create(me, grant, quote_id=another.id)
        assert str(refusal.value).startswith("403 limit_exceeded (debitAmount): ")
        assert refusal.value.request_id
        rotated.clear()
        token = client.token.rotate(grant.manage, grant)
        assert (grant.value, rotated) == (token.value, [grant])
        assert token.value not in repr(token)
        client.token.revoke(grant.manage, grant)
        with pytest.raises(errors.TokenError):
            client.outgoing_payment.get(made.id, grant)
        client.grant.cancel(billing.continue_uri, billing.continue_token)


LOST, REFUSED = httpx2.ReadTimeout("no answer"), httpx2.ConnectError("refused")
BUSY, DOWN = answer(429, error("too_many_requests")), answer(503, error("unavailable"))
USED = answer(400, error("400", "invalid quote"))
LIMITED = answer(429, error("too_many_requests"), retry_after="30")
PAID, BILLED, QUOTED = answer(201, MADE), answer(201, BILL), answer(201, QUOTE)
GRANTED = answer(
    200, {"access_token": TOKEN, "continue": {"access_token": {"value": "c"}, "uri": f"{BASE}/continue/1"}}
)
GONE, COPY = answer(404, error("invalid_rotation")), answer(401, error("invalid_client", reason="signature_reused"))
ROTATED, EXPIRED = answer(200, {"access_token": TOKEN}), answer(401, error("invalid_token"))
PENDING = PendingGrant(
    continue_uri=f"{BASE}/continue/1", continue_token="c", server=BASE, client_nonce="ours", server_nonce="theirs"
)
BY_QUOTE: Json = {"quote_id": f"{BASE}/quotes/1"}
BY_AMOUNT: Json = {"incoming_payment": f"{BASE}/r", "debit_amount": FIVE}


@pytest.mark.parametrize(
    ("call", "answers", "requests", "raised"),
    [
        ("get", [LOST, DOWN, answer(200, MADE)], 3, None),
        ("get", [REFUSED, BUSY, answer(200, MADE)], 3, None),
        ("get", [DOWN, DOWN, DOWN], 3, errors.ServerError),
        ("get", [answer(429, error("x"), retry_after="11")], 1, errors.TooManyRequests),
        ("get", [answer(500, error("internal_error"))], 1, errors.ServerError),
        ("get", [answer(429, error("x"), retry_after="9" * 5000), answer(200, MADE)], 2, None),
        ("bill", [LOST, BILLED], 2, None),
        ("quote", [DOWN, LOST, QUOTED], 3, None),
        ("by_quote", [LOST, PAID], 2, None),
        ("by_quote", [LOST, USED], 2, errors.AnswerLost),
        ("by_quote", [USED], 1, errors.BadRequest),
        ("by_quote", [DOWN, DOWN, DOWN], 3, errors.AnswerLost),
        ("by_amount", [BUSY, REFUSED, PAID], 3, None),
        ("by_amount", [LOST], 1, errors.AnswerLost),
        ("by_amount", [DOWN], 1, errors.AnswerLost),
        ("by_amount", [answer(429, error("x"), idempotency_key="1"), LOST, PAID], 3, None),
        ("grant", [BUSY, REFUSED, GRANTED], 3, None),
        ("grant", [LOST], 1, errors.AnswerLost),
        ("grant", [DOWN], 1, errors.ServerError),
        ("rotate", [LOST, COPY, ROTATED], 3, None),
        ("rotate", [GONE], 1, errors.NotFound),
        ("rotate", [LOST, GONE], 2, errors.GrantLapsed),
        ("rotate", [LOST, answer(401, error("invalid_client", "invalid access token"))], 2, errors.GrantLapsed),
        ("rotate", [LOST, COPY, COPY], 3, errors.AnswerLost),
        ("rotate", [LOST, REFUSED, REFUSED], 3, errors.AnswerLost),
        ("rotate", [LOST, LIMITED], 2, errors.AnswerLost),
        ("rotate", [LOST, answer(404, error("not_found"))], 2, errors.AnswerLost),
        ("rotate", [LOST, answer(401, error("invalid_client", reason="unknown_key"))], 2, errors.AnswerLost),
        ("continue", [LOST, answer(404, error("invalid_continuation"))], 2, errors.GrantLapsed),
        ("continue", [LOST, answer(400, error("too_fast"))], 2, errors.BadRequest),
        ("continue", [LOST, answer(401, error("user_denied"))], 2, errors.InsufficientAccess),
        ("rotate", [LOST, LOST, LOST], 3, errors.AnswerLost),
        ("continue", [LOST, DOWN, GRANTED], 3, None),
        (
            "continue",
            [LOST, answer(401, error("request_denied", "grant interaction not approved"))],
            2,
            errors.GrantLapsed,
        ),
    ],
)
def test_repeating(call: str, answers: list[Any], requests: int, raised: type[Exception] | None) -> None:
    script = Script(*answers)
    of: Json = {"wallet_address": WALLET}
    with scripted(script) as client:
        calls = {
            "get": lambda: client.outgoing_payment.get(ONE, "token"),
            "bill": lambda: client.incoming_payment.create(BASE, "token", **of, incoming_amount=FIVE),
            "quote": lambda: client.quote.create(BASE, "token", **of, receiver=f"{BASE}/r"),
            "by_quote": lambda: client.outgoing_payment.create(BASE, "token", **of, **BY_QUOTE),
            "by_amount": lambda: client.outgoing_payment.create(BASE, "token", **of, **BY_AMOUNT),
            "grant": lambda: client.grant.request(BASE, access.quote("create")),
            "rotate": lambda: client.token.rotate(f"{BASE}/token/1", "token"),
            "continue": lambda: client.grant.continue_(f"{BASE}/continue/1", "token", "ref"),
        }
        if raised is None:
            assert calls[call]()
        else:
            with pytest.raises(raised) as caught:
                calls[call]()
            assert type(caught.value) is raised
    assert len(script.asked) == requests
    assert len({request.headers.get("idempotency-key") for request in script.asked}) == 1
    assert len({request.content for request in script.asked}) == 1
    if call in ("bill", "quote", "by_quote", "by_amount"):
        assert all('"idempotency-key")' in request.headers["signature-input"] for request in script.asked)


def test_retry_that_cannot_be_signed_is_no_word_that_nothing_was_done() -> None:
    script, signatures = Script(LOST, PAID), iter([b"1", None])
    of: Json = {"wallet_address": WALLET, **BY_QUOTE}
    opening = opened(WALLET, lambda _: next(signatures), "key-1", transport=script, is_documented=False)
    with opening as client, pytest.raises(errors.AnswerLost):
        client.outgoing_payment.create(BASE, "token", **of)
    assert len(script.asked) == 1


@pytest.mark.parametrize(
    ("expired", "rotation", "raised"),
    [
        (answer(401, error("invalid_token", reason="expired_token")), [ROTATED], None),
        (answer(403, error("403", "Inactive Token")), [ROTATED], None),
        (EXPIRED, [GONE], errors.TokenError),
        (EXPIRED, [LOST, GONE], errors.TokenError),
        (EXPIRED, [LOST, LIMITED], errors.AnswerLost),  # no word of the token, which the same request still brings
        (EXPIRED, [LIMITED], errors.TooManyRequests),
        (EXPIRED, [answer(500, error("internal_error"))], errors.ServerError),
    ],
)
def test_rotation(expired: Any, rotation: list[Any], raised: type[Exception] | None) -> None:
    script, kept = Script(expired, *rotation, answer(200, MADE)), []
    grant = Grant.load(json.dumps({"value": "old", "manage": f"{BASE}/token/1"}))
    with scripted(script, on_rotate=lambda one: kept.append(one.dump())) as client:
        if raised is None:
            client.outgoing_payment.get(ONE, grant)
            assert Grant.load(kept[0]).value == "new"
            sent = [request.headers["authorization"] for request in script.asked]
            assert sent == ["GNAP old", "GNAP old", "GNAP new"]
        else:
            with pytest.raises(raised):
                client.outgoing_payment.get(ONE, grant)
            assert not kept
    assert not grant.lock.locked()


@pytest.mark.parametrize(
    ("status", "body", "kind", "text"),
    [
        (400, b'{"error":"invalid_request"}', errors.BadRequest, "400 invalid_request"),
        (401, b"<html>", errors.SignatureRejected, "401 : <html>"),
        (404, b"", errors.NotFound, "404 "),
        (409, b"[1]", errors.Conflict, "409 : [1]"),
        (502, b"\xff", errors.ServerError, "502 : \ufffd"),
        (422, b"", errors.BadRequest, "422 "),
    ],
)
def test_any_error_is_an_api_error(status: int, body: bytes, kind: type[errors.ApiError], text: str) -> None:
    with (
        scripted(Script(httpx2.Response(status, content=body)), max_retries=0) as client,
        pytest.raises(kind) as caught,
    ):
        client.outgoing_payment.get(ONE, "token")
    assert str(caught.value) == text
    if isinstance(caught.value, errors.SignatureRejected):
        assert (caught.value.our_base or "").startswith('"@method": GET\n')


def without(body: Json, name: str) -> Json:
    return {key: value for key, value in body.items() if key != name}


@pytest.mark.parametrize(
    ("call", "body", "problem"),
    [
        ("bill", without(BILL, "methods"), "methods are missing"),
        ("bill", BILL | {"receivedAmount": usd(1)}, "not zero"),
        ("bill", BILL | {"completed": True}, "completed is true"),
        ("bill", BILL | {"incomingAmount": usd(1)}, "incoming_amount is not"),
        ("bill", BILL | {"walletAddress": f"{BASE}/mallory"}, "walletAddress"),
        ("bill", BILL | {"expiresAt": None}, "expiresAt"),
        ("quote", QUOTE | {"receiver": f"{BASE}/mallory"}, "receiver"),
        ("quote", QUOTE | {"debitAmount": usd(501)}, "debit_amount is not"),
        ("quote", QUOTE | {"method": "spsp"}, "method"),
        ("pay", MADE | {"debitAmount": usd(501)}, "debit_amount"),
        ("pay", MADE | {"receiver": f"{BASE}/mallory"}, "receiver"),
        ("pay", MADE | {"sentAmount": usd(501)}, "more than"),
        ("pay", MADE | {"sentAmount": usd(500), "failed": True}, "it failed"),
        ("pay", MADE | {"sentAmount": {**usd(0), "value": "-1"}}, "string of digits"),
        ("pay", MADE | {"sentAmount": amount(0, "EUR")}, "differ in asset"),
        ("pay a quote", MADE | {"quoteId": f"{BASE}/quotes/2"}, "quoteId is not the one"),
        ("pay a quote", MADE | {"quoteId": f"{BASE}/quotes/1"}, None),
        ("bill", BILL | {"receivedAmount": amount(0, "EUR")}, "differ in asset"),
        ("pay", MADE | {"walletAddress": WALLET.upper().replace("HTTPS", "https")}, None),
    ],
)
def test_answers_must_be_what_was_asked_for(call: str, body: Json, problem: str | None) -> None:
    of: Json = {"wallet_address": WALLET}
    with scripted(Script(answer(201, body))) as client:
        cases: dict[str, tuple[Any, Json]] = {
            "bill": (client.incoming_payment.create, {"incoming_amount": FIVE}),
            "quote": (client.quote.create, {"receiver": f"{BASE}/r", "debit_amount": FIVE}),
            "pay": (client.outgoing_payment.create, BY_AMOUNT),
            "pay a quote": (client.outgoing_payment.create, BY_QUOTE),
        }
        create, members = cases[call]
        if problem is None:
            create(BASE, "t", **of, **members)
        else:
            with pytest.raises(errors.InvalidAnswer, match=problem):
                create(BASE, "t", **of, **members)


NEXT: Json = {"continue": {"access_token": {"value": "c"}, "uri": f"{BASE}/continue/1"}}
LISTED: Json = {"pagination": {"hasNextPage": False, "hasPreviousPage": False, "endCursor": "1"}, "result": [MADE]}


@pytest.mark.parametrize(
    ("call", "body", "problem"),
    [
        ("grant", NEXT, "both or neither"),
        ("grant", NEXT | {"access_token": TOKEN, "interact": {"redirect": "r", "finish": "f"}}, "both or neither"),
        ("grant", NEXT | {"access_token": TOKEN | {"label": "x"}}, "label"),
        ("get", MADE | {"grantSpentDebitAmount": usd(1)}, "grantSpentDebitAmount"),
        ("list", LISTED | {"pagination": LISTED["pagination"] | {"total": 1}}, "total"),
        ("list", LISTED | {"result": [MADE | {"state": "x"}]}, "state"),
        ("complete", without(BILL, "methods"), "completed is false"),
        ("complete", BILL | {"completed": True}, "methods are there"),
        ("keys", {"keys": [], "more": 1}, "more"),
    ],
)
def test_answers_must_be_in_the_standard(call: str, body: Json, problem: str) -> None:
    with scripted(Script(answer(200, body)), strict=True) as client:
        calls = {
            "grant": lambda: client.grant.request(BASE, access.quote("create")),
            "get": lambda: client.outgoing_payment.get(ONE, "t"),
            "list": lambda: client.outgoing_payment.list(BASE, "t", wallet_address=WALLET),
            "complete": lambda: client.incoming_payment.complete(ONE, "t"),
            "keys": lambda: client.wallet_address.get_keys(WALLET),
        }
        with pytest.raises(errors.InvalidAnswer, match=problem):
            calls[call]()


@pytest.mark.parametrize("strict", [True, False])
def test_members_beyond_the_standard(strict: bool, caplog: pytest.LogCaptureFixture) -> None:
    body = MADE | {"news": 1}
    script = Script(answer(200, body), answer(200, body))
    with scripted(script, strict=strict) as client, caplog.at_level(logging.WARNING, "payres.client"):
        if strict:
            with pytest.raises(errors.InvalidAnswer, match="news"):
                client.outgoing_payment.get(ONE, "t")
        else:
            assert client.outgoing_payment.get(ONE, "t") == client.outgoing_payment.get(ONE, "t")
    assert len(caplog.records) == (0 if strict else 1)


def test_what_is_refused_before_it_is_sent() -> None:
    script, both = (
        Script(),
        access.outgoing_payment("create", identifier=WALLET, debit_amount=FIVE, receive_amount=FIVE),
    )
    with scripted(script) as client:
        with pytest.raises(errors.ConfigurationError):
            client.grant.request(BASE)
        with pytest.raises(errors.ConfigurationError):
            client.grant.request(BASE, both)
        with pytest.raises(errors.InsecureUrl):
            client.wallet_address.get("http://pay.example/alice")
        for url in (
            "pay.example/alice",
            "ftp://pay.example/",
            "https://",
            "https://[::1",
            "https://\xad/",
            "https://a\n",
        ):
            with pytest.raises(errors.ConfigurationError):
                client.wallet_address.get(url)
        for token in ("a\nb: c", "a\0"):
            with pytest.raises(errors.ConfigurationError):
                client.outgoing_payment.get(ONE, token)
        with pytest.raises(errors.ConfigurationError):
            client.outgoing_payment.create(BASE, "t", wallet_address=WALLET, incoming_payment=f"{BASE}/r")
        amounts: Json = {"debit_amount": FIVE, "receive_amount": FIVE}
        for members in (amounts, {"idempotency_key": 'a"b'}, {"idempotency_key": "ü"}, {"idempotency_key": "a\nb"}):
            with pytest.raises(errors.ConfigurationError):
                client.quote.create(BASE, "t", wallet_address=WALLET, receiver=ONE, **members)
        with pytest.raises(errors.ConfigurationError):
            client.quote.create(BASE, "t", receiver=ONE)
        with pytest.raises(TypeError):  # a key that is misspelt and ignored would pay twice
            client.outgoing_payment.create(BASE, "t", wallet_address=WALLET, quote_id=ONE, idempotency_kye="1")

    async def signer(base: bytes) -> bytes:
        raise AssertionError("a client for threads awaits nothing")

    with opened(WALLET, signer, "k", transport=script) as client:
        unawaited = pytest.warns(RuntimeWarning, match="never awaited")
        with unawaited, pytest.raises(errors.ConfigurationError):
            client.outgoing_payment.get(ONE, "token")
    with opened(transport=script) as client, pytest.raises(errors.ConfigurationError):
        client.outgoing_payment.get(ONE, "token")
    assert not script.asked


def test_log_has_no_secrets(caplog: pytest.LogCaptureFixture) -> None:
    with scripted(Script(answer(200, MADE))) as client, caplog.at_level(logging.DEBUG, "payres.client"):
        client.outgoing_payment.get(f"{ONE}?secret", "secret")
    [record] = caplog.records
    assert record.getMessage().startswith("outgoing_payment.get pay.example 200 - ")
    assert "secret" not in record.getMessage()


def test_keys_in_all_forms() -> None:
    raw = KEY.private_bytes_raw()
    pem = private_pem(KEY)
    jwk = {"kty": "OKP", "crv": "Ed25519", "kid": "k", "d": base64.urlsafe_b64encode(raw).rstrip(b"=").decode()}
    forms = [KEY, raw, pem, pem.decode(), KEY.sign, jwk]
    signed = set()
    for key in forms:
        script = Script(answer(200, MADE))
        clock = type("Frozen", (), {"now": lambda self: 1_790_000_000_000_000})()
        kid = None if key is jwk else "k"
        with opened(WALLET, key, kid, transport=script, is_documented=False, clock=clock) as client:
            client.outgoing_payment.get(ONE, "token")
        signed.add(script.asked[0].headers["signature"])
    assert len(signed) == 1
    for bad in ("private.pem", b"x", {"kid": "k"}):
        with pytest.raises(errors.ConfigurationError):
            opened(WALLET, bad, "k").__enter__()


def test_timeout_of_a_call_is_that_of_the_rotation_in_it() -> None:
    script = Script(answer(401, error("invalid_token")), answer(200, {"access_token": TOKEN}), answer(200, MADE))
    with scripted(script, timeout=15) as client:
        client.outgoing_payment.get(ONE, Grant(value="old", manage=f"{BASE}/token/1"), timeout=3)
    assert [request.extensions["timeout"]["read"] for request in script.asked] == [3, 3, 3]


def test_money() -> None:
    usd_asset = Asset("USD", 2)
    assert money("5.00", usd_asset) == money(5, usd_asset) == money(Decimal("5"), usd_asset) == FIVE
    with pytest.raises(TypeError):
        money(5.0, usd_asset)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="decimals"):
        money("5.001", usd_asset)


def test_waiting_for_money_pauses_where_the_server_does_not_wait(pauses: list[float]) -> None:
    script = Script(*[answer(200, BILL)] * 6, answer(200, BILL | {"completed": True}))
    with scripted(script) as client:
        assert client.incoming_payment.wait(ONE, "token", timeout=900).completed
    assert pauses == [1, 2, 4, 8, 15, 15]
    assert {request.headers["prefer"] for request in script.asked} == {"wait=20"}
    assert {request.extensions["timeout"]["read"] for request in script.asked} == {35}


def test_waiting_for_money_pauses_where_the_server_waits_no_longer_than_a_moment(pauses: list[float]) -> None:
    at_once, paid = answer(200, MADE, preference_applied="wait=20"), answer(200, MADE | {"sentAmount": usd(500)})
    with scripted(Script(at_once, paid, answer(200, MADE))) as client:
        assert client.outgoing_payment.wait(ONE, "token").sent_amount == FIVE
        with pytest.raises(errors.WaitTimeout):
            client.outgoing_payment.wait(ONE, "token", timeout=0)
    assert pauses == [1]


WAITING = PendingGrant(continue_uri=f"{BASE}/continue/1", continue_token="c", wait=5)
STILL = answer(200, {"continue": {"access_token": {"value": "d"}, "uri": f"{BASE}/continue/2", "wait": 5}})


@pytest.mark.parametrize(
    ("wait", "first", "last"),
    [
        (lambda client, seconds: client.grant.wait(copy(WAITING), seconds), STILL, GRANTED),
        (
            lambda client, seconds: client.incoming_payment.wait(ONE, "token", timeout=seconds),
            answer(200, BILL),
            answer(200, BILL | {"completed": True}),
        ),
    ],
)
def test_waiting_goes_on_when_answers_are_lost(
    wait: Callable[[Client, float], object],
    first: httpx2.Response,
    last: httpx2.Response,
    pauses: list[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: sum(pauses))
    away = [httpx2.ConnectError("away")] * 3  # at each attempt of the client
    busy = answer(503, error("unavailable"), retry_after="40")
    with scripted(Script(*away, first, *away, busy, last)) as client:
        wait(client, 600)
    assert max(pauses) == 40, "as long as the server asks for"
    pauses.clear()
    for timeout in (0, 20):
        with scripted(Script(*away * 9)) as client, pytest.raises(errors.NotSent):
            wait(client, timeout)


def test_waiting_for_consent_asks_as_often_as_the_server_lets_it(pauses: list[float]) -> None:
    pending = PendingGrant(continue_uri=f"{BASE}/continue/1", continue_token="c", wait=0)
    still = answer(200, {"continue": {"access_token": {"value": "d"}, "uri": f"{BASE}/continue/2", "wait": 0}})
    early = answer(400, error("too_fast"), retry_after="7")
    earlier = answer(400, {"error": {"code": "too_fast", "details": {"wait": 3}}})
    with scripted(Script(LOST, early, earlier, still, GRANTED)) as client:
        assert client.grant.wait(pending).value == "new"
    assert [pauses[0], *pauses[2:]] == [0, 7, 3, 1]  # at once, since the server asks for no wait


def test_waiting_for_consent_ends_with_its_timeout_where_the_server_permits(
    pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: sum(pauses))
    still = {"access_token": {"value": "d"}, "uri": f"{BASE}/continue/2"}
    at_once, later = (answer(200, {"continue": still | {"wait": wait}}) for wait in (0, 2))
    with scripted(Script(at_once, at_once, GRANTED)) as client:
        assert client.grant.wait(copy(PENDING), timeout=1.5).value == "new"
    assert pauses == [0, 1, 0.5]
    with scripted(Script(at_once, later)) as client, pytest.raises(errors.WaitTimeout):
        client.grant.wait(copy(PENDING), timeout=2)
    assert pauses[3:] == [0, 1]


@pytest.mark.parametrize("method", ["grant.cancel", "token.revoke"])
def test_what_a_lost_answer_has_ended_is_ended(method: str, pauses: list[float]) -> None:
    kind, name = method.split(".")
    gone = answer(404, error("invalid_continuation"))
    script = Script(httpx2.ReadError("lost"), gone, gone)
    with scripted(script) as client:
        end = getattr(getattr(client, kind), name)
        end(ONE, "t")
        with pytest.raises(errors.NotFound):  # nothing was lost
            end(ONE, "t")
    assert len(pauses) == 1


@pytest.mark.parametrize("wait", [0, 5, 10**400])
def test_consent_is_asked_for_once_before_any_timeout(wait: int, pauses: list[float]) -> None:
    pending = PendingGrant(continue_uri=f"{BASE}/continue/1", continue_token="c", wait=wait)
    early = answer(400, error("too_fast"), retry_after="7")
    for answers in ([GRANTED], [early]):
        with scripted(Script(*answers)) as client:
            if answers == [GRANTED]:
                assert client.grant.wait(pending, timeout=0).value == "new"
            else:
                with pytest.raises(errors.WaitTimeout):
                    client.grant.wait(pending, timeout=0)
    assert pauses == [0, 0]


@pytest.mark.parametrize(
    ("refusal", "raised"),
    [
        (answer(401, error("user_denied")), errors.GrantDenied),
        (answer(404, error("invalid_continuation")), errors.GrantLapsed),
        (answer(401, error("request_denied", reason="decision_expired")), errors.GrantLapsed),
        (answer(401, error("invalid_client", reason="unknown_key")), errors.SignatureRejected),
    ],
)
def test_continuing_says_why_there_is_no_grant(refusal: httpx2.Response, raised: type[Exception]) -> None:
    with scripted(Script(refusal)) as client, pytest.raises(raised):
        client.grant.finish(PENDING, f"https://shop.example/?hash={hash_of(BASE)}&interact_ref=ref")


def test_obtaining_tells_consent_from_other_refusals() -> None:
    refusals = answer(400, error("invalid_request", field="interact")), answer(400, error("invalid_request"))
    with scripted(Script(*refusals, answer(200, NEXT | {"interact": {"redirect": "r", "finish": "f"}}))) as client:
        for raised in (errors.InteractionNeeded, errors.BadRequest, errors.InteractionNeeded):
            with pytest.raises(raised):
                client.grant.obtain(BASE, access.quote("create"))


def hash_of(server: str, encode: Any = base64.b64encode, ours: str = "ours", reference: str = "ref") -> str:
    digest = hashlib.sha256("\n".join((ours, "theirs", reference, server)).encode()).digest()
    return quote_plus(encode(digest))


@pytest.mark.parametrize(
    ("query", "raised"),
    [
        (f"order=1&hash={hash_of(BASE)}&interact_ref=ref", None),
        (f"hash={hash_of(BASE + '/')}&interact_ref=ref", None),
        (f"hash={hash_of(BASE, base64.urlsafe_b64encode).removesuffix('%3D')}&interact_ref=ref", None),
        (f"hash={hash_of('https://mallory.example')}&interact_ref=ref", errors.HashMismatch),
        (f"hash={hash_of(BASE)}&interact_ref=other", errors.HashMismatch),
        (f"hash={hash_of(BASE, reference='')}", errors.HashMismatch),
        ("", errors.HashMismatch),
        ("result=grant_rejected", errors.GrantDenied),
    ],
)
def test_coming_back_from_the_owner(query: str, raised: type[Exception] | None) -> None:
    script = Script(GRANTED)
    with scripted(script) as client:
        if raised is None:
            assert client.grant.finish(PENDING, f"https://shop.example/?{query}").value == "new"
        else:
            with pytest.raises(raised):
                client.grant.finish(PENDING, f"https://shop.example/?{query}")
    assert len(script.asked) == (raised is None)


def test_hash_without_a_nonce_of_ours_is_none() -> None:
    pending = PendingGrant(continue_uri=f"{BASE}/continue/1", continue_token="c", server=BASE, server_nonce="theirs")
    with scripted(Script()) as client, pytest.raises(errors.HashMismatch):
        client.grant.finish(pending, f"https://shop.example/?hash={hash_of(BASE, ours='')}&interact_ref=ref")


def test_pages_end_with_a_cursor_that_was_there_before() -> None:
    page = {"pagination": {"hasNextPage": True, "hasPreviousPage": False, "endCursor": "1"}, "result": [MADE]}
    script = Script(answer(200, page), answer(200, page))
    with scripted(script) as client:
        assert len(list(client.outgoing_payment.iterate(BASE, "token", wallet_address=WALLET))) == 2
    assert [request.url.params.get("cursor") for request in script.asked] == [None, "1"]
    assert {request.url.params["first"] for request in script.asked} == {"100"}


async def test_the_asynchronous_client_iterates_and_waits(pauses: list[float]) -> None:
    page = {"pagination": {"hasNextPage": True, "hasPreviousPage": False, "endCursor": "1"}, "result": [MADE]}
    script = Script(answer(200, page), answer(200, LISTED), answer(200, BILL), answer(200, BILL | {"completed": True}))
    async with AsyncClient(WALLET, KEY, "key-1", transport=script) as client:
        listed = client.outgoing_payment.iterate(BASE, "token", wallet_address=WALLET)
        assert [payment.id async for payment in listed] == [ONE, ONE]
        assert (await client.incoming_payment.wait(ONE, "token")).completed
    assert pauses == [1]


def test_scheme_alone_is_replaced() -> None:
    script = Script(answer(200, MADE))
    with scripted(script, use_http=True) as client:
        client.outgoing_payment.get(ONE + "?a=%20b", "token")
    assert str(script.asked[0].url) == "http" + ONE.removeprefix("https") + "?a=%20b"


def test_threads_that_share_a_grant_rotate_it_once() -> None:
    rotations, all_have_asked = [], Barrier(4)

    def respond(request: httpx2.Request) -> httpx2.Response:
        if request.url.path.startswith("/token/"):
            rotations.append(request)
            return answer(200, {"access_token": TOKEN})
        if request.headers["authorization"] == "GNAP new":
            return answer(200, MADE)
        all_have_asked.wait(TIMEOUT)
        return answer(401, error("invalid_token"))

    grant = Grant(value="old", manage=f"{BASE}/token/1")
    with scripted(httpx2.MockTransport(respond)) as client, ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: client.outgoing_payment.get(ONE, grant), range(4)))
    assert (len(found), len(rotations), grant.value) == (4, 1, "new")


async def test_tasks_that_share_a_grant_rotate_it_once() -> None:
    rotations = []

    async def respond(request: httpx2.Request) -> httpx2.Response:
        await asyncio.sleep(0.01)
        if request.url.path.startswith("/token/"):
            rotations.append(request)
            return answer(200, {"access_token": TOKEN})
        is_new = request.headers["authorization"] == "GNAP new"
        return answer(200, MADE) if is_new else answer(401, error("invalid_token"))

    async def signer(base: bytes) -> bytes:
        await asyncio.sleep(0)
        return KEY.sign(base)

    kept = []

    async def keep(grant: Grant) -> None:
        kept.append(grant.value)

    grant = Grant.load(json.dumps({"value": "old", "manage": f"{BASE}/token/1"}))
    transport = httpx2.MockTransport(respond)
    async with AsyncClient(WALLET, signer, "key-1", transport=transport, on_rotate=keep) as client:
        found = await asyncio.gather(*(client.outgoing_payment.get(ONE, grant) for _ in range(10)))
    assert len(found) == 10
    assert (len(rotations), kept) == (1, ["new"])


@pytest.mark.parametrize("call", ["get", "rotate"])
async def test_rotation_goes_on_when_its_call_is_cancelled(call: str) -> None:
    """As by asyncio.timeout: the token that was used is worth nothing any more."""
    kept = list[str]()
    async with cancelled(call, ROTATED, lambda one: kept.append(one.value)) as (client, grant, may_answer):
        assert (grant.value, kept) == ("old", [])
        may_answer.set()
        await client.aclose()
        assert (grant.value, kept, grant.lock.locked()) == ("new", ["new"], False)


async def test_rotation_that_fails_after_its_call_was_cancelled_is_logged_nowhere() -> None:
    logged = list[Any]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))
    async with cancelled("get", GONE) as (client, _, may_answer):
        may_answer.set()
        await asyncio.wait(client._core.finishing)
        gc.collect()
    assert logged == []


async def test_closing_waits_two_seconds_for_a_rotation(monkeypatch: pytest.MonkeyPatch) -> None:
    assert clients.CLOSING_SECONDS == 2
    monkeypatch.setattr(clients, "CLOSING_SECONDS", 0.01)
    async with cancelled("get", ROTATED) as (client, grant, _):
        await client.aclose()
        assert (client._core.http.is_closed, grant.value) == (True, "old")


async def test_closing_that_is_cancelled_lets_the_rotation_end_and_closes() -> None:
    async with cancelled("get", ROTATED) as (client, grant, may_answer):
        closing = asyncio.create_task(client.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        may_answer.set()
        await asyncio.wait(client._core.finishing)
        assert (client._core.http.is_closed, grant.value) == (True, "new")


@asynccontextmanager
async def cancelled(
    call: str, answered: httpx2.Response, on_rotate: Any = None
) -> AsyncIterator[tuple[AsyncClient, Grant, asyncio.Event]]:
    """A client with a grant whose rotation is answered when the event is set, and whose call has been cancelled."""
    is_rotating, may_answer = asyncio.Event(), asyncio.Event()

    async def respond(request: httpx2.Request) -> httpx2.Response:
        if not request.url.path.startswith("/token/"):
            return EXPIRED
        is_rotating.set()
        await may_answer.wait()
        return answered

    grant, transport = Grant(value="old", manage=f"{BASE}/token/1"), httpx2.MockTransport(respond)
    async with AsyncClient(WALLET, KEY, "key-1", transport=transport, on_rotate=on_rotate) as client:
        got = client.outgoing_payment.get(ONE, grant) if call == "get" else client.token.rotate(grant.manage, grant)
        task = asyncio.create_task(got)
        await is_rotating.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        yield client, grant, may_answer
        may_answer.set()


def test_waiting_for_the_rotation_of_another_call_ends_with_the_timeout() -> None:
    grant = Grant(value="old", manage=f"{BASE}/token/1")
    with scripted(Script(EXPIRED)) as client, grant.lock:
        for call, url in ((client.outgoing_payment.get, ONE), (client.token.rotate, grant.manage)):
            with pytest.raises(errors.NotSent, match=r"^token.rotate at pay.example was not sent: another call"):
                call(url, grant, timeout=0.01)


class Losing(httpx2.HTTPTransport):
    """Loses the answer to each first request for a token that was consented to."""

    def __init__(self, payres: Instance) -> None:
        super().__init__(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        self.payres, self.lost = payres, set[str]()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        found = super().handle_request(request)
        if request.url.path in self.lost or not request.url.path.startswith(("/token/", "/continue/")):
            return found
        self.lost.add(request.url.path)
        assert found.status_code == 200, found.read()
        self.payres.clock.advance(1)
        found.close()
        raise LOST


def test_lost_answers_end_no_grant(payres: Instance) -> None:
    url = payres.create_wallet("loser", deposit="100.00")
    losing = Losing(payres)
    options: Json = {"strict": True, "clock": payres.clock, "transport": losing}
    with Client(**payres.new_app("of-loser"), **options) as client:
        me = client.wallet_address.get(url)
        item = access.outgoing_payment("read", "list", identifier=me.id)
        pending = client.grant.start(me, item, finish="http://localhost/")
        grant = client.grant.finish(pending, payres.approve(pending.redirect) or "")
        payres.clock.advance(601)
        assert not client.outgoing_payment.list(me, grant).result
    assert len(losing.lost) == 2


def test_a_forgotten_client_warns() -> None:
    client = Client()
    with pytest.warns(ResourceWarning, match="was not closed"):
        client.__del__()
    client.close()


def test_a_closed_client_says_so() -> None:
    client = Client()
    client.close()
    with pytest.raises(errors.ConfigurationError, match="closed"):
        client.wallet_address.get(WALLET)
