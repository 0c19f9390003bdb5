"""Cross-origin requests: scripts of any web page or browser extension may use the API, but not the pages or the
operator's API.

Clients authenticate by signatures and tokens in their scripts, not by cookies, so all origins are treated alike and
credentials are not allowed (WHATWG Fetch, HTTP CORS protocol).
"""

from collections.abc import Awaitable, Mapping
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from payres.core.http.request_head import header
from payres.core.protocol.urls import CLOSED

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
