"""What the server does for operators while they do other things, and how far it is: backups and ledger checks."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TypeVar

import msgspec

from payres.core.http.requests import ActorRequest
from payres.core.process.worker import cancel_all
from payres.core.protocol.clock import Clock
from payres.core.protocol.errors import DomainError, Unavailable, WrongState

T = TypeVar("T")
log = logging.getLogger("payres.operator")


class LongWork(msgspec.Struct):
    """Work of the server that takes long: who began it and when (microseconds UTC), and how far it is. `done` of
    `total` of a step are done; `total` is 0 if that is not known. At `ended_at` it has an `outcome` or a `problem`."""

    actor: str
    began_at: int
    step: str = ""
    done: int = 0
    total: int = 0
    ended_at: int | None = None
    outcome: object = None
    problem: str = ""
    is_stopped: bool = False

    def note(self, step: str, done: int, total: int) -> None:
        """Says how far it is. Threads may call it. Raises Unavailable if the work is to end."""
        self.step, self.done, self.total = step, done, total
        if self.is_stopped:
            raise Unavailable("The server was stopped meanwhile")


class LongWorks:
    """The latest long work of each kind, which pages show. It goes on when nobody looks, and ends with the server."""

    def __init__(self, clock: Clock) -> None:
        self.latest: dict[str, LongWork] = {}
        self._clock = clock
        self._tasks: dict[asyncio.Task[object], None] = {}  # in order

    async def run(self, kind: str, actor: str, work: Callable[[LongWork], Awaitable[T]]) -> T:
        """The result of the work, whose progress is shown meanwhile. Raises what the work raises."""
        one = self.latest[kind] = LongWork(actor, self._clock.now())
        try:
            one.outcome = outcome = await work(one)
        except BaseException as error:
            one.problem = str(error) if isinstance(error, DomainError) else "The server failed, and its log says how"
            raise
        finally:
            one.ended_at = self._clock.now()
        return outcome

    def begin(self, kind: str, actor: str, work: Callable[[], Coroutine[object, None, object]]) -> None:
        """Starts what will `run` a work of this kind, and for which nobody waits. Raises WrongState while one runs."""
        if kind in self.latest and self.latest[kind].ended_at is None:
            raise WrongState(f"A {kind} is under way already")
        begun = self.latest[kind] = LongWork(actor, self._clock.now())
        task = asyncio.create_task(work())
        self._tasks[task] = None
        task.add_done_callback(partial(self._end, begun))

    def _end(self, begun: LongWork, task: "asyncio.Task[object]") -> None:
        self._tasks.pop(task, None)
        begun.ended_at = self._clock.now()  # another one stands for it once it runs
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("%s", error, exc_info=None if isinstance(error, DomainError) else error)

    async def close(self) -> None:
        """Stops what is under way, also on threads, for which a server that ends waits."""
        for one in self.latest.values():
            one.is_stopped = True
        await cancel_all(self._tasks)


async def in_background(call: ActorRequest) -> tuple[str, ActorRequest]:
    """The actor of a request, and what runs units in the actor's name, also after the actor has signed out."""
    actor = await call.read(lambda work: work.actor)
    return actor, ActorRequest(call.request, lambda _: actor)
