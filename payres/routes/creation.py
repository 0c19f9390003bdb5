"""Creation: what is the same for incoming payments, quotes and outgoing payments, the Idempotency-Key among it."""

import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from typing import Final, Generic, Protocol, TypeVar, cast

import http_sf
import msgspec
from msgspec import UnsetType
from starlette.requests import Request
from starlette.responses import Response

from payres.errors import InvalidRequest
from payres.grants.access import AccessType, Caller
from payres.grants.tokens import require_valid_token
from payres.http.responses import json_response
from payres.limits import MAX_IDEMPOTENCY_KEY_LENGTH
from payres.payments.idempotency import KeyedRequest, cache_response, find_response
from payres.routes.authorize import authorize
from payres.routes.context import Context, context_of
from payres.routes.messages import read_json_body
from payres.store.grants import keep_grant
from payres.store.work import Work
from payres.terms import Offer
from payres.wire import Resource, decode, encode


class Asked(Protocol):
    """A request body: a wallet address, which an incoming payment may leave to the grant."""

    @property
    def wallet_address(self) -> str | UnsetType: ...


A = TypeVar("A", bound=Asked)
R = TypeVar("R", bound=Resource)

HEADER: Final = b"idempotency-key"
BARE_KEY: Final = re.compile(rb"[\w!#$%&'*+.^`|~:/=@-]+", re.ASCII)


class Kind(msgspec.Struct, Generic[A, R], frozen=True):
    """What the creations differ in.

    `create` is part of the unit of work: it makes the resource and returns what the answer shows. `find_offer` asks
    other servers before it, where a request may be about one of theirs.
    """

    type: AccessType
    decoder: msgspec.json.Decoder[A]
    create: Callable[[Work, Context, Caller, A, Offer | None], R]
    find_offer: Callable[[Context, A], Awaitable[Offer | None]] | None = None


class Creation(msgspec.Struct, Generic[A, R]):
    """One request that creates something. Called, it is the unit of work. `made` is None for a repeated request."""

    kind: Kind[A, R]
    context: Context
    caller: Caller
    asked: A
    keyed: KeyedRequest | None
    offer: Offer | None = None
    made: R | None = None

    def __call__(self, work: Work) -> bytes:
        """The body of the answer, which is stored under the key in the same commit as what it shows.

        Raises TokenInvalid for a token that has ended meanwhile, KeyReused, and what creating raises: then nothing is
        kept, and the key stays unused.
        """
        cached = self.find_cached(work)
        if cached is not None:
            return cached
        if not self.caller.grant_stays:
            keep_grant(work, self.caller.grant_id)
        self.made = self.kind.create(work, self.context, self.caller, self.asked, self.offer)
        response = encode(self.made)
        if self.keyed is not None:
            cache_response(work, self.keyed, response)
        return response

    def find_cached(self, work: Work) -> bytes | None:
        """The body that answered this request before. Raises TokenInvalid, KeyReused."""
        require_valid_token(work, self.caller)
        return None if self.keyed is None else find_response(work, self.keyed)


async def create(request: Request, kind: Kind[A, R]) -> tuple[R | None, Response]:
    """What was created, None if it was before, and the answer 201.

    The order of the steps is the order of errors: 401, 403 by type and action, the key and the body, 403 by wallet
    address, the rules.
    """
    context = context_of(request)
    body = await read_json_body(request)
    caller = await authorize(request, body, kind.type, "create")
    key = idempotency_key(request.scope["headers"])
    asked = decode(kind.decoder, body)
    wallet_address = caller.wallet_address(asked.wallet_address or None)
    caller.require(wallet_address)
    keyed = None
    if key is not None:
        implied = None if asked.wallet_address else wallet_address
        keyed = KeyedRequest(caller.client_id, key, request.scope["path"], body, implied)
    creation = Creation(kind, context, caller, asked, keyed)
    # A copy waits for the first, whose way to another server takes seconds, and gets its answer.
    async with nullcontext() if key is None else context.idempotency_slots.slot(caller.client_id, key):
        answer = await _carry_out(creation)
    return creation.made, json_response(msgspec.Raw(answer), 201)


async def _carry_out(creation: Creation[A, R]) -> bytes:
    """Asks other servers first, unless the request was answered before."""
    database, kind = creation.context.database, creation.kind
    if kind.find_offer is not None:
        cached = None if creation.keyed is None else await database.read(creation.find_cached)
        if cached is not None:
            return cached
        creation.offer = await kind.find_offer(creation.context, creation.asked)
    return await database.write(creation)


def idempotency_key(headers: Sequence[tuple[bytes, bytes]]) -> str | None:
    """The key in the Idempotency-Key header, None without one. Raises InvalidRequest for what is none.

    The draft's form is a string of structured fields (RFC 9651 section 3.3.3); it is taken without its quotes too.
    """
    values = [value for name, value in headers if name == HEADER]
    if not values:
        return None
    if len(values) > 1:
        raise _malformed("Send one Idempotency-Key only")
    key = _string(values[0]) if values[0].startswith(b'"') else values[0].decode("latin-1")
    if not key or len(key) > MAX_IDEMPOTENCY_KEY_LENGTH:
        raise _malformed(f"An Idempotency-Key has 1 to {MAX_IDEMPOTENCY_KEY_LENGTH} characters")
    if not values[0].startswith(b'"') and not BARE_KEY.fullmatch(values[0]):
        raise _malformed("The Idempotency-Key has characters that it can only have in quotes, or not at all")
    return key


def _string(value: bytes) -> str:
    try:
        text, _ = cast("tuple[str, object]", http_sf.parse(value, tltype="item"))
    except ValueError as error:
        raise _malformed(f"The Idempotency-Key is no string of a structured field (RFC 9651): {error}") from error
    return text


def _malformed(description: str) -> InvalidRequest:
    return InvalidRequest(description, field="Idempotency-Key")
