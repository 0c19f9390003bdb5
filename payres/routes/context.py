"""What every endpoint works with, built once when the application starts."""

from typing import Final

import msgspec
from starlette.requests import Request

from payres.clock import Clock
from payres.counters import Metrics
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
from payres.operator.volume import DailyVolume
from payres.routes.readiness import Readiness
from payres.settings import Settings
from payres.slots import Slots
from payres.store.database import Database
from payres.urls import Urls

CONTEXT: Final = "payres.context"  # in the scope of a request, once it was asked for


class Context(msgspec.Struct, frozen=True):
    """The application's parts; time and the network among them are handed in."""

    settings: Settings
    urls: Urls
    database: Database
    holders: Holders
    clock: Clock
    metrics: Metrics
    http: GuardedClient
    identity: OwnIdentity
    receivers: RemoteReceivers
    remote_quotes: RemoteQuotes
    remote_payments: RemotePayments
    connector: Connector
    credentials: CredentialSource
    sign_in: SignInGuard
    operator_sign_in: SignInGuard
    rate_limits: RateLimits
    admin_hosts: AdminHosts
    idempotency_slots: Slots  # one for each key of a client, so that copies of a request wait for its answer
    changes: Changes
    sender: Sender
    waiting_slots: Slots  # of requests that wait for a change
    export_slots: Slots  # of exports that are read, under the key or the operator
    readiness: Readiness
    volume: DailyVolume


def context_of(request: Request) -> Context:
    """The context of the application that serves this request."""
    scope = request.scope
    found: Context | None = scope.get(CONTEXT)
    if found is None:
        found = scope[CONTEXT] = scope["app"].state["context"]
    return found
