"""The application: settings, database, routes and workers wired into one Starlette app."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Lifespan

from payres.clock import Clock
from payres.errors import DomainError, Unavailable
from payres.events.changes import Changes, poll_events
from payres.events.deliveries import Deliveries, purge_events
from payres.events.sender import Sender
from payres.federation.http import GuardedClient
from payres.federation.identity import OwnIdentity
from payres.federation.incoming_payments import RemoteReceivers
from payres.federation.rates import watch_rates
from payres.federation.takeover import watch_base_url
from payres.federation.transport import Bounds
from payres.grants.passwords import PasswordGate
from payres.grants.sign_in import SignInGuard
from payres.http.admin_hosts import AdminHosts
from payres.http.admission import Admission, RateLimits
from payres.http.cross_origin import CrossOrigin
from payres.http.observation import WITHOUT_SECRETS, Observer
from payres.identifiers import new_secret
from payres.interledger.carrying import Carrier
from payres.interledger.connector import Connector
from payres.interledger.credentials import CredentialSource
from payres.interledger.link import BOUNDS as LINK_BOUNDS
from payres.interledger.link import Link
from payres.interledger.outbound import Outbound
from payres.interledger.quoting import RemoteQuotes
from payres.interledger.remote_payments import RemotePayments
from payres.interledger.unanswered import UnansweredPackets
from payres.logs import RequestLog
from payres.operator.backups import record_takeover, require_current
from payres.operator.invariant_checks import PAUSE_SECONDS, BackgroundCheck
from payres.operator.unresolved_packets import begin_run
from payres.owner.checkout_worker import CheckoutWorker
from payres.payments.incoming import report_expired
from payres.rate_limiter import RateLimiter
from payres.routes.context import Context
from payres.routes.monitoring import Readiness
from payres.routes.routing import Later, Route, Router
from payres.settings import Settings
from payres.store import runs
from payres.store.connections import server_lock
from payres.store.database import Database
from payres.store.operators import OF_OPERATORS
from payres.store.secrets import ensure_secret, existing_secret
from payres.store.work import Environment
from payres.urls import ADMIN_ROOT, PAGE_ROOTS, ROOT_WALLET_PATH, is_loopback

if TYPE_CHECKING:  # it loads slowly
    from payres.owner.checkout import Desk

# A client may send many requests at a time, each of which fetches its keys if its server forbids caching them.
KEYS_BOUNDS = Bounds(per_host=16)
# Many payments may go to one server at a time, and waiting is better than retrying. All exchanges for a receiver have
# 10 s together, of which waiting must not use most; those for a quote have 5 s, including its probe.
RECEIVERS_BOUNDS = Bounds(per_host=16, queue_seconds=3.0)

log = logging.getLogger("payres.operator")


def create_app(
    settings: Settings,
    clock: Clock | None = None,
    request_log: RequestLog | None = None,
    *,
    is_disposable: bool = False,
) -> Starlette:
    """The ASGI application, which opens its database at startup and closes it at shutdown."""
    logging.getLogger("uvicorn.access").addFilter(WITHOUT_SECRETS)
    environment = msgspec.structs.replace(Environment.of(settings, clock), is_disposable=is_disposable)
    rate_limits, admin_hosts = RateLimits(settings, environment.clock), AdminHosts(settings.admin_hosts)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            app.state.context = await _Opening(environment, rate_limits, stack).open(admin_hosts)
            yield
        if request_log is not None:
            request_log.flush()

    return _Application(
        Router(Later(_admin_routes, (ADMIN_ROOT,), admin_hosts.let_in), Later(_page_routes, PAGE_ROOTS)),
        [  # outermost first
            Middleware(Observer, environment.metrics, request_log, settings.base_url),
            Middleware(CrossOrigin),
            Middleware(Admission, rate_limits),
        ],
        lifespan,
    )


@asynccontextmanager
async def open_quotes(settings: Settings) -> AsyncIterator[RemoteQuotes]:
    """Quotes of payments to other servers for a command, which only reads the server's database."""
    environment = Environment.of(msgspec.structs.replace(settings, read_only=True))
    async with AsyncExitStack() as stack:
        opening = _Opening(environment, RateLimits(settings, environment.clock), stack)
        database = await opening.storage()
        yield (await opening.interledger(database, await opening.identity(database))).remote_quotes


def _admin_routes() -> Sequence[Route]:
    from payres.admin.serving import admin_routes
    from payres.pages.admin.serving import page_routes

    return [*admin_routes(), *page_routes()]


def _page_routes() -> Sequence[Route]:
    from payres.pages.serving import page_routes

    return page_routes()


def _checkout_desk(context: Context) -> "Desk":
    from payres.pages.checkout import desk_of

    return desk_of(context)


class _Pages:
    """The public pages; their modules are imported on first use, because they load slowly."""

    async def front(self, request: Request) -> Response:
        from payres.pages.public import front_page

        return await front_page(request)

    async def wallet(self, request: Request) -> Response:
        from payres.pages.public import wallet_page

        return await wallet_page(request)

    def error(self, request: Request, error: DomainError) -> Response:
        from payres.pages.html import error_page

        return error_page(request, error)


class _Application(Starlette):
    """Starlette without its error middleware; routes respond to errors."""

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


class _Node(NamedTuple):
    receivers: RemoteReceivers
    unanswered: UnansweredPackets
    remote_quotes: RemoteQuotes
    remote_payments: RemotePayments
    credentials: CredentialSource
    connector: Connector


class _Opening:
    """Opens the services of the application. The stack closes workers first, then the network, then storage."""

    def __init__(self, environment: Environment, rate_limits: RateLimits, stack: AsyncExitStack) -> None:
        self._environment = environment
        self._settings = environment.settings
        self._rate_limits = rate_limits
        self._stack = stack

    async def open(self, admin_hosts: AdminHosts) -> Context:
        """Opens all services; a read-only server starts no workers."""
        environment, settings = self._environment, self._settings
        database, changes = await self.storage(), Changes()
        database.notify(changes.notify)
        identity = await self.identity(database)
        http = self._client(KEYS_BOUNDS, self._rate_limits.failed_reads)
        node = await self.interledger(database, identity)
        if not settings.read_only:
            self._start_workers(database, node)
        sender = Sender(environment.clock, settings.allow_private_hosts, environment.metrics)
        self._stack.push_async_callback(sender.aclose)
        passwords = PasswordGate()
        self._stack.callback(passwords.close)
        if not settings.read_only:
            self._start(Deliveries(database, changes, sender).run(), poll_events(database, changes))
        context = Context(
            settings=settings,
            urls=environment.urls,
            database=database,
            clock=environment.clock,
            metrics=environment.metrics,
            http=http,
            identity=identity,
            receivers=node.receivers,
            remote_quotes=node.remote_quotes,
            remote_payments=node.remote_payments,
            connector=node.connector,
            credentials=node.credentials,
            rate_limits=self._rate_limits,
            admin_hosts=admin_hosts,
            changes=changes,
            sender=sender,
            readiness=Readiness(database),
            pages=_Pages(),
            passwords=passwords,
            sign_in=SignInGuard(passwords),
            operator_sign_in=SignInGuard(passwords, OF_OPERATORS),
        )
        if not settings.read_only:
            self._start(CheckoutWorker(database, environment.clock, partial(_checkout_desk, context)).run())
        return context

    async def storage(self) -> Database:
        """The database, with the lock that makes this process its only server, unless it only reads."""
        if self._settings.read_only:
            standby = Database.open_standby(self._settings.database, self._environment)
            self._stack.push_async_callback(standby.close)
            return standby
        self._stack.enter_context(server_lock(self._settings.database))
        database = await Database.open(self._settings.database, self._environment)
        self._stack.push_async_callback(database.close)
        await database.read(require_current)
        with suppress(Unavailable):  # if this fails, the next start cannot report that this run did not end cleanly
            token = None if self._environment.is_disposable else new_secret()
            for sentence in await database.write(partial(begin_run, token=token)):
                log.warning("%s", sentence)
            if token is not None:
                await database.watch_commits(token)
        self._stack.push_async_callback(_end_run, database)
        return database

    async def identity(self, database: Database) -> OwnIdentity:
        """The server's identity as a client of other servers."""
        seed = await self._secret(database, "client_key")
        identity = OwnIdentity(self._environment.urls.wallet(ROOT_WALLET_PATH), seed, self._environment.clock)
        self._stack.push_async_callback(identity.aclose)
        return identity

    async def interledger(self, database: Database, identity: OwnIdentity) -> _Node:
        """The Interledger node."""
        clock, ilp_address = self._environment.clock, self._settings.ilp_address
        receivers = RemoteReceivers(self._client(RECEIVERS_BOUNDS, self._rate_limits.failed_reads), identity, clock)
        link, probe_link = (Link(self._client(LINK_BOUNDS), database, self._environment.metrics) for _ in range(2))
        carrier = Carrier(database, link, clock, ilp_address)
        unanswered = UnansweredPackets(database, clock, carrier, receivers)
        outbound = Outbound(database, carrier, probe_link, clock, ilp_address)
        credentials = CredentialSource(await self._secret(database, "stream"), ilp_address)
        packet_limiter = RateLimiter(self._settings.rate_limit_per_peer, clock)
        return _Node(
            receivers,
            unanswered,
            RemoteQuotes(database, self._environment.urls, receivers, outbound),
            RemotePayments(database, clock, receivers, outbound, unanswered),
            credentials,
            Connector(database, clock, ilp_address, credentials, carrier, packet_limiter),
        )

    def _start_workers(self, database: Database, node: _Node) -> None:
        settings = self._settings
        if settings.rates_url:
            rates_http = self._client(Bounds(untrusted_hosts=False))
            clock = self._environment.clock
            self._start(watch_rates(database, rates_http, clock, settings.rates_url, settings.rates_max_age))
        self._start(node.unanswered.run(), node.remote_payments.run())
        self._stack.push_async_callback(node.remote_payments.outbound.drain)
        self._start(report_expired(database), purge_events(database))
        if not is_loopback(self._environment.urls.host):
            http = GuardedClient(True, Bounds(untrusted_hosts=False))  # its own address may be a private one
            self._stack.push_async_callback(http.aclose)
            self._start(watch_base_url(database, http, settings.base_url, record_takeover))
        # After the workers, which stop too when it finds something. A server of a test ends before it is due.
        delay = PAUSE_SECONDS if self._environment.is_disposable else 0
        self._start(BackgroundCheck(database).run(delay))

    async def _secret(self, database: Database, name: str) -> bytes:
        """A secret of the server; a standby shares its primary's."""
        if self._settings.read_only:
            return await database.read(partial(existing_secret, name=name))
        return await database.write(partial(ensure_secret, name=name))

    def _client(self, bounds: Bounds, failed_reads: RateLimiter | None = None) -> GuardedClient:
        client = GuardedClient(self._settings.allow_private_hosts, bounds, failed_reads=failed_reads)
        self._stack.push_async_callback(client.aclose)
        return client

    def _start(self, *work: Coroutine[None, None, None]) -> None:
        """Runs each coroutine until the stack closes."""
        for one in work:
            self._stack.push_async_callback(_stop, asyncio.create_task(one))


async def _end_run(database: Database) -> None:
    with suppress(Unavailable):  # if this fails, the next start reports that this run did not end cleanly
        await database.write(runs.end)


async def _stop(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
