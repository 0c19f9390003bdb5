"""Admission: rejects requests before any work is done for them, and limits request rates: of an address before
authentication, of a client after it.

An address with many failed unauthenticated requests is guessing, and is rate-limited. But a request with an API key, a
peer's token or a client's signature is still checked, and served if that is valid: others may have used its address.
"""

from functools import partial
from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from payres.core.http.observation import observation_of
from payres.core.http.request_head import section_bytes, too_long
from payres.core.http.responses import json_error
from payres.core.process.rate_limiter import RateLimiter, address_of, requested_by, too_many
from payres.core.process.settings import Settings
from payres.core.process.slots import Slots
from payres.core.protocol.clock import SECOND, Clock
from payres.core.protocol.errors import DomainError, TooManyRequests
from payres.core.protocol.limits import FAILED_READS_PART, KEY_REFETCH_RATE, MAX_HEADER_BYTES, MAX_REQUESTS_PER_ADDRESS
from payres.core.protocol.urls import ADMIN_API, ILP, PAGES, SIGNED_SEGMENTS

ADMIN: Final = f"{ADMIN_API}/"
# Statuses that an unauthenticated request may get if it was a guess.
FAILED: Final = (400, 401, 404, 406, 431)
WAIT_AS_TOLD: Final = "Wait as Retry-After says"
UNAUTHENTICATED: Final = (
    "Too many grant requests of this client, or requests from this address of clients that are known by a key alone."
    f" {WAIT_AS_TOLD}"
)
TOO_MANY_IN_PROGRESS: Final = (
    f"Your address has {MAX_REQUESTS_PER_ADDRESS} requests in progress. Wait for their answers before you send more"
)


class RateLimits:
    """The rate limiters of one server: of the requests of clients, by their signatures, and of what they create that
    needs nobody's consent; of the requests of addresses, and of those without authentication; of key sets that are
    fetched again because a signature does not match them; and of failed requests to other servers."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.clients = _limiter(settings.rate_limit_per_client, clock, "requests of this client")
        created = "incoming payments and quotes of this client"
        self.creations = _limiter(settings.rate_limit_creations, clock, created)
        self.addresses = _limiter(settings.rate_limit_per_address, clock, "requests from this address")
        self.unauthenticated = RateLimiter(settings.rate_limit_unauthenticated, clock, UNAUTHENTICATED)
        self.refetches = RateLimiter(KEY_REFETCH_RATE, clock)
        # Low enough that another server with the same limits does not count our requests for one client as guesses.
        self.failed_reads = RateLimiter(-(-settings.rate_limit_unauthenticated // FAILED_READS_PART), clock)

    def check_unauthenticated(self, scope: Scope, identity: str | None = None) -> None:
        """Counts a request that stores something without authentication: for the client with a wallet address of this
        identity, or else for the address.

        Raises TooManyRequests even for an admitted request: concurrent ones are all admitted before they are counted.
        """
        counted = identity or address_of(scope)
        if counted is not None:
            self.unauthenticated.check(counted)

    def prove(self, scope: Scope) -> None:
        """Marks the request as proven by an API key, a peer's token or a client's signature: it is no guess."""
        observation_of(scope).is_proven = True

    def address_error(self, scope: Scope) -> TooManyRequests | None:
        """The error for the address of an unproven request, if any."""
        found = observation_of(scope)
        return None if found.is_proven else found.address_error

    def count_failure(self, scope: Scope, status: int) -> None:
        """Counts a request with this response status, if it may be a guess."""
        if status in FAILED and not observation_of(scope).is_proven:
            address = address_of(scope)
            if address is not None:
                self.unauthenticated.take(address)


def _limiter(rate: int, clock: Clock, what: str) -> RateLimiter:
    return RateLimiter(rate, clock, f"Too many {what}. {WAIT_AS_TOLD}")


def release_slot(scope: Scope) -> None:
    """Releases the request's slot: from now on it does nothing, and does not count as in progress."""
    found = observation_of(scope)
    release, found.release_slot = found.release_slot, None
    if release is not None:
        release()


class Admission:
    """Middleware: rejects requests that are too long, too frequent or too many at once."""

    def __init__(self, app: ASGIApp, limits: RateLimits) -> None:
        self.app = app
        self.limits = limits
        self._in_progress = Slots(None, MAX_REQUESTS_PER_ADDRESS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        address, path = address_of(scope), scope["path"]
        requested_by.set((address or "",))
        slot = None if path == ILP else address  # one peer's address sends packets of many payments
        try:
            self._check_address(scope, address)
            if slot is not None and not self._in_progress.try_take(slot):
                raise too_many(SECOND, TOO_MANY_IN_PROGRESS)
        except TooManyRequests as error:
            observation_of(scope).address_error = error
            is_page = path.startswith(PAGES)  # pages show the error to a person
            await (self.app if is_page else self._answer(scope, error))(scope, receive, send)
            return
        if slot is not None:
            observation_of(scope).release_slot = partial(self._in_progress.release, slot)
        try:
            if section_bytes(scope) <= MAX_HEADER_BYTES:
                await self.app(scope, receive, send)
            else:
                await self._answer(scope, too_long())(scope, receive, send)
        finally:
            release_slot(scope)

    def _answer(self, scope: Scope, error: DomainError) -> Response:
        observation_of(scope).error = error
        self.limits.count_failure(scope, error.status)
        return json_error(error)

    def _check_address(self, scope: Scope, address: str | None) -> None:
        """Raises TooManyRequests, unless the request may still prove its sender: then the error is kept with it."""
        try:
            if address is not None:
                wait = self.limits.unauthenticated.wait(address)
                if wait:
                    raise too_many(wait, f"Too many unauthenticated requests from this address. {WAIT_AS_TOLD}")
                if scope["path"] != ILP:  # packets of many payments come from the address of a peer
                    self.limits.addresses.check(address)
        except TooManyRequests as error:
            if not _may_prove(scope):
                raise
            observation_of(scope).address_error = error


def _may_prove(scope: Scope) -> bool:
    """Whether the request succeeds only with proof of its sender, and carries some."""
    path, method = scope["path"], scope["method"]
    names = {name for name, _ in scope["headers"]}
    if path == ILP or path.startswith(ADMIN):
        return b"authorization" in names
    first = path.split("/")[1]
    if b"signature" not in names or method == "OPTIONS" or not (first in SIGNED_SEGMENTS or path == "/"):
        return False
    return method not in {"GET", "HEAD"} or b"authorization" in names  # without authorization, these have public forms
