"""What each status of an answer is to the caller, and that errors can be copied and sent to other processes."""

import copy
import pickle
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any

import httpx2
import pytest

from payres.client import Client, Grant, errors
from tests.client.clients import Script
from tests.client.test_client import BASE, BY_AMOUNT, BY_QUOTE, MADE, ONE, TOKEN, WALLET, answer, error, scripted
from tests.helpers import Json

OF: Json = {"wallet_address": WALLET}
# Each call, with the status of its success.
CALLS: dict[str, tuple[int, Callable[[Client], Any]]] = {
    "wallet_address.get": (200, lambda client: client.wallet_address.get(WALLET)),
    "wallet_address.get_keys": (200, lambda client: client.wallet_address.get_keys(WALLET)),
    "wallet_address.get_did_document": (200, lambda client: client.wallet_address.get_did_document(WALLET)),
    "grant.request": (200, lambda client: client.grant.request(BASE, {"type": "quote", "actions": ["create"]})),
    "grant.continue": (200, lambda client: client.grant.continue_(BASE, "t")),
    "grant.cancel": (204, lambda client: client.grant.cancel(BASE, "t")),
    "token.rotate": (200, lambda client: client.token.rotate(BASE, "t")),
    "token.revoke": (204, lambda client: client.token.revoke(BASE, "t")),
    "incoming_payment.create": (201, lambda client: client.incoming_payment.create(BASE, "t", **OF)),
    "incoming_payment.get": (200, lambda client: client.incoming_payment.get(ONE, "t")),
    "incoming_payment.get_public": (200, lambda client: client.incoming_payment.get_public(ONE)),
    "incoming_payment.complete": (200, lambda client: client.incoming_payment.complete(ONE, "t")),
    "incoming_payment.list": (200, lambda client: client.incoming_payment.list(BASE, "t", **OF)),
    "incoming_payment.wait": (200, lambda client: client.incoming_payment.wait(ONE, "t", timeout=0)),
    "quote.create": (201, lambda client: client.quote.create(BASE, "t", **OF, receiver=f"{BASE}/r")),
    "quote.get": (200, lambda client: client.quote.get(ONE, "t")),
    "outgoing_payment.create": (201, lambda client: client.outgoing_payment.create(BASE, "t", **OF, **BY_AMOUNT)),
    "outgoing_payment.create of a quote": (
        201,
        lambda client: client.outgoing_payment.create(BASE, "t", **OF, **BY_QUOTE),
    ),
    "outgoing_payment.get": (200, lambda client: client.outgoing_payment.get(ONE, "t")),
    "outgoing_payment.list": (200, lambda client: client.outgoing_payment.list(BASE, "t", **OF)),
    "outgoing_payment.wait": (200, lambda client: client.outgoing_payment.wait(ONE, "t", timeout=0)),
    "outgoing_payment.get_grant_spent_amounts": (
        200,
        lambda client: client.outgoing_payment.get_grant_spent_amounts(BASE, "t"),
    ),
}
OF_STATUS = {401: errors.SignatureRejected, 403: errors.InsufficientAccess, 404: errors.NotFound}
OF_STATUS |= {409: errors.Conflict, 429: errors.TooManyRequests}
# What HTTP defines as refusals. With 408 and what is not defined, gateways also answer requests that were passed on.
REFUSALS = {status.value for status in HTTPStatus if 400 <= status < 500} - {408}
# Those with a name, the first and last of each kind, and some that nobody has defined.
STATUSES = {*HTTPStatus, *range(100, 600, 50), *range(199, 600, 100), 418, 430, 520, 600, 999}
BODIES = [b"<html>", b'{"error":{"code":"invalid_token","description":"Invalid Token"}}']


def kind_of(call: str, status: int) -> type[Exception]:
    """The error of an answer that does not say more than its status."""
    if status in REFUSALS:
        return OF_STATUS.get(status, errors.BadRequest)
    if 500 <= status < 600:
        return errors.AnswerLost if call.startswith("outgoing_payment.create") else errors.ServerError
    return errors.InvalidAnswer


@pytest.mark.parametrize("call", CALLS)
def test_only_a_refusal_says_that_nothing_was_done(call: str) -> None:
    expected, make = CALLS[call]
    statuses = sorted(STATUSES - {expected})
    left = iter(statuses)
    transport = httpx2.MockTransport(lambda _: httpx2.Response(next(left)))
    with scripted(transport, max_retries=0) as client:
        for status in statuses:
            with pytest.raises(errors.OpenPaymentsError) as caught:
                make(client)
            assert type(caught.value) is kind_of(call, status), status


@pytest.mark.parametrize("body", BODIES)
def test_body_makes_no_refusal_of_another_status(body: bytes) -> None:
    """An `invalid_token` in an answer of 500 would have the token rotated, and the payment made again."""
    _, pay = CALLS["outgoing_payment.create"]
    statuses = sorted(status for status in STATUSES - {201} if not 400 <= status < 500)
    left = iter(statuses)
    transport = httpx2.MockTransport(lambda _: httpx2.Response(next(left), content=body))
    with scripted(transport, max_retries=0) as client:
        for _ in statuses:
            with pytest.raises((errors.InvalidAnswer, errors.AnswerLost)):
                pay(client)
    assert not list(left)


def test_payment_whose_answer_is_of_another_status_is_not_repeated() -> None:
    for status in (200, 202, 302, 304, 408, 499):
        script = Script(answer(status, MADE))
        with scripted(script) as client, pytest.raises(errors.InvalidAnswer, match=f"The answer .{status}. cannot"):
            client.outgoing_payment.create(BASE, "t", **OF, **BY_AMOUNT)
        assert len(script.asked) == 1


def test_408_that_the_server_itself_explains_is_a_refusal() -> None:
    with scripted(Script(answer(408, error("too_slow")))) as client, pytest.raises(errors.BadRequest):
        client.outgoing_payment.create(BASE, "t", **OF, **BY_AMOUNT)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (401, {"error": {"code": "401", "description": "Unauthorized", "details": {}}}, errors.NotFound),
        (401, {"error": {"code": "invalid_continuation", "description": "invalid grant"}}, errors.NotFound),
        (
            401,
            {"error": {"code": "invalid_request", "description": "missing interaction reference"}},
            errors.BadRequest,
        ),
        (401, {"error": {"code": "request_denied"}}, errors.InsufficientAccess),
        (401, {"error": {"code": "401", "description": "Invalid Token"}}, errors.TokenError),
        (401, {"error": {"code": "401", "description": "Signature validation error: x"}}, errors.SignatureRejected),
        (401, {"error": {"code": "invalid_client", "description": "invalid signature"}}, errors.SignatureRejected),
        (404, {"error": {"code": "invalid_continuation"}}, errors.NotFound),
    ],
)
def test_refusals_of_rafiki(status: int, body: Json, kind: type[Exception]) -> None:
    with scripted(Script(answer(status, body))) as client, pytest.raises(errors.ApiError) as caught:
        client.grant.continue_(BASE, "t")
    assert type(caught.value) is kind


def test_unsent_and_lost_name_the_call_and_the_host() -> None:
    causes = httpx2.ConnectError("refused"), httpx2.ProxyError("403 Forbidden"), httpx2.ReadTimeout("")
    kinds = errors.NotSent, errors.NotSent, errors.AnswerLost
    for cause, kind in zip(causes, kinds, strict=True):
        with scripted(Script(cause), max_retries=0) as client, pytest.raises(kind) as caught:
            client.outgoing_payment.create(BASE, "t", **OF, **BY_AMOUNT, idempotency_key="order-42")
        assert "outgoing_payment.create at pay.example" in str(caught.value)
        assert (str(cause) or "ReadTimeout") in str(caught.value)
        if isinstance(caught.value, errors.AnswerLost):
            assert caught.value.idempotency_key == "order-42"


def every_error() -> Iterator[errors.OpenPaymentsError]:
    said = errors.Said(code="c", description="d", details={"reason": "r", "hint": "h", "signatureBase": "b"})
    kinds = [errors.OpenPaymentsError]
    for kind in kinds:
        kinds += kind.__subclasses__()
        if issubclass(kind, errors.ApiError):
            made: Any = kind(400, said, {"x-request-id": "1", "retry-after": "5"})
            made.our_base = "base"
        elif kind is errors.InvalidAnswer:
            made = errors.InvalidAnswer(200, ["one", "two"])
        elif kind is errors.AnswerLost:
            made = errors.AnswerLost("lost", "key")
        else:
            made = kind("text")
        yield made


@pytest.mark.parametrize("made", list(every_error()), ids=lambda made: type(made).__name__)
def test_errors_are_copied_and_pickled(made: errors.OpenPaymentsError) -> None:
    made.add_note("a note")
    copies: list[Any] = [copy.copy(made), copy.deepcopy(made)]
    copies += [pickle.loads(pickle.dumps(made, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    for one in copies:
        assert type(one) is type(made)
        assert (str(one), one.args, vars(one)) == (str(made), made.args, vars(made))
    if isinstance(made, errors.SignatureRejected):
        assert copies[0].server_base == "b"


def test_grants_are_copied_and_pickled() -> None:
    grant = Grant(value="old", manage=f"{BASE}/token/1")
    for one in (copy.copy(grant), copy.deepcopy(grant), pickle.loads(pickle.dumps(grant))):
        assert one == grant
        script = Script(answer(401, error("invalid_token")), answer(200, {"access_token": TOKEN}), answer(200, MADE))
        with scripted(script) as client:
            client.outgoing_payment.get(ONE, one)
        assert (one.value, grant.value) == ("new", "old")
