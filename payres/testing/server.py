"""One server of a sandbox. A reset replaces its application by a new one on the baseline's data."""

import asyncio
import os
import shutil
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeVar

from starlette.applications import Starlette
from starlette.responses import RedirectResponse
from starlette.types import Message, Receive, Scope, Send

from payres.application import create_app
from payres.core.http.context import Context
from payres.core.http.responses import CutShort, json_error
from payres.core.process.logs import RequestLog
from payres.core.process.settings import Settings
from payres.core.protocol.clock import Clock
from payres.core.protocol.errors import DomainError, Unavailable
from payres.core.store import runs
from payres.core.store.copies import change, copied
from payres.core.store.work import Work
from payres.testing.answers import Line
from payres.testing.decisions import Decisions
from payres.testing.faults import Interference
from payres.testing.journal import Journal, Recording
from payres.testing.request_rules import CONSENT_PAGE, ConsentRule
from payres.testing.set_up import shorten_timeouts

T = TypeVar("T")


class _Answer:
    """Passes an answer on: in parts, or when it is complete and `finish` is called."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._kept: list[Message] = []
        self.is_begun = False

    async def send(self, message: Message) -> None:
        self._kept.append(message)
        if message.get("more_body"):
            await self.finish()

    async def finish(self) -> None:
        kept, self._kept = self._kept, []
        for message in kept:
            await self._send(message)
            self.is_begun = True


class SandboxServer:
    """An ASGI application. `always` decides grants that no rule matches; without it, the consent page asks.

    `line` describes the server to tests, `api_key` is a key of the operator's API with all scopes, and `last_event` the
    sequence number of the last event in the baseline.
    """

    def __init__(
        self, settings: Settings, clock: Clock, always: ConsentRule | None, request_log: RequestLog | None
    ) -> None:
        self.settings = settings
        self.line: Line
        self.api_key = ""
        self.last_event = 0
        self.clock = clock
        self.journal = Journal(settings.base_url, clock, self)
        self.decisions = Decisions(self, self.begin, always)
        self.faults = Interference(self, settings.max_body_bytes, self.journal)
        self._request_log = request_log
        self._stack = AsyncExitStack()
        self._app: Starlette | None = None
        self._running: set[asyncio.Task[object]] = set()

    @property
    def context(self) -> Context:
        """Raises Unavailable during a reset."""
        if self._app is None:
            raise Unavailable("The sandbox is being reset; try again")
        context: Context = self._app.state.context
        return context

    async def write(self, unit: Callable[[Work], T]) -> T:
        return await self.context.database.write(unit)

    async def read(self, unit: Callable[[Work], T]) -> T:
        return await self.context.database.read(unit)

    async def open(self) -> None:
        app = create_app(self.settings, self.clock, self._request_log, is_disposable=True)
        await self._stack.enter_async_context(app.router.lifespan_context(app))
        shorten_timeouts(app.state.context)
        self.faults.attach(app.state.context)
        self._app = app

    async def close(self) -> None:
        """Cancels the requests in progress, which get a 503."""
        self._app = None
        stopped = {task for task in self._running if task.cancel()}
        if stopped:
            await asyncio.wait(stopped)
        await self._stack.aclose()

    def keep_baseline(self) -> None:
        """Copies the database, even while it is open."""
        baseline = self._baseline
        with copied(Path(self.settings.database), baseline) as partial:
            change(partial, runs.end)
            os.replace(partial, baseline)

    def return_to_baseline(self) -> None:
        """Replaces the database, which must be closed, by the baseline."""
        for ending in ("-wal", "-shm"):
            Path(f"{self.settings.database}{ending}").unlink(missing_ok=True)
        shutil.copyfile(self._baseline, self.settings.database)
        self.decisions.rules.remove()
        self.journal.clear()
        self.faults.remove()

    @property
    def _baseline(self) -> Path:
        return Path(f"{self.settings.database}.baseline")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles a request in a task, which a reset can cancel. This one sends the answer, which it therefore cannot
        cut, unless it comes in parts."""
        exchange = Recording(self.journal, scope, receive, send)
        answer = _Answer(exchange.send)
        running = self.begin(self._serve(scope, exchange.receive, answer.send))
        try:
            await asyncio.wait({running})
            if not running.cancelled():
                await answer.finish()
            elif answer.is_begun:
                raise CutShort("the sandbox was reset")
            else:
                await json_error(Unavailable("The sandbox was reset"))(scope, receive, exchange.send)
            await exchange.end()
        finally:
            running.cancel()
        if not running.cancelled():
            running.result()

    def begin(self, work: Coroutine[object, object, T]) -> "asyncio.Task[T]":
        """Starts a task that a reset cancels."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self.faults.serve(self._answer, scope, receive, send)
        except DomainError as error:
            await json_error(error)(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        page = CONSENT_PAGE.match(scope["path"]) if scope["method"] == "GET" else None
        target = await self.decisions.decide(*page.groups(), has_finish=True) if page else None
        if target is not None:
            await RedirectResponse(target, 302)(scope, receive, send)
        elif self._app is None:
            raise Unavailable("The sandbox is being reset; try again")
        else:
            is_grant = scope["path"] == "/" and scope["method"] == "POST"
            await self._app(scope, receive, self.decisions.before_answer(send) if is_grant else send)
