"""Idempotency keys: what a client creates under one is created once, and a repeated request gets the same answer.

After the IETF draft draft-ietf-httpapi-idempotency-key-header. Where that refuses a copy of a request in progress, the
copy waits here, so that a client never has to guess what an error is about.
"""

import hashlib
from collections.abc import Callable
from typing import Final

import msgspec

from payres.errors import InvalidRequest, KeyReused
from payres.store import clients, retention
from payres.store.clients import RESPONSES, CachedResponse
from payres.store.work import Work

MAX_REFERENCE_LENGTH: Final = 100


class KeyedRequest(msgspec.Struct, frozen=True):
    """A request to create something: who asks, under which key, at which path, and the body as it was sent.

    `wallet_address` is what the grant says in place of a body without one: the same body under another grant may mean
    another wallet, and is another request. With `api_key_id`, a program of the operator asks, and no client.
    """

    client_id: int | None
    key: str
    path: str
    body: bytes
    wallet_address: str | None = None
    api_key_id: str | None = None

    def digest(self) -> bytes:
        """What tells the request from others at the same path."""
        return hashlib.sha256(f"{self.wallet_address or ''}\n".encode() + self.body).digest()


def once(work: Work, request: KeyedRequest | None, make: Callable[[], bytes]) -> bytes:
    """The body that answers a request: what answered it before, or what `make` returns, which is stored under the key
    in the same commit as what it shows. Raises KeyReused, and what `make` raises: then nothing is stored.
    """
    if request is None:
        return make()
    answer = find_response(work, request)
    if answer is None:
        answer = make()
        cache_response(work, request, answer)
    return answer


def find_response(work: Work, request: KeyedRequest) -> bytes | None:
    """The body that answered this very request before, if it created something. Raises KeyReused for another one."""
    cached = clients.find_response(work, request.client_id, request.api_key_id, request.key)
    if cached is None or work.now >= cached.created_at + retention.RESPONSES.after:
        return None
    if cached.path != request.path:
        sentence = f"The Idempotency-Key was used at {cached.path} before; use a new one for each creation"
        raise KeyReused(sentence, reason="path")
    if cached.body_hash != request.digest():
        raise KeyReused(
            "The Idempotency-Key was used with another body before: repeat a request byte for byte, and use a new key"
            " for a new creation",
            reason="body",
        )
    return cached.response


def cache_response(work: Work, request: KeyedRequest, response: bytes) -> None:
    """Stores the body that answers what was created in this unit."""
    retention.purge(work, retention.RESPONSES, work.now)
    owner = request.client_id, request.api_key_id
    cached = CachedResponse(*owner, request.key, request.path, request.digest(), response, work.now)
    RESPONSES.replace(work, cached)


def check_reference(reference: str) -> None:
    """Checks the operator's name for a movement or refund, which is made once. Raises InvalidRequest."""
    if not 1 <= len(reference) <= MAX_REFERENCE_LENGTH or not reference.isprintable():
        sentence = f"A reference has 1 to {MAX_REFERENCE_LENGTH} printable characters"
        raise InvalidRequest(sentence, field="reference")
