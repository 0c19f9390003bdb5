"""Idempotency keys: what a client creates under one is created once, and a repeated request gets the same answer.

After the IETF draft draft-ietf-httpapi-idempotency-key-header. Where that refuses a copy of a request still under way,
the copy waits here, so that a client never has to guess what a refusal is about.
"""

import asyncio
import hashlib
from collections.abc import Iterator, Mapping
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from payres.clock import DAY
from payres.errors import KeyReused
from payres.store import idempotency
from payres.store.database import Transaction
from payres.store.idempotency import KeptAnswer

KEPT_FOR: Final = DAY
PRUNED_AT_ONCE: Final = 2  # for each that is kept, so that deleting keeps up
# Characters of a digest of a member: enough to tell two texts apart of which one client chose both.
DIGEST_LENGTH: Final = 16
# Of an object with more members or longer names, such as much metadata, it is not kept which member differs.
MOST_PARTS: Final = 8
LONGEST_NAME: Final = 32


class Member(msgspec.Struct, frozen=True, array_like=True):
    """What is kept of a member of a body: the digest of its text and, of a small object, those of its own members."""

    whole: str
    parts: dict[str, str]


Members = dict[str, Member]
OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
MEMBERS: Final = msgspec.json.Decoder(Members)


class KeyedRequest(msgspec.Struct, frozen=True):
    """A request to create something: who asks, under which key, at which path, and the body as it was sent.

    `wallet_address` is what the grant says in place of a body without one: the same body under another grant may mean
    another wallet, and is another request.
    """

    client_id: int
    key: str
    path: str
    body: bytes
    wallet_address: str | None = None


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
        raise KeyReused(sentence, reason="path")
    if kept.body_hash != _hash(request):
        raise _other_body(first_difference(MEMBERS.decode(kept.members), _members(request)))
    return kept


def keep_answer(tx: Transaction, request: KeyedRequest, status: int, answer: bytes, now: int) -> None:
    """Keeps the answer of what was created in this unit, and forgets some that are too old to be given again.

    Of the request no more is kept than tells it from others: what it said is in what was created, and its answer.
    """
    idempotency.delete_answers_until(tx, now - KEPT_FOR, PRUNED_AT_ONCE)
    kept = KeptAnswer(
        client_id=request.client_id,
        key=request.key,
        path=request.path,
        body_hash=_hash(request),
        members=msgspec.json.encode(_members(request)).decode(),
        status=status,
        answer=answer,
        created_at=now,
    )
    idempotency.keep_answer(tx, kept)


def members_of(body: bytes) -> Members:
    """What tells the members of a body from those of another; none when it is no JSON object."""
    return {name: Member(_digest(value), _parts(value)) for name, value in _object(body).items()}


def first_difference(before: Members, after: Members) -> str | None:
    """The first member, such as `debitAmount.value`, that two bodies write differently.

    None when they differ in nothing but the order of members or the space between them. What is inside the members of
    `after` need not be valid.
    """
    for name in _names_that_differ(before, after):
        was, is_now = (members[name].parts if name in members else {} for members in (before, after))
        if not was or not is_now:
            return name
        for part in _names_that_differ(was, is_now):
            return f"{name}.{part}"
    return None


def _names_that_differ(first: Mapping[str, object], second: Mapping[str, object]) -> Iterator[str]:
    names = [*second, *(name for name in first if name not in second)]
    return (name for name in names if first.get(name) != second.get(name))


def _parts(text: bytes) -> dict[str, str]:
    """The digests of the members of a small object; none for anything else."""
    parts = _object(text)
    if len(parts) > MOST_PARTS or any(len(name) > LONGEST_NAME for name in parts):
        return {}
    return {name: _digest(value) for name, value in parts.items()}


def _object(text: bytes) -> dict[str, bytes]:
    """The members of a JSON object as they are written; none for anything else."""
    try:
        return {name: bytes(value) for name, value in OBJECT.decode(text).items()}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def _members(request: KeyedRequest) -> Members:
    members = members_of(request.body)
    if request.wallet_address is not None:
        members["walletAddress"] = Member(_digest(msgspec.json.encode(request.wallet_address)), {})
    return members


def _hash(request: KeyedRequest) -> bytes:
    return hashlib.sha256(f"{request.wallet_address or ''}\n".encode() + request.body).digest()


def _digest(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()[:DIGEST_LENGTH]


def _other_body(member: str | None) -> KeyReused:
    advice = "repeat a request byte for byte, and use a new key for a new creation"
    if member is None:
        sentence = (
            f"The Idempotency-Key was used with a body of other bytes before, though with the same members: {advice}"
        )
        return KeyReused(sentence, reason="body")
    sentence = f"The Idempotency-Key was used with another body before, where {member} differs: {advice}"
    return KeyReused(sentence, reason="body", field=member)
