import asyncio
import gc
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import msgspec
import pytest

from payres.errors import DomainError
from payres.http.error_responses import error_response
from payres.payments.idempotency import (
    KEPT_FOR,
    LONGEST_NAME,
    MOST_PARTS,
    PRUNED_AT_ONCE,
    KeyedRequest,
    Turns,
    find_answer,
    first_difference,
    keep_answer,
    members_of,
)
from payres.store.clients import ensure_client
from payres.store.connections import connect_writer
from payres.store.database import Transaction
from tests.helpers import PATIENCE

ASKED = KeyedRequest(1, "key", "/quotes", b'{"walletAddress": "https://pay.example/alice"}')


@pytest.fixture
def tx() -> Iterator[Transaction]:
    with closing(connect_writer(":memory:")) as connection:
        for name in ("shop", "bank"):
            ensure_client(connection, name, f"https://{name}.example", None, 0)
        yield connection


def other(**changes: object) -> KeyedRequest:
    return msgspec.structs.replace(ASKED, **changes)


def answer(tx: Transaction, request: KeyedRequest, now: int) -> bytes | None:
    found = find_answer(tx, request, now)
    return None if found is None else found.answer


def keys(tx: Transaction) -> list[str]:
    return [key for (key,) in tx.execute("SELECT key FROM idempotency_key ORDER BY id")]


def test_answer_is_found_for_a_day(tx: Transaction) -> None:
    assert find_answer(tx, ASKED, 5) is None
    keep_answer(tx, ASKED, 201, b"first", 5)
    found = find_answer(tx, ASKED, 5 + KEPT_FOR - 1)
    assert found is not None
    assert (found.status, found.answer) == (201, b"first")
    assert find_answer(tx, ASKED, 5 + KEPT_FOR) is None


def test_key_is_free_again_when_its_day_is_over(tx: Transaction) -> None:
    for number in range(PRUNED_AT_ONCE):
        keep_answer(tx, other(key=f"older {number}"), 201, b"", 0)
    keep_answer(tx, ASKED, 201, b"first", 0)
    assert find_answer(tx, other(path="/outgoing-payments"), KEPT_FOR) is None
    keep_answer(tx, other(body=b"{}"), 201, b"second", KEPT_FOR)  # before what was there is forgotten
    assert answer(tx, other(body=b"{}"), KEPT_FOR) == b"second"
    assert keys(tx) == ["key"]


def test_clients_and_keys_are_told_apart(tx: Transaction) -> None:
    keep_answer(tx, ASKED, 201, b"first", 0)
    assert find_answer(tx, other(client_id=2, path="/outgoing-payments"), 0) is None
    assert find_answer(tx, other(key="KEY", body=b"{}"), 0) is None
    keep_answer(tx, other(client_id=2), 201, b"second", 0)
    assert (answer(tx, ASKED, 0), answer(tx, other(client_id=2), 0)) == (b"first", b"second")


@pytest.mark.parametrize(
    ("request_is", "details", "says"),
    [
        (other(path="/incoming-payments"), {"reason": "path"}, "/quotes"),
        (other(path="/incoming-payments", body=b"{}"), {"reason": "path"}, "/quotes"),
        (other(body=b"{}"), {"reason": "body", "field": "walletAddress"}, "walletAddress"),
        (other(body=ASKED.body + b" "), {"reason": "body"}, "bytes"),
    ],
)
def test_other_request_under_the_key_is_refused(
    tx: Transaction, request_is: KeyedRequest, details: dict[str, str], says: str
) -> None:
    keep_answer(tx, ASKED, 201, b"first", 0)
    with pytest.raises(DomainError, match=says) as caught:
        find_answer(tx, request_is, 0)
    shown = error_response(caught.value)
    assert (shown.status, shown.code) == (422, "idempotency_key_reused")
    assert caught.value.details == details
    assert answer(tx, ASKED, 0) == b"first"


@pytest.mark.parametrize(
    ("before", "after", "member"),
    [
        (b'{"a": 1, "b": 2}', b'{"a": 1, "b": 3}', "b"),
        (b'{"a": 1, "b": 2}', b'{"b": 3, "a": 4}', "b"),
        (b'{"a": 1}', b'{"a": 1, "b": 2}', "b"),
        (b'{"a": 1, "b": 2}', b'{"a": 1}', "b"),
        (b'{"a": {"value": "1", "x": 0}}', b'{"a": {"x": 0, "value": "2"}}', "a.value"),
        (b'{"a": {"value": "1"}}', b'{"a": {}}', "a"),
        (b'{"a": {"value": "1", "b": 2}}', b'{"a": {"b": 2}}', "a.value"),
        (b'{"a": {"b": 1}}', b'{"a": {"\\ud800": 1}}', "a"),
        (b'{"a": {"b": 1}}', b'{"a": {"\xff": 1}}', "a"),
        (b'{"a": {}}', b'{"a": {"value": "1"}}', "a"),
        (b'{"a": {"b": {"c": 1}}}', b'{"a": {"b": {"c": 2}}}', "a.b"),
        (b'{"a": {"b": 1}}', b'{"a": "b"}', "a"),
        (b'{"a": [1]}', b'{"a": [2]}', "a"),
        (b'{"a": 1.0}', b'{"a": 1}', "a"),
        (b'{"a": "b"}', b'{"a": "\\u0062"}', "a"),
        (b'{"a": 1, "b": 2}', b'{"b":2,"a":1}', None),
        (b'{"a": {"b": 1, "c": 2}, "d": 3}', b'{"a": { "c": 2,"b": 1}, "d": 4}', "d"),
        (b'{"a": {"b": 1, "c": 2}}', b'{"a": { "c": 2,"b": 1}}', None),
        (b'{"a": 2, "a": 1}', b'{"a": 1}', None),
        (b"{}", b"{ }", None),
    ],
)
def test_first_difference_names_the_member(before: bytes, after: bytes, member: str | None) -> None:
    assert first_difference(members_of(before), members_of(after)) == member


@pytest.mark.parametrize("depth", [100, 100_000])
def test_first_difference_is_found_in_deep_metadata(depth: int) -> None:
    deep = b'{"metadata": {"a": 1, "b": %s}}' % (b"[" * depth + b"]" * depth)
    before = members_of(b'{"metadata": {"a": 2, "b": 3}}')
    assert first_difference(before, members_of(deep)) in {"metadata.a", "metadata"}


@pytest.mark.parametrize(
    "metadata", [{str(number): number for number in range(MOST_PARTS + 1)}, {"n" * (LONGEST_NAME + 1): 1}]
)
def test_of_a_large_object_the_member_that_differs_is_not_named(metadata: dict[str, int]) -> None:
    before, after = (members_of(msgspec.json.encode({"metadata": metadata | more})) for more in ({}, {"more": 1}))
    assert first_difference(before, after) == "metadata"


@pytest.mark.parametrize("filling", [b" " * 60_000, b'"note": "%s", ' % (b"n" * 60_000), b'"n": 1, ' * 7000])
def test_what_is_kept_of_a_request_does_not_grow_with_it(tx: Transaction, filling: bytes) -> None:
    body = b'{"walletAddress": "https://pay.example/alice", "incomingAmount": {%s"value": "1"}}' % filling
    keep_answer(tx, other(body=body), 201, b"answer", 0)
    assert len(body) > 50_000
    (kept,) = tx.execute("SELECT length(body_hash) + length(members) FROM idempotency_key").fetchone()
    assert kept < 250
    assert answer(tx, other(body=body), 0) == b"answer"
    with pytest.raises(DomainError) as caught:
        find_answer(tx, other(body=body.replace(b'"1"', b'"2"')), 0)
    assert caught.value.details == {"reason": "body", "field": "incomingAmount.value"}


def test_keys_of_yesterday_are_forgotten_a_few_at_a_time(tx: Transaction) -> None:
    for number in range(5):
        keep_answer(tx, other(key=str(number)), 201, b"", number)
    keep_answer(tx, other(key="a"), 201, b"", KEPT_FOR + 3)
    assert keys(tx) == ["2", "3", "4", "a"]
    keep_answer(tx, other(key="b"), 201, b"", KEPT_FOR + 3)
    assert keys(tx) == ["4", "a", "b"], "4 is good for a moment yet"
    keep_answer(tx, other(key="c"), 201, b"", KEPT_FOR + 4)
    assert keys(tx) == ["a", "b", "c"]


def test_key_is_one_of_a_client_that_exists(tx: Transaction) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        keep_answer(tx, other(client_id=3), 201, b"", 0)


async def test_requests_under_one_key_take_turns() -> None:
    turns = Turns()
    order: list[str] = []
    may_end = asyncio.Event()

    async def pass_through(request: KeyedRequest, name: str) -> None:
        async with turns.of(request):
            order.append(f"{name} begins")
            if name == "first":
                await may_end.wait()
            order.append(f"{name} ends")

    passing = [
        asyncio.create_task(pass_through(request, name))
        for request, name in [
            (ASKED, "first"),
            (ASKED, "second"),
            (other(key="b"), "third"),
            (other(client_id=2), "4th"),
        ]
    ]
    await asyncio.wait(passing[2:], timeout=PATIENCE)
    assert order == ["first begins", "third begins", "third ends", "4th begins", "4th ends"]
    may_end.set()
    await asyncio.gather(*passing)
    assert order[5:] == ["first ends", "second begins", "second ends"]


async def test_turns_keep_nothing_of_requests_that_are_over() -> None:
    turns = Turns()
    async with turns.of(ASKED):
        assert turns.of(ASKED).locked()
    gc.collect()
    assert not turns._locks
