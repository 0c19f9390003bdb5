"""How often the API may be asked: by an address before anything is known of it, by a client that has proven itself.

An address whose requests prove and find nothing is guessing; after a while nothing more of it is taken.
"""

from typing import Final

from starlette.requests import Request
from starlette.types import Scope

from payres.clock import Clock
from payres.errors import Refusal
from payres.settings import Settings
from payres.throttle import Throttle, origin, too_many

PEERS: Final = "/ilp"  # peers have a rate of their own, whose refusals are packets
FAILED: Final = (401, 404)


class RateLimits:
    """The throttles of one server."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._clients = Throttle(settings.rate_limit_per_client, clock)
        self._addresses = Throttle(settings.rate_limit_per_address, clock)
        self._strangers = Throttle(settings.rate_limit_of_strangers, clock)

    def refusal_of_address(self, scope: Scope) -> Refusal | None:
        """Counts a request for its address; the refusal when it is one too many."""
        key = _origin(scope)
        if key is None:
            return None
        wait = self._strangers.wait(key)
        if wait:
            return too_many(wait, "Too many requests from this address proved nothing. Wait as Retry-After says")
        wait = 0 if scope["path"] == PEERS else self._addresses.take(key)
        return too_many(wait, "Too many requests from this address. Wait as Retry-After says") if wait else None

    def check_client(self, identity: str) -> None:
        """Counts a request for the client that has signed it. Refuses with 429 one too many."""
        wait = self._clients.take(identity)
        if wait:
            raise too_many(wait, "Too many requests of this client. Wait as Retry-After says")

    def count_stranger(self, scope: Scope) -> None:
        """Counts for its address a request that proves nothing, or that anyone may make at the server's expense."""
        key = _origin(scope)
        if key is not None:
            self._strangers.take(key)

    def count_failure(self, scope: Scope, status: int) -> None:
        """Counts a request that is refused with this status, if that can be a guess."""
        if status in FAILED:
            self.count_stranger(scope)


def rate_limits_of(request: Request) -> RateLimits:
    """The rate limits of the application that serves this request; they are there before it has started."""
    limits: RateLimits = request.scope["app"].state["rate_limits"]
    return limits


def _origin(scope: Scope) -> str | None:
    client = scope.get("client")
    return origin(client[0]) if client else None
