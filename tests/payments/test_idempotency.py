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


def test_answer_is_found_for_a_day(tx: Transaction) -> None:
    assert found(tx, ASKED, 5) is None
    cache(tx, ASKED, b"first", 5)
    assert found(tx, ASKED, 5 + RESPONSES.after - 1) == b"first"
    assert found(tx, ASKED, 5 + RESPONSES.after) is None


def test_key_is_free_again_when_its_day_is_over(tx: Transaction) -> None:
    for number in range(2):
        cache(tx, other(key=f"older {number}"), b"", 0)
    cache(tx, ASKED, b"first", 0)
    assert found(tx, other(path="/outgoing-payments"), RESPONSES.after) is None
    cache(tx, other(body=b"{}"), b"second", RESPONSES.after)  # before what was there is forgotten
    assert found(tx, other(body=b"{}"), RESPONSES.after) == b"second"
    assert keys(tx) == ["key"]


def test_clients_and_keys_are_told_apart(tx: Transaction) -> None:
    cache(tx, ASKED, b"first", 0)
    assert found(tx, other(client_id=2, path="/outgoing-payments"), 0) is None
    assert found(tx, other(key="KEY", body=b"{}"), 0) is None
    cache(tx, other(client_id=2), b"second", 0)
    assert (found(tx, ASKED, 0), found(tx, other(client_id=2), 0)) == (b"first", b"second")


@pytest.mark.parametrize(
    ("request_is", "details", "says"),
    [
        (other(path="/incoming-payments"), {"reason": "path"}, "/quotes"),
        (other(path="/incoming-payments", body=b"{}"), {"reason": "path"}, "/quotes"),
        (other(body=b"{}"), {"reason": "body"}, "byte for byte"),
        (other(body=ASKED.body + b" "), {"reason": "body"}, "byte for byte"),
    ],
)
def test_other_request_under_the_key_is_refused(
    tx: Transaction, request_is: KeyedRequest, details: dict[str, str], says: str
) -> None:
    cache(tx, ASKED, b"first", 0)
    with pytest.raises(DomainError, match=says) as caught:
        found(tx, request_is, 0)
    assert (caught.value.status, caught.value.code) == (422, "idempotency_key_reused")
    assert caught.value.details == details
    assert found(tx, ASKED, 0) == b"first"


def test_grant_of_another_wallet_makes_another_request_of_a_body_that_names_none(tx: Transaction) -> None:
    cache(tx, other(wallet_address="https://pay.example/alice"), b"first", 0)
    for wallet_address in (None, "https://pay.example/bob"):
        with pytest.raises(DomainError) as caught:
            found(tx, other(wallet_address=wallet_address), 0)
        assert caught.value.details == {"reason": "body"}


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
