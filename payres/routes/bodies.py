"""Bodies of requests: their media type, and how long they may be."""

from collections.abc import Mapping

from starlette.requests import Request

from payres.errors import BodyTooLarge, InvalidRequest, UnsupportedMediaType
from payres.http.request_head import declared_length, header, is_encoded
from payres.http.responses import JSON
from payres.routes.context import context_of


async def read_body(request: Request, most: int | None = None) -> bytes:
    """The raw body. Raises 413 for one longer than the settings allow, or than `most` bytes if that is less, 415 for
    one that is compressed, and InvalidRequest for one that ends before all of it has come.

    A body that is declared too long is neither asked for (with 100 Continue) nor waited for.
    """
    limit = context_of(request).settings.max_body_bytes
    limit = limit if most is None else min(limit, most)
    if (declared_length(request.scope["headers"]) or 0) > limit:
        # A client that awaits 100 Continue may send the body or not: nobody knows where its next request begins.
        raise _too_large(limit, {"Connection": "close"} if "expect" in request.headers else None)
    body, more = bytearray(), True
    while more:
        message = await request.receive()  # Request.stream is a generator and costs as much again as what it reads
        if message["type"] == "http.disconnect":  # nobody reads the answer, but hanging up is no fault of ours either
            raise InvalidRequest("The body ended before all of it had come", field="body")
        body += message.get("body", b"")
        if len(body) > limit:
            raise _too_large(limit)
        more = message.get("more_body", False)
    codings = [value.decode("latin-1") for name, value in request.scope["headers"] if name == b"content-encoding"]
    if codings and body and any(map(is_encoded, codings)):
        raise UnsupportedMediaType(
            "Send the body as it is, without a Content-Encoding", {"Accept-Encoding": "identity"}
        )
    return bytes(body)


async def read_json_body(request: Request) -> bytes:
    """The raw body of a request that must carry JSON. Raises 415 for another media type."""
    body = await read_body(request)
    if body and media_type_of(request) != JSON:
        raise UnsupportedMediaType(f"Send the body as Content-Type: {JSON}")
    return body


def media_type_of(request: Request) -> str:
    """The media type of the body in lower case, without parameters; empty when none is named."""
    value = header(request.scope["headers"], b"content-type") or b""
    return value.decode("latin-1").partition(";")[0].strip().lower()


def _too_large(limit: int, headers: Mapping[str, str] | None = None) -> BodyTooLarge:
    return BodyTooLarge(f"The body is longer than the {limit} bytes that this server takes", headers)
