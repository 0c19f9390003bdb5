"""The application: settings, database, routes and workers wired into one Starlette app."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from starlette.applications import Starlette
from starlette.middleware import Middleware

from payres.clock import Clock, SystemClock
from payres.errors import DomainError, Unavailable
from payres.federation.http import Bounds, GuardedClient
from payres.federation.identity import OwnIdentity
from payres.federation.incoming_payments import RemoteReceivers
from payres.federation.rates import RatesWorker
from payres.grants.sign_in import SignInGuard
from payres.http.admission import Admission
from payres.http.cross_origin import CrossOrigin
from payres.http.rate_limits import RateLimits
from payres.identifiers import Identifiers, SystemIdentifiers
from payres.interledger.connector import Connector
from payres.interledger.credentials import CredentialSource
from payres.interledger.forwarding import Forwarder
from payres.interledger.link import BOUNDS as LINK_BOUNDS
from payres.interledger.link import Link
from payres.interledger.outbound import Outbound
from payres.interledger.quoting import RemoteQuotes
from payres.interledger.recovery import Recovery
from payres.interledger.remote_payments import RemotePayments
from payres.operator.invariants import BackgroundCheck
from payres.payments.settlement import settle_interrupted
from payres.rate_limiter import RateLimiter
from payres.routes import errors
from payres.routes.context import Context
from payres.routes.health import Readiness
from payres.routes.table import ROUTES, TrailingSlash
from payres.settings import Settings
from payres.slots import Slots
from payres.store.database import Database
from payres.store.database_file import server_lock
from payres.store.secrets import ensure_secret
from payres.store.work import world
from payres.urls import ROOT_WALLET_PATH

# Many payments may go to one server at a time, and their senders would rather wait than be told to come again.
RECEIVERS_BOUNDS = Bounds(per_host=16, in_all=64, queue_seconds=10.0)


def create_app(settings: Settings, clock: Clock | None = None, identifiers: Identifiers | None = None) -> Starlette:
    """The ASGI application; its database opens when it starts and closes when it stops."""
    clock = clock or SystemClock()
    identifiers = identifiers or SystemIdentifiers()
    rate_limits = RateLimits(settings, clock)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            app.state.context = await _open(settings, clock, identifiers, rate_limits, stack)
            app.state.readiness = Readiness(app.state.context.database)
            yield

    app = Starlette(
        routes=ROUTES,
        lifespan=lifespan,
        middleware=[
            Middleware(CrossOrigin),
            Middleware(Admission, rate_limits),
            Middleware(TrailingSlash),
        ],
        exception_handlers={
            DomainError: errors.render_error,
            404: errors.render_nothing,
            Exception: errors.render_fault,
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
    http = await stack.enter_async_context(GuardedClient(settings.allow_private_hosts))
    if settings.rates_url:
        bounds = Bounds(untrusted_hosts=False)
        rates_http = await stack.enter_async_context(GuardedClient(settings.allow_private_hosts, bounds))
        rates = RatesWorker(database, rates_http, clock, settings.rates_url, settings.rates_max_age)
        stack.push_async_callback(_stop, asyncio.create_task(rates.run()))
    stream_secret = await database.write(lambda tx: ensure_secret(tx, "stream"))
    client_key = await database.write(lambda tx: ensure_secret(tx, "client_key"))
    urls = around.urls
    identity = OwnIdentity(urls.wallet(ROOT_WALLET_PATH), client_key, clock)
    receivers_http = await stack.enter_async_context(GuardedClient(settings.allow_private_hosts, RECEIVERS_BOUNDS))
    receivers = RemoteReceivers(receivers_http, identity, clock)
    link, probe_link = [
        Link(await stack.enter_async_context(GuardedClient(settings.allow_private_hosts, LINK_BOUNDS)), database)
        for _ in range(2)
    ]
    ilp_address = settings.ilp_address
    recovery = Recovery(database, clock, link)
    stack.push_async_callback(_stop, asyncio.create_task(recovery.run()))
    outbound = Outbound(database, link, probe_link, clock, identifiers, ilp_address)
    remote_payments = RemotePayments(database, clock, receivers, outbound, recovery)
    stack.push_async_callback(_stop, asyncio.create_task(remote_payments.run()))
    await _settle_interrupted(database)
    check = asyncio.create_task(BackgroundCheck(database).run())  # after the workers, which what it finds stops too
    stack.push_async_callback(_stop, check)
    credentials = CredentialSource(stream_secret, ilp_address)
    packet_limiter = RateLimiter(settings.rate_limit_per_peer, clock)
    forwarder = Forwarder(database, clock, ilp_address, link, recovery)
    return Context(
        settings=settings,
        urls=urls,
        database=database,
        clock=clock,
        identifiers=identifiers,
        http=http,
        identity=identity,
        receivers=receivers,
        remote_quotes=RemoteQuotes(database, urls, receivers, outbound),
        remote_payments=remote_payments,
        connector=Connector(database, clock, ilp_address, credentials, forwarder, packet_limiter),
        credentials=credentials,
        sign_in=SignInGuard(),
        rate_limits=rate_limits,
        idempotency_slots=Slots(None, None, 1),
    )


async def _settle_interrupted(database: Database) -> None:
    """Ends what an earlier version left in progress. Where that halts all writing, the server starts and reads."""
    try:
        await database.write(settle_interrupted)
    except Unavailable:
        if not database.stopped:
            raise


async def _stop(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
