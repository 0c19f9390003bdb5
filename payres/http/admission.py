"""Refuses requests that are too long, too frequent or too many at a time, before anything is done for them."""

from starlette.types import ASGIApp, Receive, Scope, Send

from payres.clock import SECOND
from payres.errors import DomainError
from payres.federation.lookups import requested_by
from payres.http.rate_limits import PEERS, RateLimits
from payres.http.request_head import EXTENSION, section_bytes, too_long
from payres.http.responses import error_response_of
from payres.limits import MAX_HEADER_BYTES, MAX_REQUESTS_PER_ADDRESS
from payres.rate_limiter import origin_of, too_many


class Admission:
    """The first look at a request."""

    def __init__(self, app: ASGIApp, limits: RateLimits) -> None:
        self.app = app
        self.limits = limits
        self._in_progress: dict[str, int] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        address = origin_of(scope)
        requested_by.set(address or "")  # names that the request has looked up count for it too
        refusal = self._refusal(address, scope)
        if refusal is not None:
            await error_response_of(refusal)(scope, receive, send)
        elif address is None or scope["path"] == PEERS:  # packets of many payments may come from one address
            await self.app(scope, receive, send)
        else:
            await self._serve_counted(address, scope, receive, send)

    def _refusal(self, address: str | None, scope: Scope) -> DomainError | None:
        if address is not None:
            refusal = self.limits.refusal_of_address(address, scope["path"])
            if refusal is not None:
                return refusal
            count = self._in_progress.get(address, 0)
            if count >= MAX_REQUESTS_PER_ADDRESS and scope["path"] != PEERS:
                sentence = f"Your address has {count} requests under way. Wait for their answers before you send more"
                return too_many(SECOND, sentence)
        # Servers other than ours have no such limit, or another.
        if EXTENSION not in scope.get("extensions", ()) and _section_bytes(scope) > MAX_HEADER_BYTES:
            error = too_long()
            self.limits.count_failure(scope, error.status)
            return error
        return None

    async def _serve_counted(self, address: str, scope: Scope, receive: Receive, send: Send) -> None:
        self._in_progress[address] = self._in_progress.get(address, 0) + 1
        try:
            await self.app(scope, receive, send)
        finally:
            left = self._in_progress.pop(address) - 1
            if left:
                self._in_progress[address] = left


def _section_bytes(scope: Scope) -> int:
    query = scope["query_string"]
    target_bytes = len(scope["raw_path"]) + (len("?") + len(query) if query else 0)
    return section_bytes(scope["method"], target_bytes, scope["headers"])
