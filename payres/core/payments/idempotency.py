"""Idempotency keys: a request with a key is processed once, and a repeated one gets the same answer.

After the IETF draft draft-ietf-httpapi-idempotency-key-header. The draft rejects a copy of a request in progress; here
the copy waits, so that a client never has to guess what an error means.
"""

import hashlib
from typing import Final

import msgspec

from payres.core.protocol.errors import InvalidRequest, KeyReused
from payres.core.store import clients, retention
from payres.core.store.clients import RESPONSES, CachedResponse
from payres.core.store.work import Work

MAX_REFERENCE_LENGTH: Final = 100


class KeyedRequest(msgspec.Struct, frozen=True):
    """A request to create something: the client, the key, the path, and the body as sent.

    `wallet_address` is the grant's, if the body has none: the same body under another grant may mean another wallet,
    and is another request. If `api_key_id` is set, the request came from a program of the operator, not from a client.
    """

    client_id: int | None
    key: str
    path: str
    body: bytes
    wallet_address: str | None = None
    api_key_id: str | None = None

    def digest(self) -> bytes:
        """Distinguishes requests at the same path."""
        return hashlib.sha256(f"{self.wallet_address or ''}\n".encode() + self.body).digest()


def find_response(work: Work, request: KeyedRequest | None) -> bytes | None:
    """The cached body for this exact request, if it created something. Raises KeyReused for a different request."""
    if request is None:
        return None
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


def cache_response(work: Work, request: KeyedRequest | None, response: bytes) -> None:
    """Caches the response to the creation in this unit, unless it has no key."""
    if request is None:
        return
    retention.purge(work, retention.RESPONSES, work.now)
    owner = request.client_id, request.api_key_id
    cached = CachedResponse(*owner, request.key, request.path, request.digest(), response, work.now)
    RESPONSES.replace(work, cached)


def check_reference(reference: str) -> None:
    """Validates the operator's reference of a movement or refund, which makes it idempotent. Raises InvalidRequest."""
    if not 1 <= len(reference) <= MAX_REFERENCE_LENGTH or not reference.isprintable():
        sentence = f"A reference has 1 to {MAX_REFERENCE_LENGTH} printable characters"
        raise InvalidRequest(sentence, field="reference")
