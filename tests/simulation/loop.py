"""The event loop of one life of one node. Callbacks run in the order that asyncio promises; the world decides when."""

import asyncio
from asyncio import base_events, events
from collections.abc import Callable, Coroutine
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from tests.simulation.world import Node, World

T = TypeVar("T")

NOT_BEFORE: Final = 1e-9  # seconds, so that no rounding shows a timer a time before its own
BEGINS_AT: Final = 100.0  # on the loop's clock, which is zero only where someone forgot to read it


class NodeLoop(base_events.BaseEventLoop):
    """Never waits and has no threads: what others do on a thread runs in one step, some time later.

    A killed loop `is_dead`: nothing is cancelled, no `finally` runs.
    """

    def __init__(self, world: "World", node: "Node") -> None:
        super().__init__()
        self.world: Final = world
        self.node: Final = node
        self.is_dead = False
        self.latest = 0  # by the node's clock, when an id was made
        self.ready: Final = self._ready  # type: ignore[attr-defined]
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self.set_exception_handler(lambda _, about: world.trouble.append(f"{node.name}: {_described(about)}"))

    def time(self) -> float:
        """The node's clock, which may run fast or slow."""
        return self.world.now * self.node.rate + BEGINS_AT

    def is_running(self) -> bool:
        """What asks is a callback."""
        return True

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        """Keeps the task, which a collector of garbage would otherwise take at a time of its own."""
        task = super().create_task(coro, **options)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def call_at(  # type: ignore[override]  # without the variadic types of the original
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Timers of the same moment run in the order in which they were set."""
        timer = events.TimerHandle(when, callback, args, self, context)
        self.world.at((when - BEGINS_AT) / self.node.rate + NOT_BEFORE, partial(self._ring, timer))
        return timer

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + max(delay, 0), callback, *args, context=context)

    def run_in_executor(self, executor: object, func: Callable[..., T], *args: Any) -> "asyncio.Future[T]":  # type: ignore[override]
        """The function runs in one step; a caller that is cancelled does not stop it."""
        future: asyncio.Future[T] = self.create_future()

        def run() -> None:
            settle: Callable[[], None]
            self.world.blocked = 0.0
            try:
                settle = partial(future.set_result, func(*args))
            except BaseException as failure:
                settle = partial(future.set_exception, failure)
            seconds = self.world.thread_delay() + self.world.blocked
            self.call_later(seconds, lambda: None if future.done() else settle())

        self.call_later(self.world.thread_delay(), run)
        return future

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        return await self.world.network.connect(self, protocol_factory, host)

    def run_one(self) -> None:
        handle = self.ready.popleft()
        if not handle._cancelled:
            self.world.note(self.node.name, _label(handle._callback))
            handle._run()

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Begins a task from outside the loop."""
        return self.enter(lambda: self.create_task(coroutine))

    def enter(self, call: Callable[[], T]) -> T:
        """Calls a function as a callback of this loop."""
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            return call()
        finally:
            events._set_running_loop(before)

    def _ring(self, timer: asyncio.TimerHandle) -> None:
        if not timer._cancelled:
            self.ready.append(timer)

    def _write_to_self(self) -> None:
        """Nothing sleeps that would have to be woken."""

    def _timer_handle_cancelled(self, handle: object) -> None:
        """It is dropped when it is due."""


def _label(callback: Any) -> str:
    """A name for a callback that is the same in every run."""
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return f"task {getattr(owner.get_coro(), '__qualname__', '')}"
    while (inner := getattr(callback, "func", None)) is not None:
        callback = inner
    return str(getattr(callback, "__qualname__", type(callback).__name__))


def _described(about: dict[str, Any]) -> str:
    return f"{about.get('message')}: {about.get('exception')!r}"
