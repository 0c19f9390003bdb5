import msgspec
import pytest

from payres.payments.idempotency import (
    KeyedRequest,
    cache_response,
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


def cache(tx: Transaction, request: KeyedRequest, response: bytes, now: int) -> None:
    cache_response(work_at(tx, now), request, response)


def keys(tx: Transaction) -> list[str]:
    return [key for (key,) in tx.execute("SELECT key FROM idempotency_key ORDER BY id")]


def test_keys_of_yesterday_are_forgotten_a_few_at_a_time(tx: Transaction) -> None:
    for number in range(5):
        cache(tx, other(key=str(number)), b"", number)
    cache(tx, other(key="a"), b"", RESPONSES.after + 3)
    assert keys(tx) == ["2", "3", "4", "a"]
    cache(tx, other(key="b"), b"", RESPONSES.after + 3)
    assert keys(tx) == ["4", "a", "b"], "4 is good for a moment yet"
    cache(tx, other(key="c"), b"", RESPONSES.after + 4)
    assert keys(tx) == ["a", "b", "c"]
