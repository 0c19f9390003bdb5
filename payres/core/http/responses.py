"""Responses: JSON, errors, and access for scripts of other origins.

A request whose Accept excludes JSON (RFC 9110 section 12.5.1) is answered 406 before it does anything.

Clients authenticate by signatures and tokens in their scripts, not by cookies, so all origins are treated alike and
credentials are not allowed (WHATWG Fetch, HTTP CORS protocol).
"""

import re
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from payres.core.http.request_head import Headers, header
from payres.core.protocol.errors import DomainError, NotAcceptable
from payres.core.protocol.limits import MAX_ACCEPT_BYTES
from payres.core.protocol.urls import CLOSED
from payres.core.protocol.wire import encode

JSON: Final = "application/json"
JSON_CONTENT: Final = (b"content-type", JSON.encode())

# The Accept of nearly all clients, which needs no parsing.
COMMON: Final = ("*/*", JSON, "")
MEDIA_RANGE: Final = re.compile(r"\*/\*|[\w!#$%&'+.^`|~-]+/(?:\*|[\w!#$%&'+.^`|~-]+)", re.ASCII)
RANGES_OF_JSON: Final = (JSON, "application/*", "*/*")
QUALITY: Final = re.compile(r"q=([01](?:\.[0-9]*)?)")
# Always sent with answers that caches share: a copy made for a program must serve a script too.
ANY_ORIGIN: Final[Mapping[str, str]] = {"Access-Control-Allow-Origin": "*"}
ANSWER: Final[Mapping[str, str]] = {
    **ANY_ORIGIN,
    "Access-Control-Expose-Headers": (
        "WWW-Authenticate, Location, Retry-After, Preference-Applied, Idempotency-Key, X-Request-Id"
    ),
}
PREFLIGHT: Final[Mapping[str, str]] = {
    **ANY_ORIGIN,
    "Access-Control-Allow-Methods": "GET, HEAD, POST, DELETE, OPTIONS",
    # Authorization must be named: the wildcard does not include it.
    "Access-Control-Allow-Headers": (
        "Authorization, Content-Type, Content-Digest, Content-Length, Signature, Signature-Input, Accept,"
        " Idempotency-Key, Prefer"
    ),
    "Access-Control-Max-Age": "86400",
}


def json_response(content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A struct as a JSON answer; not cacheable unless the headers say otherwise."""
    if headers:
        return Response(encode(content), status, {"Cache-Control": "no-store", **headers}, media_type=JSON)
    return _JsonResponse(encode(content), status)


class _JsonResponse(Response):
    """The common case, without encoding headers each time."""

    def init_headers(self, headers: Mapping[str, str] | None = None) -> None:
        length = b"%d" % len(self.body)
        self.raw_headers = [(b"cache-control", b"no-store"), (b"content-length", length), JSON_CONTENT]


def json_error(error: DomainError) -> Response:
    """The answer for an error, as far as it does not depend on the request."""
    details = {"hint": str(error), **error.details}
    shown = {"code": error.code, "description": error.description, "details": details}
    return json_response({"error": shown}, error.status, error.headers)


def check_accept(headers: Headers, types: Sequence[str] = ()) -> None:
    """Raises 406 if the headers accept neither JSON nor one of the other types. Malformed values are ignored."""
    accept = _accept(headers)
    if accept in COMMON:
        return
    ranges = _ranges(accept)
    if not ranges or any(ranges.get(media_type) for media_type in types):
        return
    if not _quality_of_json(ranges):
        raise NotAcceptable(f"The answer is {JSON}: name it in Accept, or leave Accept out")


def asks_for(headers: Headers, media_type: str) -> bool:
    """Whether the headers accept exactly this media type, by name."""
    return bool(_ranges(_accept(headers)).get(media_type))


def prefers(headers: Headers, media_type: str) -> bool:
    """Whether the headers prefer exactly this media type, by name, to JSON."""
    ranges = _ranges(_accept(headers))
    return ranges.get(media_type, 0) > _quality_of_json(ranges)


def is_browser(headers: Headers) -> bool:
    """Whether the headers accept anything, but prefer HTML to JSON, as browsers do for pages."""
    json = _quality_of_json(_ranges(_accept(headers)))
    return json > 0 and prefers(headers, "text/html")


def last_response(error: DomainError, headers: Iterable[tuple[bytes, bytes]], method: bytes, request_id: str) -> bytes:
    """The bytes of the answer for an error that ends its connection; `headers` are those of all answers.

    The request's origin may not be known yet: any origin's scripts may read it.
    """
    response = json_error(error)
    response.headers.update({**ANSWER, "X-Request-Id": request_id})
    status = HTTPStatus(response.status_code)
    fields = dict([*last_headers(headers), *response.raw_headers, (b"connection", b"close")])
    lines = [f"HTTP/1.1 {status.value} {status.phrase}".encode(), *(b"%b: %b" % field for field in fields.items())]
    return b"\r\n".join([*lines, b"", b"" if method == b"HEAD" else bytes(response.body)])


def last_headers(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers of all answers, for an answer that ends its connection: without Keep-Alive."""
    return [field for field in headers if field[0] != b"keep-alive"]


class CutShort(Exception):
    """An answer cannot be completed. The connection ends without the last chunk, so that nobody takes a part for the
    whole; or it `is_reset`, as if the network had failed."""

    def __init__(self, why: str, *, is_reset: bool = False) -> None:
        super().__init__(why)
        self.is_reset = is_reset


def _accept(headers: Headers) -> str:
    """All Accept lines joined; empty, as if there were none, if longer than anyone needs."""
    joined = b",".join([value for name, value in headers if name == b"accept"])
    return joined.decode("latin-1") if len(joined) <= MAX_ACCEPT_BYTES else ""


def _quality_of_json(ranges: Mapping[str, float]) -> float:
    """The quality by the most specific range; 0 if none accepts JSON."""
    return next((ranges[name] for name in RANGES_OF_JSON if name in ranges), 0)


def _ranges(accept: str) -> dict[str, float]:
    """The media ranges of an Accept header in lower case with their quality, 0 if excluded."""
    ranges: dict[str, float] = {}
    for member in accept.lower().split(","):
        media_range, *parameters = [part.strip() for part in member.split(";")]
        if MEDIA_RANGE.fullmatch(media_range):
            quality = min((float(found[1]) for text in parameters if (found := QUALITY.fullmatch(text))), default=1.0)
            ranges[media_range] = max(ranges.get(media_range, 0), quality)
    return ranges


class CrossOrigin:
    """Answers preflights for every open path, and adds the headers that let other origins' scripts read answers."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if not _is_open(scope):
            return self.app(scope, receive, send)
        if scope["method"] == "OPTIONS" and header(scope["headers"], b"access-control-request-method") is not None:
            # Also for unknown paths: otherwise a script could not read the 404 that follows.
            return Response(status_code=204, headers=PREFLIGHT)(scope, receive, send)
        return self.app(scope, receive, _opened(send))


def _is_open(scope: Scope) -> bool:
    return header(scope["headers"], b"origin") is not None and not f"{scope['path']}/".startswith(CLOSED)


def _opened(send: Send) -> Send:
    async def send_opened(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(ANSWER)
        await send(message)

    return send_opened
