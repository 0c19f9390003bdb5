"""The services of the core for endpoints, built once at the start, and the port for pages."""

from collections.abc import Mapping
from typing import Any, Final, Protocol, TypeVar

import msgspec
from msgspec import field
from starlette.requests import Request
from starlette.responses import Response

from payres.core.grants.tokens import Holders
from payres.core.http.admission import RateLimits
from payres.core.payments.remote import Remote
from payres.core.process.logs import Metrics
from payres.core.process.settings import Settings
from payres.core.process.slots import Slots
from payres.core.protocol.clock import Clock
from payres.core.protocol.errors import DomainError
from payres.core.protocol.limits import MAX_STREAMS_OF_KEY, MAX_WAITING_REQUESTS, MAX_WAITING_REQUESTS_OF_CLIENT
from payres.core.protocol.urls import Urls
from payres.core.remote.http import GuardedClient
from payres.core.store.database import Database
from payres.core.store.events import Changes

S = TypeVar("S")

CONTEXT: Final = "payres.context"  # the key in a request's scope, set on first use


class Pages(Protocol):
    """The public pages: browsers get them in place of JSON. Without them, they get JSON too."""

    async def front(self, request: Request) -> Response:
        """GET / by a browser."""
        ...

    async def wallet(self, request: Request) -> Response:
        """GET of a wallet address by a browser."""
        ...

    def error(self, request: Request, error: DomainError) -> Response:
        """An error, for a browser."""
        ...


class Context(msgspec.Struct, frozen=True):
    """The services of the core, including the clock and the network. `remote` and `pages` are the ports that parts
    fill."""

    settings: Settings
    urls: Urls
    database: Database
    clock: Clock
    metrics: Metrics
    http: GuardedClient
    rate_limits: RateLimits
    changes: Changes
    remote: Remote
    pages: Pages | None
    parts: Mapping[type, Any]
    is_disposable: bool = False  # a test's server
    holders: Holders = field(default_factory=Holders)
    # One slot per client and Idempotency-Key, so that copies of a request wait for its response.
    idempotency_slots: Slots = field(default_factory=lambda: Slots(None, None, 1))
    # For requests that wait for a change, including event streams.
    waiting_slots: Slots = field(
        default_factory=lambda: Slots(MAX_WAITING_REQUESTS, MAX_WAITING_REQUESTS_OF_CLIENT, MAX_STREAMS_OF_KEY)
    )

    def part(self, kind: type[S]) -> S:
        """The services of a part, which their type names."""
        found: S = self.parts[kind]
        return found


def context_of(request: Request) -> Context:
    """The context of the application that serves this request."""
    scope = request.scope
    found: Context | None = scope.get(CONTEXT)
    if found is None:
        found = scope[CONTEXT] = scope["app"].state["context"]
    return found
