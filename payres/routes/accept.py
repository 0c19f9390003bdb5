"""Accept (RFC 9110 section 12.5.1): a request that rules JSON out is refused before it does anything."""

import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from payres.http.error_responses import ErrorResponse
from payres.limits import MAX_ACCEPT_BYTES
from payres.routes.messages import JSON

# What nearly all clients send, so that nothing need be parsed.
COMMON: Final = frozenset({b"*/*", JSON.encode(), b""})
MEDIA_RANGE: Final = re.compile(r"\*/\*|[\w!#$%&'+.^`|~-]+/(?:\*|[\w!#$%&'+.^`|~-]+)", re.ASCII)
RANGES_OF_JSON: Final = (JSON, "application/*", "*/*")
REFUSED: Final = re.compile(r"q=0(?:\.0*)?")


class JsonRoute(Route):
    """A route whose answers are JSON."""

    def __init__(self, path: str, endpoint: Callable[..., Any], *, methods: Collection[str]) -> None:
        super().__init__(path, endpoint, methods=methods)
        # Starlette's own would catch what the endpoint raises here and once more around all routes; once is enough.
        self.app = _answering(endpoint)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Starlette's; refuses with 406 what accepts no JSON."""
        if self.methods is None or scope["method"] in self.methods:
            check_accept(scope["headers"])
        await super().handle(scope, receive, send)


def _answering(endpoint: Callable[[Request], Awaitable[Response]]) -> ASGIApp:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        response = await endpoint(Request(scope, receive, send))
        await response(scope, receive, send)

    return answer


class WalletRoute(Route):
    """A route of a wallet address. It takes every method, and every Accept: a path without a wallet is unknown whatever
    is asked of it. The endpoint checks both once it has found one."""

    def __init__(self, path: str, endpoint: Callable[..., Any]) -> None:
        super().__init__(path, endpoint)
        self.methods = None


def check_accept(headers: Sequence[tuple[bytes, bytes]], types: Sequence[str] = ()) -> None:
    """Refuses with 406 headers that take neither JSON nor one of the other types. A very long Accept is ignored."""
    for name, value in headers:
        if name == b"accept" and value not in COMMON:
            break
    else:
        return
    if not accepts(_joined(headers), types):
        raise ErrorResponse(406, "not_acceptable", f"The answer is {JSON}: name it in Accept, or leave Accept out")


def takes(headers: Sequence[tuple[bytes, bytes]], media_type: str) -> bool:
    """Whether the headers name this very media type as one that the client takes."""
    wanted = media_type.encode()
    if not any(name == b"accept" and wanted in value.lower() for name, value in headers):
        return False  # nearly always, so that nothing need be parsed
    return bool(_ranges(_joined(headers)).get(media_type))


def accepts(accept: str, types: Sequence[str] = ()) -> bool:
    """Whether an Accept header takes JSON, or names one of the other types. What is malformed in it is passed over."""
    ranges = _ranges(accept)
    if not ranges or any(ranges.get(media_type) for media_type in types):
        return True
    # The most specific range decides.
    return next((ranges[name] for name in RANGES_OF_JSON if name in ranges), False)


def _joined(headers: Sequence[tuple[bytes, bytes]]) -> str:
    """All lines of Accept as one; nothing, as if there were none, when that is longer than anyone needs."""
    joined = b",".join([value for name, value in headers if name == b"accept"])
    return joined.decode("latin-1") if len(joined) <= MAX_ACCEPT_BYTES else ""


def _ranges(accept: str) -> dict[str, bool]:
    """The media ranges of an Accept header in lower case, and whether each is taken or ruled out."""
    ranges: dict[str, bool] = {}
    for member in accept.lower().split(","):
        media_range, *parameters = [part.strip() for part in member.split(";")]
        if MEDIA_RANGE.fullmatch(media_range):
            taken = not any(REFUSED.fullmatch(parameter) for parameter in parameters)
            ranges[media_range] = ranges.get(media_range, False) or taken
    return ranges
