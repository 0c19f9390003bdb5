"""How often the API may be asked: by an address before anything is known of it, by a client that has proven itself.

An address whose requests prove and find nothing is guessing; after a while nothing more of it is taken.
"""

from typing import Final

from starlette.requests import Request
from starlette.types import Scope

from payres.clock import Clock
from payres.errors import TooManyRequests
from payres.settings import Settings
from payres.throttle import Throttle, origin_of, too_many

PEERS: Final = "/ilp"  # peers have a rate of their own, whose refusals are packets
# 406 and 431 are told before any proof is looked at.
FAILED: Final = (401, 404, 406, 431)
# With one of these a request would have got a 401 first if what it shows proved nothing.
PROOFS: Final = frozenset({b"authorization", b"signature"})


class RateLimits:
    """The throttles of one server."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._clients = Throttle(settings.rate_limit_per_client, clock)
        self._addresses = Throttle(settings.rate_limit_per_address, clock)
        self._strangers = Throttle(settings.rate_limit_of_strangers, clock)

    def refusal_of_address(self, address: str, path: str) -> TooManyRequests | None:
        """Counts a request for its address; the refusal when it is one too many."""
        wait = self._strangers.wait(address)
        if wait:
            return too_many(wait, "Too many requests from this address proved nothing. Wait as Retry-After says")
        wait = 0 if path == PEERS else self._addresses.take(address)
        return too_many(wait, "Too many requests from this address. Wait as Retry-After says") if wait else None

    def check_client(self, identity: str) -> None:
        """Counts a request for the client that has signed it. Refuses with 429 one too many."""
        wait = self._clients.take(identity)
        if wait:
            raise too_many(wait, "Too many requests of this client. Wait as Retry-After says")

    def count_stranger(self, scope: Scope) -> None:
        """Counts for its address a request that proves nothing, or that anyone may make at the server's expense."""
        key = origin_of(scope)
        if key is not None:
            self._strangers.take(key)

    def check_stranger(self, scope: Scope) -> None:
        """Counts for its address what anyone may have kept here. Refuses with 429 one too many, even if it was let in:
        of requests that come at once, many pass the first look before one is counted."""
        key = origin_of(scope)
        wait = 0 if key is None else self._strangers.take(key)
        if wait:
            raise too_many(wait, "Too many requests of strangers from this address. Wait as Retry-After says")

    def count_failure(self, scope: Scope, status: int) -> None:
        """Counts a request that is refused with this status, if that can be a guess."""
        if status in FAILED or (status == 400 and _proves_nothing(scope)):
            self.count_stranger(scope)


def rate_limits_of(request: Request) -> RateLimits:
    """The rate limits of the application that serves this request; they are there before it has started."""
    limits: RateLimits = request.scope["app"].state["rate_limits"]
    return limits


def _proves_nothing(scope: Scope) -> bool:
    return not any(name in PROOFS for name, _ in scope["headers"])
