"""Workers: loops beside the requests, until the server stops or its database is in fail-stop."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")

log = logging.getLogger("payres.worker")


class Stoppable(Protocol):
    """Accepts no more work after a failure that needs an operator: the database."""

    @property
    def stopped(self) -> str | None:
        """Why, in a sentence; None while it works."""
        ...


async def retry(name: str, store: Stoppable, step: Callable[[], Awaitable[T]], seconds: float) -> T | None:
    """Runs a step until it ends without an exception, and returns its result; None once the store is in fail-stop.

    An exception is logged with the name, and the step runs again after `seconds`. An exception because of the fail-stop
    is not logged: the store has logged the reason.
    """
    while not store.stopped:
        try:
            return await step()
        except Exception:
            if not store.stopped:
                log.exception("%s failed; next try in %g s", name, seconds)
                await asyncio.sleep(seconds)
    return None


async def cancel_all(tasks: Iterable["asyncio.Task[Any]"]) -> None:
    """Cancels tasks, and returns when they have ended."""
    ending = list(tasks)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)


class Worker:
    """Runs a step at once, and again whenever it is due or woken. `run` until cancelled.

    The step returns the seconds until it is due again, or None to wait for `wake` alone. After an exception it runs
    again after `retry_seconds`. `is_timed` if it does what is due by the clock. `woken` is what `wake` sets.
    """

    def __init__(
        self,
        name: str,
        store: Stoppable,
        step: Callable[[], Awaitable[float | None]],
        retry_seconds: float,
        *,
        is_timed: bool = True,
    ) -> None:
        self._name: Final = name
        self._store: Final = store
        self._step: Final = step
        self._retry_seconds: Final = retry_seconds
        self.woken: Final = asyncio.Event()
        self._is_timed: Final = is_timed
        self._is_resting = False

    @property
    def is_resting(self) -> bool:
        """Whether it waits to be due again, and nobody has woken it."""
        return self._is_resting and not self.woken.is_set()

    def wake(self) -> None:
        """Has the step run once more, after the one that runs now."""
        self.woken.set()

    async def run(self) -> None:
        """Ends when the store is in fail-stop. Raises nothing but CancelledError."""
        if self._is_timed:
            RUNNING.add(self)
        try:
            while not self._store.stopped:
                self.woken.clear()
                seconds = await retry(self._name, self._store, self._step, self._retry_seconds)
                if not self._store.stopped:
                    await self._rest(seconds)
        finally:
            RUNNING.discard(self)

    async def _rest(self, seconds: float | None) -> None:
        timer = None if seconds is None else asyncio.get_running_loop().call_later(seconds, self.wake)
        self._is_resting = True
        try:
            await self.woken.wait()
        finally:
            self._is_resting = False
            if timer is not None:
                timer.cancel()


# The timed workers of this process, for a test that moves the clock: what has become due does not wait for them.
RUNNING: Final[set[Worker]] = set()
