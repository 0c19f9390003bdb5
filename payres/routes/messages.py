"""Requests as they came and answers as they go: bounded bodies, what was signed, JSON."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from payres.errors import InvalidRequest
from payres.http.error_responses import ErrorResponse
from payres.routes.context import context_of
from payres.signatures.base import Message
from payres.wire import encode

JSON = "application/json"


async def read_body(request: Request, most: int | None = None) -> bytes:
    """The raw body. Refuses with 413 one longer than the settings allow, or than `most` bytes if that is less."""
    limit = context_of(request).settings.max_body_bytes
    limit = limit if most is None else min(limit, most)
    body, more = bytearray(), True
    while more:
        message = await request.receive()  # Request.stream is a generator and costs as much again as what it reads
        if message["type"] == "http.disconnect":  # nobody reads the answer, but hanging up is no fault of ours either
            raise InvalidRequest("The body ended before all of it had come", field="body")
        body += message.get("body", b"")
        if len(body) > limit:
            raise ErrorResponse(413, "too_large", f"The body is longer than the {limit} bytes that this server takes")
        more = message.get("more_body", False)
    return bytes(body)


async def read_json_body(request: Request) -> bytes:
    """The raw body of a request that must carry JSON. Refuses other media types with 415."""
    body = await read_body(request)
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if body and media_type != JSON:
        raise ErrorResponse(415, "unsupported_media_type", f"Send the body as Content-Type: {JSON}")
    return body


def signed_message(request: Request, body: bytes) -> Message:
    """The request as its signer saw it: the target is the public base URL and the raw request target."""
    scope = request.scope
    target: bytes = scope["raw_path"]
    if scope["query_string"]:
        target += b"?" + scope["query_string"]
    uri = context_of(request).urls.base + target.decode("utf-8", "replace")
    return Message(scope["method"], uri, scope["headers"], body)


def json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """An answer with the struct as JSON; it is for the caller alone unless the headers say otherwise."""
    return Response(encode(content), status, {"Cache-Control": "no-store"} | (headers or {}), media_type=JSON)
