"""The ASGI application: the core's services, the parts' and their workers, from start to shutdown."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Lifespan

from payres.core.http.admission import Admission, RateLimits
from payres.core.http.context import Context, Pages
from payres.core.http.observation import WITHOUT_SECRETS, Observer
from payres.core.http.responses import CrossOrigin
from payres.core.http.routing import LateRoutes, Route, Router
from payres.core.payments.incoming import report_expired
from payres.core.payments.remote import LocalOnly, Remote
from payres.core.payments.settlement import EmitPayment
from payres.core.process.logs import RequestLog
from payres.core.process.rate_limiter import RateLimiter
from payres.core.process.settings import Settings
from payres.core.protocol.clock import Clock
from payres.core.protocol.errors import Unavailable
from payres.core.protocol.identifiers import new_secret
from payres.core.remote.http import GuardedClient
from payres.core.remote.transport import Bounds
from payres.core.store import runs
from payres.core.store.connections import server_lock
from payres.core.store.database import Database, OwnedConnection
from payres.core.store.events import Changes, Release, poll_events, purge_events
from payres.core.store.server_secrets import ensure_secret, existing_secret
from payres.core.store.work import Environment, Transaction

Background = Coroutine[object, object, None]
# A client may send many requests at a time, each of which fetches its keys if its server forbids caching them.
KEYS_BOUNDS = Bounds(per_host=16)


class Opening(msgspec.Struct):
    """What a part opens its services with; `stack` closes them. A part may fill the ports `remote` and `pages`, and
    leaves its services for its own code under their type in `parts`.

    `was_killed`: the last server on this database did not end in order.
    """

    environment: Environment
    database: Database
    changes: Changes
    rate_limits: RateLimits
    stack: AsyncExitStack
    was_killed: bool
    remote: Remote
    pages: Pages | None = None
    parts: dict[type, Any] = msgspec.field(default_factory=dict)

    def client(
        self, bounds: Bounds, failed_reads: RateLimiter | None = None, *, is_private: bool = False
    ) -> GuardedClient:
        """A client for requests to other servers; at private addresses too if `is_private` or set so."""
        client = GuardedClient(is_private or self.environment.settings.allow_private_hosts, bounds, failed_reads)
        self.stack.push_async_callback(client.aclose)
        return client

    async def secret(self, name: str) -> bytes:
        """A secret of the server; a standby shares its primary's."""
        if self.environment.settings.read_only:
            return await self.database.read(partial(existing_secret, name=name))
        return await self.database.write(partial(ensure_secret, name=name))


class Part(msgspec.Struct, frozen=True):
    """What one part adds to the core.

    `check` runs before the server writes anything, and raises if it must not start. `open` opens the services;
    `workers` run until the server closes, but not in one that only reads; what they push on the stack runs before those
    yielded earlier stop. `release` gets old events, forgets those that the part does not need, and returns them; it
    runs in a unit. `routes` are known from the start, `late` ones are loaded on first use. One part may write the
    events of payments without a grant, by `emit_ungranted`.
    """

    name: str
    open: Callable[[Opening], Coroutine[object, object, None]] | None = None
    workers: Callable[[Context, Opening], Iterable[Background]] | None = None
    check: Callable[[Transaction], None] | None = None
    release: Release | None = None
    routes: tuple[Route, ...] = ()
    late: LateRoutes | None = None
    emit_ungranted: EmitPayment | None = None


def application(
    parts: Sequence[Part],
    settings: Settings,
    clock: Clock | None = None,
    request_log: RequestLog | None = None,
    *,
    is_disposable: bool = False,
    connection: type[OwnedConnection] = OwnedConnection,
) -> Starlette:
    """The ASGI application, which opens its database at startup and closes it at shutdown."""
    logging.getLogger("uvicorn.access").addFilter(WITHOUT_SECRETS)
    emit_ungranted = next((part.emit_ungranted for part in parts if part.emit_ungranted is not None), None)
    environment = msgspec.structs.replace(
        Environment.of(settings, clock), is_disposable=is_disposable, emit_ungranted=emit_ungranted
    )
    rate_limits = RateLimits(settings, environment.clock)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            opening = await _open_core(parts, environment, rate_limits, stack, connection)
            app.state.context = context = await _open_parts(parts, opening)
            if not settings.read_only:
                for worker in _workers(parts, context, opening):  # they stop before the services of any part close
                    stack.push_async_callback(_stop, asyncio.create_task(worker))
            yield
        if request_log is not None:
            request_log.flush()

    return _Application(
        Router([route for part in parts for route in part.routes], [part.late for part in parts if part.late]),
        [  # outermost first
            Middleware(Observer, environment.metrics, request_log, settings.base_url),
            Middleware(CrossOrigin),
            Middleware(Admission, rate_limits),
        ],
        lifespan,
    )


async def _open_core(
    parts: Sequence[Part],
    environment: Environment,
    rate_limits: RateLimits,
    stack: AsyncExitStack,
    connection: type[OwnedConnection],
) -> Opening:
    changes = Changes()
    database, was_killed = await _open_storage(parts, environment, stack, connection)
    database.notify(changes.notify)
    return Opening(environment, database, changes, rate_limits, stack, was_killed, LocalOnly(environment.urls))


async def _open_parts(parts: Sequence[Part], opening: Opening) -> Context:
    """Opens each part. The stack closes them in reverse."""
    environment = opening.environment
    http = opening.client(KEYS_BOUNDS, opening.rate_limits.failed_reads)
    for part in parts:
        if part.open is not None:
            await part.open(opening)
    return Context(
        settings=environment.settings,
        urls=environment.urls,
        database=opening.database,
        clock=environment.clock,
        metrics=environment.metrics,
        http=http,
        rate_limits=opening.rate_limits,
        changes=opening.changes,
        remote=opening.remote,
        pages=opening.pages,
        parts=opening.parts,
        is_disposable=environment.is_disposable,
    )


async def _open_storage(
    parts: Sequence[Part], environment: Environment, stack: AsyncExitStack, connection: type[OwnedConnection]
) -> tuple[Database, bool]:
    """The database, with the lock that makes this process its only server, unless it only reads; and whether the last
    server was killed."""
    path = environment.settings.database
    if environment.settings.read_only:
        standby = Database.open_standby(path, environment)
        stack.push_async_callback(standby.close)
        return standby, False
    stack.enter_context(server_lock(path))
    database = await Database.open(path, environment, connection)
    stack.push_async_callback(database.close)
    for part in parts:
        if part.check is not None:
            await database.read(part.check)
    was_killed = False
    with suppress(Unavailable):  # if this fails, the next start cannot report that this run did not end cleanly
        token = None if environment.is_disposable else new_secret()
        was_killed = await database.write(partial(runs.begin, token=token))
        if token is not None:
            await database.watch_commits(token)
    stack.push_async_callback(_end_run, database)
    return database, was_killed


async def _end_run(database: Database) -> None:
    with suppress(Unavailable):  # if this fails, the next start reports that this run did not end cleanly
        await database.write(runs.end)


def _workers(parts: Sequence[Part], context: Context, opening: Opening) -> Iterator[Background]:
    yield report_expired(context.database)
    yield poll_events(context.database, context.changes)
    yield purge_events(context.database, [part.release for part in parts if part.release is not None])
    for part in parts:
        if part.workers is not None:
            yield from part.workers(context, opening)


async def _stop(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


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
