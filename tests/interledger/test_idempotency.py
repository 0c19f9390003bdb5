"""Idempotency keys where creation has to ask other servers first, which takes time and can fail."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from typing import Any
from uuid import uuid4

import pytest

from payres.errors import InvalidReceiver
from payres.terms import Offer
from tests.conftest import Refused
from tests.helpers import TIMEOUT, Json
from tests.instance import Instance
from tests.interledger.network import amount, bill, ended, received, wallet_money

COPIES = 20


class Offers:
    """Counts the offers that a server makes. If it is to, it refuses the first once a copy of the request has come."""

    def __init__(self, instance: Instance, monkeypatch: pytest.MonkeyPatch, *, refuse_first: bool = False) -> None:
        self.asked = 0
        come = 0
        has_copy = asyncio.Event()
        make, slot = instance.context.remote_quotes._offer, instance.context.idempotency_slots.slot

        async def count_and_make(*wanted: Any) -> Offer:
            self.asked += 1
            if self.asked == 1 and refuse_first:
                await asyncio.wait_for(has_copy.wait(), TIMEOUT)
                raise InvalidReceiver("No way leads there", reason="no_path")
            return await make(*wanted)

        def count_and_wait(*key: object) -> AbstractAsyncContextManager[None]:
            nonlocal come
            come += 1
            if come > 1:
                has_copy.set()
            return slot(*key)

        monkeypatch.setattr(instance.context.remote_quotes, "_offer", count_and_make)
        monkeypatch.setattr(instance.context.idempotency_slots, "slot", count_and_wait)


def post(instance: Instance, path: str, key: str, body: Json, token: str) -> Any:
    return instance.client.request("POST", path, body, token, {"idempotency-key": key})


def token_of(instance: Instance, kind: str) -> str:
    return instance.client.grant({"type": kind, "actions": ["create", "read"], "identifier": instance.wallet("alice")})


def test_repeated_quote_asks_the_other_server_once(
    pair: Sequence[Instance], monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    a, b = pair
    offers, key, token = Offers(a, monkeypatch), str(uuid4()), token_of(a, "quote")
    receiver = bill(b, b.wallet("bob"))
    body = {"walletAddress": a.wallet("alice"), "receiver": receiver, "method": "ilp", "debitAmount": amount(1000)}
    first = post(a, "/quotes", key, body, token)
    assert first.status_code == 201
    assert post(a, "/quotes", key, body, token).content == first.content
    changed = body | {"debitAmount": amount(1001)}
    refused(post(a, "/quotes", key, changed, token), 422, "idempotency_key_reused", reason="body")
    assert offers.asked == 1


def test_copies_at_once_pay_another_server_once(pair: Sequence[Instance], monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = pair
    before = wallet_money(a, "alice")[0]
    offers, key, token = Offers(a, monkeypatch), str(uuid4()), token_of(a, "outgoing-payment")
    receiver = bill(b, b.wallet("bob"))
    body = {"walletAddress": a.wallet("alice"), "incomingPayment": receiver, "debitAmount": amount(1000)}
    with ThreadPoolExecutor(COPIES) as threads:
        answers = list(threads.map(lambda _: post(a, "/outgoing-payments", key, body, token), range(COPIES)))
    assert {(answer.status_code, answer.content) for answer in answers} == {(201, answers[0].content)}
    assert offers.asked == 1
    assert ended(a, answers[0].json()).record.state == "completed"
    assert received(b, receiver).received == 1000
    assert wallet_money(a, "alice") == (before - 1000, 0)


def test_copy_waits_for_the_first_and_is_tried_anew_if_that_was_refused(
    pair: Sequence[Instance], monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    a, b = pair
    offers, key, token = Offers(a, monkeypatch, refuse_first=True), str(uuid4()), token_of(a, "outgoing-payment")
    receiver = bill(b, b.wallet("bob"))
    body = {"walletAddress": a.wallet("alice"), "incomingPayment": receiver, "debitAmount": amount(1000)}
    with ThreadPoolExecutor(2) as threads:
        answers = list(threads.map(lambda _: post(a, "/outgoing-payments", key, body, token), range(2)))
    refusal, created = sorted(answers, key=lambda answer: int(answer.status_code), reverse=True)
    refused(refusal, 400, "invalid_receiver", reason="no_path")
    assert (created.status_code, offers.asked) == (201, 2)
    assert ended(a, created.json()).record.state == "completed"
