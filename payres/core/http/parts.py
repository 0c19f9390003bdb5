"""Parts: what a server does beside what the specification asks for. Which ones there are is the application's list."""

from collections.abc import Callable, Coroutine, Iterable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import msgspec

from payres.core.grants.passwords import PasswordGate
from payres.core.http.admission import RateLimits
from payres.core.http.changes import Changes
from payres.core.http.context import Context, Pages
from payres.core.http.routing import LateRoutes, Route
from payres.core.payments.remote import Remote
from payres.core.process.rate_limiter import RateLimiter
from payres.core.remote.http import GuardedClient
from payres.core.remote.transport import Bounds
from payres.core.store.database import Database
from payres.core.store.secrets import ensure_secret, existing_secret
from payres.core.store.work import Environment, Transaction


class Opening(msgspec.Struct):
    """What a part opens its services with; `stack` closes them. A part may fill the ports `remote` and `pages`, and
    leaves its services for its own code under their type in `parts`.

    `was_killed`: the last server on this database did not end in order.
    """

    environment: Environment
    database: Database
    changes: Changes
    rate_limits: RateLimits
    passwords: PasswordGate
    stack: AsyncExitStack
    was_killed: bool
    remote: Remote
    pages: Pages | None = None
    parts: dict[type, Any] = msgspec.field(default_factory=dict)

    def client(self, bounds: Bounds, failed_reads: RateLimiter | None = None) -> GuardedClient:
        """A client for requests to other servers."""
        client = GuardedClient(self.environment.settings.allow_private_hosts, bounds, failed_reads=failed_reads)
        self.stack.push_async_callback(client.aclose)
        return client

    async def secret(self, name: str) -> bytes:
        """A secret of the server; a standby shares its primary's."""
        if self.environment.settings.read_only:
            return await self.database.read(partial(existing_secret, name=name))
        return await self.database.write(partial(ensure_secret, name=name))


Worker = Coroutine[Any, Any, None]


class Part(msgspec.Struct, frozen=True):
    """What one part adds to the core.

    `check` runs before the server writes anything, and raises if it must not start. `open` opens the services;
    `workers` run until the server closes, but not in one that only reads; what they push on the stack runs before those
    yielded earlier stop. `routes` are known from the start, `late` ones are loaded on first use.
    """

    name: str
    open: Callable[[Opening], Coroutine[Any, Any, None]] | None = None
    workers: Callable[[Context, AsyncExitStack], Iterable[Worker]] | None = None
    check: Callable[[Transaction], None] | None = None
    routes: tuple[Route, ...] = ()
    late: LateRoutes | None = None
