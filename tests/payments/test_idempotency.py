import sqlite3

import msgspec
import pytest

from payres.errors import DomainError
from payres.payments.idempotency import (
    KeyedRequest,
    cache_response,
    find_response,
)
from payres.store.clients import ensure_client
from payres.store.retention import RESPONSES
from payres.store.work import Transaction
from tests.works import work_at

ASKED = KeyedRequest(1, "key", "/quotes", b'{"walletAddress": "https://pay.example/alice"}')


@pytest.fixture(autouse=True)
def clients(tx: Transaction) -> None:
    for name in ("shop", "bank"):
        ensure_client(tx, name, f"https://{name}.example", None, 0)


def other(**changes: object) -> KeyedRequest:
    return msgspec.structs.replace(ASKED, **changes)


def found(tx: Transaction, request: KeyedRequest, now: int) -> bytes | None:
    return find_response(work_at(tx, now), request)


def cache(tx: Transaction, request: KeyedRequest, response: bytes, now: int) -> None:
    cache_response(work_at(tx, now), request, response)


def keys(tx: Transaction) -> list[str]:
    return [key for (key,) in tx.execute("SELECT key FROM idempotency_key ORDER BY id")]


def test_what_is_stored_of_a_request_does_not_grow_with_it(tx: Transaction) -> None:
    body = b'{"walletAddress": "https://pay.example/alice", %s "incomingAmount": {"value": "1"}}' % (b" " * 60_000)
    cache(tx, other(body=body), b"answer", 0)
    (stored,) = tx.execute("SELECT length(body_hash) + length(path) + length(key) FROM idempotency_key").fetchone()
    assert stored < 50
    assert found(tx, other(body=body), 0) == b"answer"
    with pytest.raises(DomainError) as caught:
        found(tx, other(body=body.replace(b'"1"', b'"2"')), 0)
    assert caught.value.details == {"reason": "body"}


def test_keys_of_yesterday_are_forgotten_a_few_at_a_time(tx: Transaction) -> None:
    for number in range(5):
        cache(tx, other(key=str(number)), b"", number)
    cache(tx, other(key="a"), b"", RESPONSES.after + 3)
    assert keys(tx) == ["2", "3", "4", "a"]
    cache(tx, other(key="b"), b"", RESPONSES.after + 3)
    assert keys(tx) == ["4", "a", "b"], "4 is good for a moment yet"
    cache(tx, other(key="c"), b"", RESPONSES.after + 4)
    assert keys(tx) == ["a", "b", "c"]


def test_key_is_one_of_a_client_that_exists(tx: Transaction) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        cache(tx, other(client_id=3), b"", 0)
