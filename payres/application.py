"""The application: settings, database, routes and workers wired into one Starlette app."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import NamedTuple

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Lifespan

from payres.clock import Clock
from payres.events.changes import Changes, poll_events
from payres.events.deliveries import Deliveries, purge_events
from payres.events.sender import Sender
from payres.federation.http import Bounds, GuardedClient
from payres.federation.identity import OwnIdentity
from payres.federation.incoming_payments import RemoteReceivers
from payres.federation.rates import watch_rates
from payres.federation.takeover import watch_base_url
from payres.grants.sign_in import SignInGuard
from payres.grants.tokens import Holders
from payres.http.admin_hosts import AdminHosts
from payres.http.admission import Admission, RateLimits
from payres.http.cross_origin import CrossOrigin
from payres.http.observation import Observer
from payres.interledger.carrying import Carrier
from payres.interledger.connector import Connector
from payres.interledger.credentials import CredentialSource
from payres.interledger.link import BOUNDS as LINK_BOUNDS
from payres.interledger.link import Link
from payres.interledger.outbound import Outbound
from payres.interledger.quoting import RemoteQuotes
from payres.interledger.recovery import Recovery
from payres.interledger.remote_payments import RemotePayments
from payres.limits import (
    MAX_EXPORTS,
    MAX_EXPORTS_OF_CALLER,
    MAX_WAITING_REQUESTS,
    MAX_WAITING_REQUESTS_OF_CLIENT,
)
from payres.logs import RequestLog
from payres.operator import operators
from payres.operator.backups import record_takeover, require_current
from payres.operator.invariant_checks import BackgroundCheck
from payres.operator.volume import DailyVolume
from payres.payments.incoming import report_expired
from payres.rate_limiter import RateLimiter
from payres.routes.context import Context
from payres.routes.readiness import Readiness
from payres.routes.routing import Operator, Route, Router
from payres.settings import Settings
from payres.slots import Slots
from payres.store.connections import server_lock
from payres.store.database import Database
from payres.store.secrets import ensure_secret, existing_secret
from payres.store.work import Environment
from payres.urls import ROOT_WALLET_PATH, is_loopback

# A client may send many requests at a time, each of which fetches its keys if its server forbids caching them.
KEYS_BOUNDS = Bounds(per_host=16)
# Many payments may go to one server at a time, and waiting is better than trying again. All exchanges for a receiver
# together have 10 s; waiting must not use most of that.
RECEIVERS_BOUNDS = Bounds(per_host=16, queue_seconds=3.0)


def create_app(settings: Settings, clock: Clock | None = None, request_log: RequestLog | None = None) -> Starlette:
    """The ASGI application; its database opens when it starts and closes when it stops."""
    environment = Environment.of(settings, clock)
    rate_limits, admin_hosts = RateLimits(settings, environment.clock), AdminHosts(settings.admin_hosts)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            app.state.context = await _open(environment, rate_limits, admin_hosts, stack)
            yield
        if request_log is not None:
            request_log.flush()

    return _Application(
        Router(Operator(_admin_routes, admin_hosts)),
        [  # from the outside in
            Middleware(Observer, environment.metrics, request_log, settings.base_url),
            Middleware(CrossOrigin),
            Middleware(Admission, rate_limits),
        ],
        lifespan,
    )


@asynccontextmanager
async def open_quotes(settings: Settings) -> AsyncIterator[RemoteQuotes]:
    """Offers of payments to other servers for a command, which only reads the database of the server."""
    environment = Environment.of(msgspec.structs.replace(settings, read_only=True))
    async with AsyncExitStack() as stack:
        database = await _open_storage(environment, stack)
        identity = await _identity(environment, database)
        node = await _open_interledger(environment, database, identity, RateLimits(settings, environment.clock), stack)
        yield node.remote_quotes


def _admin_routes() -> Sequence[Route]:
    from payres.admin.serving import admin_routes
    from payres.pages.serving import page_routes

    return [*admin_routes(), *page_routes()]


class _Application(Starlette):
    """Starlette without its layers for errors: what a function raises is answered by its route."""

    router: Router

    def __init__(self, router: Router, middleware: Sequence[Middleware], lifespan: Lifespan[Starlette]) -> None:
        super().__init__(middleware=middleware, lifespan=lifespan)
        router.lifespan_context = self.router.lifespan_context
        self.router = router

    def build_middleware_stack(self) -> ASGIApp:
        requests: ASGIApp = self.router.answer
        for layer, arguments, options in reversed(self.user_middleware):
            requests = layer(requests, *arguments, **options)
        return lambda scope, receive, send: (requests if scope["type"] == "http" else self.router)(scope, receive, send)


async def _open(
    environment: Environment, rate_limits: RateLimits, admin_hosts: AdminHosts, stack: AsyncExitStack
) -> Context:
    """Opens the context. The stack closes workers first, then links to other servers, then storage."""
    database = await _open_storage(environment, stack)
    changes = Changes()
    database.notify(changes.notify)
    identity = await _identity(environment, database)
    http = _open_client(environment.settings, stack, KEYS_BOUNDS, rate_limits.failed_reads)
    node = await _open_interledger(environment, database, identity, rate_limits, stack)
    if not environment.settings.read_only:
        await _start_workers(environment, database, node, stack)
    sender = Sender(environment.clock, environment.settings.allow_private_hosts, environment.metrics)
    stack.push_async_callback(sender.aclose)
    if not environment.settings.read_only:
        _start(Deliveries(database, changes, sender).run(), stack)
        _start(poll_events(database, changes), stack)
    return Context(
        settings=environment.settings,
        urls=environment.urls,
        database=database,
        holders=Holders(),
        clock=environment.clock,
        metrics=environment.metrics,
        http=http,
        identity=identity,
        receivers=node.receivers,
        remote_quotes=node.remote_quotes,
        remote_payments=node.remote_payments,
        connector=node.connector,
        credentials=node.credentials,
        sign_in=SignInGuard(),
        operator_sign_in=SignInGuard(operators.WHAT),
        rate_limits=rate_limits,
        admin_hosts=admin_hosts,
        idempotency_slots=Slots(None, None, 1),
        changes=changes,
        sender=sender,
        waiting_slots=Slots(MAX_WAITING_REQUESTS, MAX_WAITING_REQUESTS_OF_CLIENT),
        export_slots=Slots(MAX_EXPORTS, MAX_EXPORTS_OF_CALLER),
        readiness=Readiness(database),
        volume=DailyVolume(),
    )


async def _open_storage(environment: Environment, stack: AsyncExitStack) -> Database:
    """The database, with the lock that makes this process its only server, unless it only reads."""
    if environment.settings.read_only:
        standby = Database.open_standby(environment.settings.database, environment)
        stack.push_async_callback(standby.close)
        return standby
    stack.enter_context(server_lock(environment.settings.database))
    database = await Database.open(environment.settings.database, environment)
    stack.push_async_callback(database.close)
    await database.read(require_current)
    return database


async def _identity(environment: Environment, database: Database) -> OwnIdentity:
    seed = await _secret(environment, database, "client_key")
    return OwnIdentity(environment.urls.wallet(ROOT_WALLET_PATH), seed, environment.clock)


async def _secret(environment: Environment, database: Database, name: str) -> bytes:
    """A secret of the server, which a standby has of its primary."""
    if environment.settings.read_only:
        return await database.read(partial(existing_secret, name=name))
    return await database.write(partial(ensure_secret, name=name))


class _Node(NamedTuple):
    receivers: RemoteReceivers
    recovery: Recovery
    remote_quotes: RemoteQuotes
    remote_payments: RemotePayments
    credentials: CredentialSource
    connector: Connector


async def _open_interledger(
    environment: Environment, database: Database, identity: OwnIdentity, rate_limits: RateLimits, stack: AsyncExitStack
) -> _Node:
    settings, clock, ilp_address = environment.settings, environment.clock, environment.settings.ilp_address
    http = _open_client(settings, stack, RECEIVERS_BOUNDS, rate_limits.failed_reads)
    receivers = RemoteReceivers(http, identity, clock)
    link, probe_link = (
        Link(_open_client(settings, stack, LINK_BOUNDS), database, environment.metrics) for _ in range(2)
    )
    carrier = Carrier(database, link, clock, ilp_address)
    recovery = Recovery(database, clock, carrier, receivers)
    outbound = Outbound(database, carrier, probe_link, clock, ilp_address)
    credentials = CredentialSource(await _secret(environment, database, "stream"), ilp_address)
    packet_limiter = RateLimiter(settings.rate_limit_per_peer, clock)
    return _Node(
        receivers,
        recovery,
        RemoteQuotes(database, environment.urls, receivers, outbound),
        RemotePayments(database, clock, receivers, outbound, recovery),
        credentials,
        Connector(database, clock, ilp_address, credentials, carrier, packet_limiter),
    )


async def _start_workers(environment: Environment, database: Database, node: _Node, stack: AsyncExitStack) -> None:
    settings = environment.settings
    if settings.rates_url:
        rates_http = _open_client(settings, stack, Bounds(untrusted_hosts=False))
        max_age = settings.rates_max_age
        _start(watch_rates(database, rates_http, environment.clock, settings.rates_url, max_age), stack)
    _start(node.recovery.run(), stack)
    _start(node.remote_payments.run(), stack)
    stack.push_async_callback(node.remote_payments.outbound.drain)
    _start(report_expired(database), stack)
    _start(purge_events(database), stack)
    if not is_loopback(environment.urls.host):
        http = GuardedClient(True, Bounds(untrusted_hosts=False))  # its own address may be a private one
        stack.push_async_callback(http.aclose)
        _start(watch_base_url(database, http, settings.base_url, record_takeover), stack)
    _start(BackgroundCheck(database).run(), stack)  # after the workers, which stop too when it finds something


def _open_client(
    settings: Settings, stack: AsyncExitStack, bounds: Bounds | None = None, failed_reads: RateLimiter | None = None
) -> GuardedClient:
    client = GuardedClient(settings.allow_private_hosts, bounds, failed_reads=failed_reads)
    stack.push_async_callback(client.aclose)
    return client


def _start(work: Coroutine[None, None, None], stack: AsyncExitStack) -> None:
    """Runs the work until the stack closes."""
    stack.push_async_callback(_stop, asyncio.create_task(work))


async def _stop(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
