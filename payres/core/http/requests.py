"""Requests: with an actor; and parts of them: the body and its media type, the Idempotency-Key, the query of a list."""

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeVar, cast

import http_sf
import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request

from payres.core.http.context import Context, context_of
from payres.core.http.request_head import declared_length, header
from payres.core.http.responses import JSON
from payres.core.protocol.errors import BodyTooLarge, InvalidRequest, UnsupportedMediaType
from payres.core.protocol.limits import DEFAULT_PAGE, MAX_IDEMPOTENCY_KEY_LENGTH, MAX_PAGE, MAX_QUERY_BYTES
from payres.core.store.rows import PageQuery
from payres.core.store.work import Work

T = TypeVar("T")

MAX_NUMBER_LENGTH: Final = 18  # of a cursor that is a number
# In quotes, with each character escaped, and blanks around. Parsing takes long.
MAX_KEY_BYTES: Final = 3 * MAX_IDEMPOTENCY_KEY_LENGTH
KEY_LENGTH: Final = f"An Idempotency-Key has 1 to {MAX_IDEMPOTENCY_KEY_LENGTH} characters"
BARE_KEY: Final = re.compile(rb"[\w!#$%&'*+.^`|~:/=@-]+", re.ASCII)


class ActorRequest(msgspec.Struct, frozen=True):
    """A request with an actor for the audit log. `read` and `write` run units in the actor's name.

    `authenticate` returns the actor. It raises TokenInvalid or SignInFailed if the actor no longer has access.
    """

    request: Request
    authenticate: Callable[[Work], str]

    @property
    def context(self) -> Context:
        return context_of(self.request)

    async def read(self, unit: Callable[[Work], T]) -> T:
        """The unit's result over one snapshot; on a separate connection, so that no payment waits for it."""
        return await self.context.database.examine(self.authenticated(unit))

    async def write(self, unit: Callable[[Work], T]) -> T:
        """The unit's result, once its work is committed."""
        return await self.context.database.write(self.authenticated(unit))

    def authenticated(self, unit: Callable[[Work], T]) -> Callable[[Work], T]:
        """The unit in the name of the actor, who is authenticated again."""

        def run(work: Work) -> T:
            work.actor = self.authenticate(work)  # known only now: in the transaction that does the work
            return unit(work)

        return run


async def read_body(request: Request, most: int | None = None) -> bytes:
    """The raw body. Raises 413 if it is longer than the setting or `most` bytes, 415 if it is compressed, and
    InvalidRequest if it is incomplete.

    A body whose declared length is too long is not read, nor requested with 100 Continue.
    """
    limit = context_of(request).settings.max_body_bytes
    limit = limit if most is None else min(limit, most)
    if (declared_length(request.scope["headers"]) or 0) > limit:
        # A client that awaits 100 Continue may or may not send the body, so the connection cannot be reused.
        raise _too_large(limit, {"Connection": "close"} if "expect" in request.headers else None)
    body, more = bytearray(), True
    while more:
        message = await request.receive()  # Request.stream would double the cost
        if message["type"] == "http.disconnect":  # nobody reads the response, but this is not a server error
            raise InvalidRequest("The body ended before all of it had come", field="body")
        body += message.get("body", b"")
        if len(body) > limit:
            raise _too_large(limit)
        more = message.get("more_body", False)
    if body:
        codings = {value.strip().lower() for name, value in request.scope["headers"] if name == b"content-encoding"}
        if codings - {b"", b"identity"}:  # not supported (RFC 9110 section 8.4)
            sentence = "Send the body as it is, without a Content-Encoding"
            raise UnsupportedMediaType(sentence, {"Accept-Encoding": "identity"})
    return bytes(body)


async def read_json_body(request: Request) -> bytes:
    """The raw body of a JSON request. Raises 415 for another media type."""
    body = await read_body(request)
    if body and media_type_of(request) != JSON:
        raise UnsupportedMediaType(f"Send the body as Content-Type: {JSON}")
    return body


def media_type_of(request: Request) -> str:
    """The media type of the body in lower case, without parameters; empty if missing."""
    value = header(request.scope["headers"], b"content-type") or b""
    return value.decode("latin-1").partition(";")[0].strip().lower()


def idempotency_key(headers: Sequence[tuple[bytes, bytes]]) -> str | None:
    """The key in the Idempotency-Key header, or None. Raises InvalidRequest if it is malformed.

    The draft requires a structured-field string (RFC 9651 section 3.3.3); a key without quotes is accepted too.
    """
    values = [value for name, value in headers if name == b"idempotency-key"]
    if not values:
        return None
    if len(values) > 1:
        raise _malformed_key("Send one Idempotency-Key only")
    [value] = values
    is_quoted = value.startswith(b'"')
    if len(value) > MAX_KEY_BYTES:
        raise _malformed_key(KEY_LENGTH)
    key = _structured_string(value) if is_quoted else value.decode("latin-1")
    if not key or len(key) > MAX_IDEMPOTENCY_KEY_LENGTH:
        raise _malformed_key(KEY_LENGTH)
    if not is_quoted and not BARE_KEY.fullmatch(value):
        raise _malformed_key("The Idempotency-Key has characters that it can only have in quotes, or not at all")
    return key


def wallet_address_of(request: Request) -> str:
    """The `wallet-address` of a list's query. Raises InvalidRequest if it is missing or the query is too long."""
    values = _parameters(request).getlist("wallet-address")
    if len(values) != 1 or not values[0]:
        raise InvalidRequest(
            "Name the wallet address once, as the query parameter wallet-address", field="wallet-address"
        )
    return values[0]


def page_query(request: Request, *, numbers: bool = False) -> PageQuery:
    """The requested page; with `numbers`, cursors may be numbers. Raises InvalidRequest, also for a long query."""
    parameters = _parameters(request)
    first, last = _count(parameters, "first"), _count(parameters, "last")
    cursor = _cursor(_only(parameters, "cursor"), numbers=numbers)
    if first and last:
        raise InvalidRequest("first and last exclude each other", field="last")
    if last and cursor is None:
        raise InvalidRequest("last counts back from a cursor: give cursor too", field="cursor")
    if last:
        return PageQuery(last, cursor, "newer")
    return PageQuery(first or DEFAULT_PAGE, cursor, "older")


def other_parameters(request: Request, known: Sequence[str]) -> dict[str, str]:
    """The query parameters except these. Raises InvalidRequest for repeated ones and a long query."""
    parameters = _parameters(request)
    found: dict[str, str] = {}
    for name, value in parameters.multi_items():
        if name in found:
            raise InvalidRequest(f"Give {name} once", field=name)
        if name not in known:
            found[name] = value
    return found


def _too_large(limit: int, headers: Mapping[str, str] | None = None) -> BodyTooLarge:
    return BodyTooLarge(f"The body is longer than the {limit} bytes that this server takes", headers)


def _structured_string(value: bytes) -> str:
    try:
        text, _ = cast("tuple[str, object]", http_sf.parse(value, tltype="item"))
    except ValueError as error:
        raise _malformed_key(f"The Idempotency-Key is no string of a structured field (RFC 9651): {error}") from error
    return text


def _malformed_key(description: str) -> InvalidRequest:
    return InvalidRequest(description, field="Idempotency-Key")


def _parameters(request: Request) -> QueryParams:
    if len(request.scope["query_string"]) > MAX_QUERY_BYTES:
        raise InvalidRequest(f"The query is longer than the {MAX_QUERY_BYTES} bytes that a list needs", field="query")
    return _parsed(request.scope["query_string"])


@lru_cache(maxsize=32)  # a parsed query takes up to 150 kB
def _parsed(query: bytes) -> QueryParams:
    """Cached, because clients poll the same lists."""
    return QueryParams(query)


def _only(parameters: QueryParams, name: str) -> str | None:
    """The value of a parameter that must not be repeated."""
    values = parameters.getlist(name)
    if len(values) > 1:
        raise InvalidRequest(f"Give {name} once", field=name)
    return values[0] if values else None


def _count(parameters: QueryParams, name: str) -> int | None:
    text = _only(parameters, name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 3 and 1 <= int(text) <= MAX_PAGE):
        raise InvalidRequest(f"{name} must be a whole number from 1 to {MAX_PAGE}", field=name)
    return int(text)


def _cursor(text: str | None, *, numbers: bool) -> str | None:
    if text is None:
        return None
    if numbers and text.isascii() and text.isdigit() and len(text) <= MAX_NUMBER_LENGTH:
        return text
    try:
        parsed = str(uuid.UUID(text))
    except ValueError:
        parsed = None
    if parsed != text.lower():
        raise InvalidRequest("cursor must be a startCursor or endCursor of an earlier page", field="cursor")
    return parsed
