"""The application: settings, database, routes and workers wired into one Starlette app."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from starlette.applications import Starlette
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from payres.clock import Clock, SystemClock
from payres.errors import DomainError
from payres.federation.http import Bounds, GuardedClient
from payres.federation.identity import Identity
from payres.federation.incoming_payments import RemoteReceivers
from payres.federation.rates import RatesWorker
from payres.grants.sign_in import SignInGuard
from payres.identifiers import Identifiers, SystemIdentifiers
from payres.interledger.answers import Answers
from payres.interledger.connector import Connector
from payres.interledger.credentials import CredentialSource
from payres.interledger.forwarding import Forwarder
from payres.interledger.link import Link, open_http
from payres.interledger.outbound import Outbounds
from payres.interledger.quoting import RemoteQuotes
from payres.interledger.recovery import Recovery
from payres.interledger.remote_payments import RemotePayments
from payres.interledger.traffic import Traffic
from payres.operator.watch import BooksWatch
from payres.payments.idempotency import Turns
from payres.payments.settlement import SettlementWorker
from payres.routes import (
    consent,
    did_documents,
    grants,
    health,
    ilp,
    incoming_payments,
    outgoing_payments,
    quotes,
    refusals,
    tokens,
    wallet_addresses,
)
from payres.routes.accept import JsonRoute, WalletRoute
from payres.routes.admission import Admission
from payres.routes.context import Context
from payres.routes.cross_origin import CrossOrigin
from payres.routes.header_limit import HeaderLimit
from payres.routes.rate_limits import RateLimits
from payres.routes.readiness import Readiness
from payres.settings import Settings
from payres.store.database import Database
from payres.store.secrets import ensure_secret
from payres.store.server_lock import server_lock
from payres.store.work import world
from payres.throttle import Throttle
from payres.urls import RESERVED_SEGMENTS, ROOT_WALLET_PATH


class WalletPath(PathConvertor):
    """A path that a wallet can have, so that a wrong method on a path of the API is a 405 and not an unknown wallet."""

    regex = rf"(?!(?:{'|'.join(map(re.escape, sorted(RESERVED_SEGMENTS)))})(?:/|$)).+|{re.escape(ROOT_WALLET_PATH)}"


register_url_convertor("wallet", WalletPath())

# Many payments may go to one server at a time, and their senders would rather wait than be told to come again.
RECEIVERS_BOUNDS = Bounds(per_host=16, in_all=64, patience=10.0)

ROUTES = [
    Route("/ilp", ilp.receive, methods=["POST"]),  # first: routes are tried in turn, and a payment is many packets
    JsonRoute("/incoming-payments/{id}", incoming_payments.read, methods=["GET"]),
    JsonRoute("/incoming-payments", incoming_payments.create, methods=["POST"]),
    JsonRoute("/incoming-payments", incoming_payments.list_page, methods=["GET"]),
    JsonRoute("/incoming-payments/{id}/complete", incoming_payments.complete, methods=["POST"]),
    # The official .NET client completes with two slashes; what it signed cannot be redirected.
    JsonRoute("/incoming-payments/{id}//complete", incoming_payments.complete, methods=["POST"]),
    JsonRoute("/quotes", quotes.create, methods=["POST"]),
    JsonRoute("/quotes/{id}", quotes.read, methods=["GET"]),
    JsonRoute("/outgoing-payments", outgoing_payments.create, methods=["POST"]),
    JsonRoute("/outgoing-payments", outgoing_payments.list_page, methods=["GET"]),
    JsonRoute("/outgoing-payments/{id}", outgoing_payments.read, methods=["GET"]),
    JsonRoute("/outgoing-payment-grant", outgoing_payments.read_grant_spending, methods=["GET"]),
    JsonRoute("/", grants.request, methods=["POST"]),
    JsonRoute("/", grants.discover, methods=["OPTIONS"]),
    JsonRoute("/continue/{id}", grants.continue_request, methods=["POST"]),
    JsonRoute("/continue/{id}", grants.cancel, methods=["DELETE"]),
    JsonRoute("/token/{id}", tokens.rotate, methods=["POST"]),
    JsonRoute("/token/{id}", tokens.revoke, methods=["DELETE"]),
    *consent.ROUTES,
    Route("/healthz", health.healthz, methods=["GET"]),
    Route("/readyz", health.readyz, methods=["GET"]),
    # Wallet addresses come last: they take every path that is left.
    WalletRoute("/{path:wallet}/jwks.json", wallet_addresses.read_keys),
    WalletRoute("/{path:wallet}/did.json", did_documents.read),
    WalletRoute("/{path:wallet}", wallet_addresses.read),
]
assert ROOT_WALLET_PATH == ".well-known/pay", "served by the wallet address routes like any other path"


def create_app(settings: Settings, clock: Clock | None = None, identifiers: Identifiers | None = None) -> Starlette:
    """The ASGI application; its database opens when it starts and closes when it stops."""
    clock = clock or SystemClock()
    identifiers = identifiers or SystemIdentifiers()
    rate_limits = RateLimits(settings, clock)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            app.state.context = await _open(settings, clock, identifiers, rate_limits, stack)
            yield

    app = Starlette(
        routes=ROUTES,
        lifespan=lifespan,
        middleware=[
            Middleware(CrossOrigin),
            Middleware(Admission, rate_limits),
            Middleware(HeaderLimit, rate_limits),
            Middleware(TrailingSlash),
        ],
        exception_handlers={
            DomainError: refusals.render_refusal,
            HTTPException: refusals.render_routing,
            Exception: refusals.render_fault,
        },
    )
    app.state.rate_limits = rate_limits
    app.router.redirect_slashes = False  # a signature covers the target as it was sent: never redirect
    return app


async def _open(
    settings: Settings, clock: Clock, identifiers: Identifiers, rate_limits: RateLimits, stack: AsyncExitStack
) -> Context:
    """The context, with what it holds opened; the stack closes it in turn."""
    stack.enter_context(server_lock(settings.database))
    around = world(settings, clock, identifiers)
    database = await Database.open(settings.database, around)
    stack.push_async_callback(database.close)
    http = GuardedClient(allow_private_hosts=settings.allow_private_hosts)
    stack.push_async_callback(http.aclose)
    settlement = SettlementWorker(database, clock)
    worker = asyncio.create_task(settlement.run())
    stack.push_async_callback(_stop, worker)
    if settings.rates_url:
        rates_http = GuardedClient(settings.allow_private_hosts, Bounds(strangers=False))
        stack.push_async_callback(rates_http.aclose)
        rates = RatesWorker(database, rates_http, clock, settings.rates_url, settings.rates_max_age)
        stack.push_async_callback(_stop, asyncio.create_task(rates.run()))
    stream_secret = await database.write(lambda tx: ensure_secret(tx, "stream"))
    client_key = await database.write(lambda tx: ensure_secret(tx, "client_key"))
    urls = around.urls
    identity = Identity(urls.wallet(ROOT_WALLET_PATH), client_key, clock)
    receivers_http = GuardedClient(settings.allow_private_hosts, RECEIVERS_BOUNDS)
    stack.push_async_callback(receivers_http.aclose)
    receivers = RemoteReceivers(receivers_http, identity, clock)
    link, probe_link = (Link(open_http(settings.allow_private_hosts), database) for _ in range(2))
    stack.push_async_callback(link.aclose)
    stack.push_async_callback(probe_link.aclose)
    answers, ilp_address = Answers(), settings.ilp_address
    recovery = Recovery(database, clock, link, answers)
    stack.push_async_callback(_stop, asyncio.create_task(recovery.run()))
    outbounds = Outbounds(database, link, probe_link, clock, identifiers, ilp_address)
    remote_payments = RemotePayments(database, clock, receivers, outbounds, recovery)
    stack.push_async_callback(_stop, asyncio.create_task(remote_payments.run()))
    stack.push_async_callback(_stop, asyncio.create_task(BooksWatch(database).run()))  # what it halts has started then
    credentials = CredentialSource(stream_secret, ilp_address)
    traffic = Traffic(Throttle(settings.rate_limit_per_peer, clock))
    forwarder = Forwarder(database, clock, identifiers, ilp_address, link, answers, recovery)
    return Context(
        settings=settings,
        urls=urls,
        database=database,
        clock=clock,
        identifiers=identifiers,
        http=http,
        identity=identity,
        receivers=receivers,
        settlement=settlement,
        remote_quotes=RemoteQuotes(database, urls, clock, receivers, outbounds),
        remote_payments=remote_payments,
        connector=Connector(database, clock, ilp_address, credentials, answers, forwarder, traffic),
        credentials=credentials,
        sign_in=SignInGuard(),
        rate_limits=rate_limits,
        readiness=Readiness(database),
        turns=Turns(),
    )


async def _stop(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


class TrailingSlash:
    """Accepts one trailing slash on every path; routing sees the path without, the signature check sees it as sent."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # An escaped slash is not a slash (RFC 3986 section 2.2), so it is the raw path that tells.
        if scope["type"] == "http" and len(scope["path"]) > 1 and scope["raw_path"].endswith(b"/"):
            scope["path"] = scope["path"][:-1]
        await self.app(scope, receive, send)
