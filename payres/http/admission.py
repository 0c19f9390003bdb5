"""Admission: which requests are answered with an error before anything is done for them, and how often the API may be
asked: by an address before anything is known of it, by a client once it is authenticated.

An address whose requests prove and find nothing is guessing; after a while no more of them are taken.
"""

from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from payres.clock import SECOND, Clock
from payres.endpoints import ENDPOINTS, Kind
from payres.errors import TooManyRequests
from payres.http.request_head import EXTENSION, section_bytes, too_long
from payres.http.responses import error_response_of
from payres.limits import MAX_HEADER_BYTES, MAX_REQUESTS_PER_ADDRESS
from payres.rate_limiter import RateLimiter, origin_of, too_many
from payres.requester import requested_by
from payres.settings import Settings
from payres.slots import Slots

# Where peers post packets: they have a rate of their own, and beyond it are answered with packets.
[PEERS] = [endpoint.path for endpoint in ENDPOINTS if endpoint.kind is Kind.PEERS]
# 406 and 431 are answered before any credential is looked at.
FAILED: Final = (401, 404, 406, 431)
# With one of these a request would have got a 401 first if the credential were worth nothing.
CREDENTIALS: Final = frozenset({b"authorization", b"signature"})
UNAUTHENTICATED: Final = (
    "Too many grant requests from this address, or requests of clients that are known by a key alone. Wait as"
    " Retry-After says"
)
TOO_MANY_IN_PROGRESS: Final = (
    f"Your address has {MAX_REQUESTS_PER_ADDRESS} requests in progress. Wait for their answers before you send more"
)


class RateLimits:
    """The rate limiters of one server."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._clients = RateLimiter(settings.rate_limit_per_client, clock)
        self._addresses = RateLimiter(settings.rate_limit_per_address, clock)
        self._unauthenticated = RateLimiter(settings.rate_limit_of_strangers, clock)

    def check_address(self, address: str, path: str) -> None:
        """Counts a request for its address. Raises TooManyRequests."""
        wait = self._unauthenticated.wait(address)
        if wait:
            raise too_many(wait, "Too many requests from this address proved nothing. Wait as Retry-After says")
        wait = 0 if path == PEERS else self._addresses.take(address)
        if wait:
            raise too_many(wait, "Too many requests from this address. Wait as Retry-After says")

    def check_client(self, identity: str) -> None:
        """Counts a request for the client that has signed it. Raises TooManyRequests."""
        wait = self._clients.take(identity)
        if wait:
            raise too_many(wait, "Too many requests of this client. Wait as Retry-After says")

    def check_unauthenticated(self, scope: Scope) -> None:
        """Counts for its address what anyone may have stored here. Raises TooManyRequests, even for a request that was
        admitted: of requests that come at once, many are admitted before one is counted."""
        address = origin_of(scope)
        wait = 0 if address is None else self._unauthenticated.take(address)
        if wait:
            raise too_many(wait, UNAUTHENTICATED)

    def count_failure(self, scope: Scope, status: int) -> None:
        """Counts a request that is answered with this status, if that can be a guess."""
        shows_nothing = status == 400 and not any(name in CREDENTIALS for name, _ in scope["headers"])
        if status in FAILED or shows_nothing:
            address = origin_of(scope)
            if address is not None:
                self._unauthenticated.take(address)


def rate_limits_of(request: Request) -> RateLimits:
    """The rate limits of the application that serves this request; they are there before it has started."""
    limits: RateLimits = request.scope["app"].state["rate_limits"]
    return limits


class Admission:
    """Middleware: requests that are too long, too frequent or too many at a time go no further."""

    def __init__(self, app: ASGIApp, limits: RateLimits) -> None:
        self.app = app
        self.limits = limits
        self._in_progress = Slots(None, MAX_REQUESTS_PER_ADDRESS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        address, path = origin_of(scope), scope["path"]
        requested_by.set((address or "",))
        slot = None if path == PEERS else address  # packets of many payments may come from one address
        try:
            if address is not None:
                self.limits.check_address(address, path)
            if slot is not None and not self._in_progress.try_take(slot):
                raise too_many(SECOND, TOO_MANY_IN_PROGRESS)
        except TooManyRequests as error:
            await error_response_of(error)(scope, receive, send)
            return
        try:
            # Servers other than ours have no such limit, or another.
            if EXTENSION in scope.get("extensions", ()) or _section_bytes(scope) <= MAX_HEADER_BYTES:
                await self.app(scope, receive, send)
            else:
                self.limits.count_failure(scope, 431)
                await error_response_of(too_long())(scope, receive, send)
        finally:
            if slot is not None:
                self._in_progress.release(slot)


def _section_bytes(scope: Scope) -> int:
    query = scope["query_string"]
    target_bytes = len(scope["raw_path"]) + (len("?") + len(query) if query else 0)
    return section_bytes(scope["method"], target_bytes, scope["headers"])
