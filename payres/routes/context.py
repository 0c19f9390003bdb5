"""The application's services for endpoints, built once at the start."""

import asyncio
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
from msgspec import field
from starlette.requests import Request
from starlette.responses import Response

from payres.clock import Clock
from payres.counters import Metrics
from payres.errors import DomainError
from payres.events.changes import Changes
from payres.events.sender import Sender
from payres.federation.http import GuardedClient
from payres.federation.identity import OwnIdentity
from payres.federation.incoming_payments import RemoteReceivers
from payres.grants.passwords import PasswordGate
from payres.grants.sign_in import SignInGuard
from payres.grants.tokens import Holders
from payres.http.admin_hosts import AdminHosts
from payres.http.admission import RateLimits
from payres.interledger.connector import Connector
from payres.interledger.credentials import CredentialSource
from payres.interledger.quoting import RemoteQuotes
from payres.interledger.remote_payments import RemotePayments
from payres.limits import (
    MAX_EXPORTS,
    MAX_EXPORTS_OF_CALLER,
    MAX_STREAMS_OF_KEY,
    MAX_WAITING_REQUESTS,
    MAX_WAITING_REQUESTS_OF_CLIENT,
)
from payres.operator.volume import DailyVolume
from payres.settings import Settings
from payres.slots import Slots
from payres.store.database import Database
from payres.urls import Urls

if TYPE_CHECKING:  # an import cycle
    from payres.routes.monitoring import Readiness


class Pages(Protocol):
    """The public pages, which browsers get instead of JSON."""

    async def front(self, request: Request) -> Response: ...
    async def wallet(self, request: Request) -> Response: ...
    def error(self, request: Request, error: DomainError) -> Response: ...


CONTEXT: Final = "payres.context"  # the key in a request's scope, set on first use


class Context(msgspec.Struct, frozen=True):
    """The application's services, including the clock and the network."""

    settings: Settings
    urls: Urls
    database: Database
    clock: Clock
    metrics: Metrics
    http: GuardedClient
    identity: OwnIdentity
    receivers: RemoteReceivers
    remote_quotes: RemoteQuotes
    remote_payments: RemotePayments
    connector: Connector
    credentials: CredentialSource
    rate_limits: RateLimits
    admin_hosts: AdminHosts
    changes: Changes
    sender: Sender
    readiness: "Readiness"
    pages: Pages
    passwords: PasswordGate
    sign_in: SignInGuard
    operator_sign_in: SignInGuard
    holders: Holders = field(default_factory=Holders)
    volume: DailyVolume = field(default_factory=DailyVolume)
    # One slot per client and Idempotency-Key, so that copies of a request wait for its response.
    idempotency_slots: Slots = field(default_factory=lambda: Slots(None, None, 1))
    # One slot per payment from another wallet while a request for it is sent to the payer's server.
    checkout_slots: Slots = field(default_factory=lambda: Slots(None, 1))
    # For requests that wait for a change, including event streams.
    waiting_slots: Slots = field(
        default_factory=lambda: Slots(MAX_WAITING_REQUESTS, MAX_WAITING_REQUESTS_OF_CLIENT, MAX_STREAMS_OF_KEY)
    )
    # Reads of events, shared by streams at the same position.
    event_reads: dict[Hashable, asyncio.Future[Any]] = field(default_factory=dict)
    # For exports in progress, per API key or operator.
    export_slots: Slots = field(default_factory=lambda: Slots(MAX_EXPORTS, MAX_EXPORTS_OF_CALLER))


def context_of(request: Request) -> Context:
    """The context of the application that serves this request."""
    scope = request.scope
    found: Context | None = scope.get(CONTEXT)
    if found is None:
        found = scope[CONTEXT] = scope["app"].state["context"]
    return found
