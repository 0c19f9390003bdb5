"""What every endpoint works with, built once when the application starts."""

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
from payres.store.browsers import OF_OPERATORS
from payres.store.database import Database
from payres.urls import Urls

if TYPE_CHECKING:  # which itself needs the context
    from payres.routes.monitoring import Readiness


class Pages(Protocol):
    """The pages for everyone, which browsers get in place of JSON."""

    async def front(self, request: Request) -> Response: ...
    async def wallet(self, request: Request) -> Response: ...
    def error(self, request: Request, error: DomainError) -> Response: ...


CONTEXT: Final = "payres.context"  # in the scope of a request, once it was asked for


class Context(msgspec.Struct, frozen=True):
    """The application's parts; time and the network among them are handed in."""

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
    holders: Holders = field(default_factory=Holders)
    sign_in: SignInGuard = field(default_factory=SignInGuard)
    operator_sign_in: SignInGuard = field(default_factory=lambda: SignInGuard(OF_OPERATORS))
    volume: DailyVolume = field(default_factory=DailyVolume)
    # One for each key of a client, so that copies of a request wait for its answer.
    idempotency_slots: Slots = field(default_factory=lambda: Slots(None, None, 1))
    # Of requests that wait for a change, and of those the streams of events.
    waiting_slots: Slots = field(
        default_factory=lambda: Slots(MAX_WAITING_REQUESTS, MAX_WAITING_REQUESTS_OF_CLIENT, MAX_STREAMS_OF_KEY)
    )
    # Of events, each for all streams that want the same at the same time.
    event_reads: dict[Hashable, asyncio.Future[Any]] = field(default_factory=dict)
    # Of exports that are read, under the key or the operator.
    export_slots: Slots = field(default_factory=lambda: Slots(MAX_EXPORTS, MAX_EXPORTS_OF_CALLER))


def context_of(request: Request) -> Context:
    """The context of the application that serves this request."""
    scope = request.scope
    found: Context | None = scope.get(CONTEXT)
    if found is None:
        found = scope[CONTEXT] = scope["app"].state["context"]
    return found
