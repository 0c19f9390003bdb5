"""Workers: when their step runs, what becomes of its failures, and how they end."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import pytest

from payres.core.process.worker import Worker, retry
from tests.helpers import settle


class Store:
    stopped: str | None = None


class Steps:
    """A step that returns or raises what it is given, one after the other; then it waits to be cancelled."""

    def __init__(self, *outcomes: float | Exception | Callable[[], float | None] | None) -> None:
        self.count = 0
        self._outcomes = iter(outcomes)

    async def __call__(self) -> float | None:
        self.count += 1
        await asyncio.sleep(0)
        for outcome in self._outcomes:
            if isinstance(outcome, Exception):
                raise outcome
            if callable(outcome):
                return outcome()
            return outcome
        await asyncio.Event().wait()
        raise AssertionError


def worker_of(steps: Steps) -> Worker:
    return Worker("The tidying", Store(), steps, 5)


@asynccontextmanager
async def running(worker: Worker) -> AsyncIterator["asyncio.Task[None]"]:
    task = asyncio.create_task(worker.run())
    await settle()
    yield task
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    ("outcome", "steps_when_woken"),
    [(None, 2), (3600, 2), (OSError(), 1)],
    ids=["resting", "due later", "in the backoff"],
)
async def test_step_runs_at_once_and_again_when_woken(outcome: float | Exception | None, steps_when_woken: int) -> None:
    steps = Steps(outcome, outcome, outcome)
    worker = worker_of(steps)
    async with running(worker):
        assert steps.count == 1
        worker.wake()
        worker.wake()
        await settle()
        assert steps.count == steps_when_woken


async def test_who_wakes_it_during_a_step_has_another_step_after_it() -> None:
    worker: Worker
    steps = Steps(lambda: worker.wake(), None)
    worker = worker_of(steps)
    async with running(worker):
        assert steps.count == 2


async def test_step_says_when_it_is_due_again(pauses: Sequence[float]) -> None:
    steps = Steps(60, 0.5, None)
    async with running(worker_of(steps)):
        assert steps.count == 3
        assert pauses == [60, 0.5]


async def test_failed_step_is_logged_by_name_and_tried_again_after_a_while(
    caplog: pytest.LogCaptureFixture, pauses: Sequence[float]
) -> None:
    steps = Steps(OSError("the disk is gone"), LookupError("nor a book"), None)
    with caplog.at_level(logging.ERROR):
        async with running(worker_of(steps)):
            assert steps.count == 3
    assert pauses == [5, 5]
    assert [record.message for record in caplog.records] == ["The tidying failed; next try in 5 s"] * 2
    assert "the disk is gone" in caplog.text
    assert "nor a book" in caplog.text


async def test_failure_that_repeats_is_logged_once_and_when_it_has_ended(
    caplog: pytest.LogCaptureFixture, pauses: Sequence[float]
) -> None:
    full, gone = OSError("full"), OSError("gone")
    assert await retry("The tidying", Store(), Steps(full, full, full, gone, gone, 7), 5) == 7
    assert pauses == [5] * 5
    failed = "The tidying failed; next try in 5 s"
    assert caplog.messages == [failed, failed, "The tidying works again; failures: 5"]


@pytest.mark.parametrize("outcome", [None, 60, OSError("nothing can be written")])
async def test_worker_ends_without_a_word_when_the_store_halts(
    outcome: float | Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store()

    async def step() -> float | None:
        store.stopped = "The books do not balance"
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    for _ in range(2):  # nor does it begin again
        await asyncio.wait_for(Worker("The tidying", store, step, 5).run(), 10)
    assert caplog.records == []


@pytest.mark.parametrize(
    "outcomes", [[], [None], [OSError()], [3600]], ids=["in the step", "until woken", "in the backoff", "until due"]
)
async def test_cancellation_ends_it_at_any_time(outcomes: Sequence[float | Exception | None]) -> None:
    async with running(worker_of(Steps(*outcomes))) as task:
        task.cancel()
        await settle()
        assert task.cancelled()


async def test_retry_returns_what_the_step_returned_in_the_end(pauses: Sequence[float]) -> None:
    assert await retry("It", Store(), Steps(OSError(), OSError(), 7), 2) == 7
    assert pauses == [2, 2]


async def test_retry_gives_up_when_the_store_halts() -> None:
    store, steps = Store(), Steps(7)
    store.stopped = "The books do not balance"
    assert await retry("It", store, steps, 2) is None
    assert steps.count == 0
