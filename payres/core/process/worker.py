"""Workers: background loops that run until the server stops or its database is in fail-stop."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Protocol, TypeVar

T = TypeVar("T")
Pause = float  # in seconds

log = logging.getLogger("payres.worker")


class Stoppable(Protocol):
    """The database, which accepts no more work after a fail-stop."""

    @property
    def stopped(self) -> str | None:
        """The reason for the fail-stop, in a sentence; None in normal operation."""
        ...


async def retry(name: str, store: Stoppable, step: Callable[[], Awaitable[T]], seconds: float) -> T | None:
    """Runs a step until it succeeds, and returns its result; None once the store is in fail-stop.

    Exceptions are logged with the name, once if they repeat, and the step runs again after `seconds`. Exceptions due to
    the fail-stop are not logged: the store has logged the reason.
    """
    failures, last = 0, ""
    while not store.stopped:
        try:
            result = await step()
        except Exception as error:
            if not store.stopped:
                failures += 1
                if repr(error) != last:
                    log.exception("%s failed; next try in %g s", name, seconds)
                last = repr(error)
                await asyncio.sleep(seconds)
        else:
            if failures > 1:
                log.warning("%s works again; failures: %d", name, failures)
            return result
    return None


async def cancel_all(tasks: Iterable["asyncio.Task[object]"]) -> None:
    """Cancels tasks, and waits for their end."""
    ending = list(tasks)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)


class Worker:
    """Runs a step at once, and again whenever it is due or woken. `run` until cancelled.

    The step returns the seconds until it is due again, or None to wait for `wake` only. After an exception it runs
    again after `retry_seconds`. `is_timed` if its work depends on the clock. `wake` sets `woken`.
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
        """Whether it is waiting to be due again, and was not woken."""
        return self._is_resting and not self.woken.is_set()

    def wake(self) -> None:
        """Makes the step run again, after the current run."""
        self.woken.set()

    async def run(self) -> None:
        """Ends when the store is in fail-stop. Raises only CancelledError."""
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


# The timed workers of this process, so that a test that moves the clock can run their due steps.
RUNNING: Final[set[Worker]] = set()
