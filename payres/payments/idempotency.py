"""Idempotency keys: what a client creates under one is created once, and a repeated request gets the same answer.

After the IETF draft draft-ietf-httpapi-idempotency-key-header. Where that refuses a copy of a request still under way,
the copy waits here, so that a client never has to guess what a refusal is about.
"""

import asyncio
from collections.abc import Iterator
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from payres.clock import DAY
from payres.errors import Refusal
from payres.store import idempotency
from payres.store.database import Transaction
from payres.store.idempotency import KeptAnswer

KEPT_FOR: Final = DAY
PRUNED_AT_ONCE: Final = 2  # for each that is kept, so that deleting keeps up
MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class KeyedRequest(msgspec.Struct, frozen=True):
    """A request to create something: who asks, under which key, at which path, and the body as it was sent."""

    client_id: int
    key: str
    path: str
    body: bytes


class Turns:
    """Lets the requests of a client under one key pass one after the other, those under other keys beside them.

    That a thing is created once is up to the unit that creates it. This is so that a copy may not be refused while the
    request itself, whose way to another server takes seconds, is still about to succeed.
    """

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[tuple[int, str], asyncio.Lock] = WeakValueDictionary()

    def of(self, request: KeyedRequest) -> asyncio.Lock:
        """The lock that a request must hold; it lives as long as some request holds it or waits for it."""
        return self._locks.setdefault((request.client_id, request.key), asyncio.Lock())


def find_answer(tx: Transaction, request: KeyedRequest, now: int) -> KeptAnswer | None:
    """The answer to this very request, if it came before and created something.

    Refuses with 422 `idempotency_key_reused` when another request did, under the same key.
    """
    kept = idempotency.find_answer(tx, request.client_id, request.key)
    if kept is None or now >= kept.created_at + KEPT_FOR:
        return None
    if kept.path != request.path:
        sentence = f"The Idempotency-Key was used at {kept.path} before; use a new one for each creation"
        raise Refusal(422, "idempotency_key_reused", sentence, {"reason": "path"})
    if kept.request != request.body:
        raise _other_body(first_difference(kept.request, request.body))
    return kept


def keep_answer(tx: Transaction, request: KeyedRequest, status: int, answer: bytes, now: int) -> None:
    """Keeps the answer of what was created in this unit, and forgets some that are too old to be given again."""
    idempotency.delete_answers_until(tx, now - KEPT_FOR, PRUNED_AT_ONCE)
    kept = KeptAnswer(request.client_id, request.key, request.path, request.body, status, answer, now)
    idempotency.keep_answer(tx, kept)


def first_difference(before: bytes, after: bytes) -> str | None:
    """The first member, such as `debitAmount.value`, that two bodies with JSON objects write differently.

    None when they differ in nothing but the order of members or the space between them. What is inside the members of
    `after` need not be valid.
    """
    first, second = _members(before), _members(after)
    for name in _names_that_differ(first, second):
        was, is_now = _members(first.get(name, b"")), _members(second.get(name, b""))
        if not was or not is_now:
            return name
        for part in _names_that_differ(was, is_now):
            return f"{name}.{part}"
    return None


def _names_that_differ(first: dict[str, bytes], second: dict[str, bytes]) -> Iterator[str]:
    names = [*second, *(name for name in first if name not in second)]
    return (name for name in names if first.get(name) != second.get(name))


def _members(text: bytes) -> dict[str, bytes]:
    """The members of a JSON object as they are written; none for anything else."""
    try:
        return {name: bytes(value) for name, value in MEMBERS.decode(text).items()}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def _other_body(member: str | None) -> Refusal:
    advice = "repeat a request byte for byte, and use a new key for a new creation"
    if member is None:
        sentence = (
            f"The Idempotency-Key was used with a body of other bytes before, though with the same members: {advice}"
        )
        return Refusal(422, "idempotency_key_reused", sentence, {"reason": "body"})
    sentence = f"The Idempotency-Key was used with another body before, where {member} differs: {advice}"
    return Refusal(422, "idempotency_key_reused", sentence, {"reason": "body", "field": member})
