"""How long the header section of a request may be, for whatever server the application runs under."""

from collections.abc import Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

from payres.http.error_responses import ErrorResponse
from payres.limits import MAX_HEADER_BYTES
from payres.routes.rate_limits import RateLimits
from payres.routes.refusals import refusal_response


def section_bytes(method: str | bytes, target_bytes: int, headers: Iterable[tuple[bytes, bytes]]) -> int:
    """The length of a header section in its plain spelling, from the request line to the empty line (RFC 9112)."""
    size = len(method) + target_bytes + len("  HTTP/1.1\r\n\r\n")
    for name, value in headers:
        size += len(name) + len(value) + len(": \r\n")
    return size


def too_long() -> ErrorResponse:
    """The refusal of a longer header section. What follows it on the connection is not read (RFC 6585 section 5)."""
    sentence = f"The request line and the headers are longer than the {MAX_HEADER_BYTES} bytes that this server takes"
    return ErrorResponse(431, "too_large", sentence, headers={"Connection": "close"})


class HeaderLimit:
    """Refuses longer header sections under servers that have no such limit, or another."""

    def __init__(self, app: ASGIApp, limits: RateLimits) -> None:
        self.app = app
        self.limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and _section_bytes(scope) > MAX_HEADER_BYTES:
            refusal = too_long()
            self.limits.count_failure(scope, refusal.status)
            await refusal_response(refusal)(scope, receive, send)
        else:
            await self.app(scope, receive, send)


def _section_bytes(scope: Scope) -> int:
    query = scope["query_string"]
    target_bytes = len(scope["raw_path"]) + (len("?") + len(query) if query else 0)
    return section_bytes(scope["method"], target_bytes, scope["headers"])
