"""The limit of requests in progress per address; the application behind waits until the test lets it answer."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from payres.core.http.admission import Admission, RateLimits
from payres.core.http.observation import OBSERVATION, Observation
from payres.core.process.settings import Settings
from payres.core.protocol.clock import SystemClock
from payres.core.protocol.limits import MAX_REQUESTS_PER_ADDRESS
from payres.core.protocol.urls import ILP

A, B, HERE = "203.0.113.1", "203.0.113.2", "127.0.0.1"


class Waiting:
    """An application that answers when it is told to, and a count of what it has been asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.go_on = asyncio.Event()
        self.fault: Exception | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked += 1
        await self.go_on.wait()
        if self.fault is not None:
            raise self.fault


class Door:
    """Requests to an Admission in front of a waiting application."""

    def __init__(self) -> None:
        self.app = Waiting()
        limits = RateLimits(Settings(rate_limit_per_address=0, rate_limit_unauthenticated=0), SystemClock())
        self.admission = Admission(self.app, limits)
        self.tasks: list[asyncio.Task[list[Any]]] = []

    async def ask(self, address: str, count: int = 1, path: str = "/alice") -> None:
        self.tasks += [asyncio.ensure_future(self._ask(address, path)) for _ in range(count)]
        await asyncio.sleep(0)

    async def _ask(self, address: str, path: str) -> list[Any]:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        target = {"path": path, "raw_path": path.encode(), "query_string": b""}
        scope: dict[str, Any] = {"type": "http", "client": (address, 1), "method": "GET", "headers": [], **target}
        scope[OBSERVATION] = Observation()
        await self.admission(scope, None, send)  # type: ignore[arg-type]  # nothing is read here
        return sent


@pytest.fixture
def door() -> Iterator[Door]:
    door = Door()
    yield door
    assert all(task.done() for task in door.tasks)


async def finish(door: Door) -> None:
    door.app.go_on.set()
    await asyncio.gather(*door.tasks, return_exceptions=True)
    assert not door.admission._in_progress._levels


@pytest.mark.parametrize(("more", "refused"), [(-1, 0), (0, 0), (1, 1)])
async def test_requests_of_an_address_under_way_are_limited(door: Door, more: int, refused: int) -> None:
    await door.ask(A, MAX_REQUESTS_PER_ADDRESS + more)
    assert door.app.asked == MAX_REQUESTS_PER_ADDRESS + more - refused
    ended = [task.result() for task in door.tasks if task.done()]
    assert len(ended) == refused
    for start, _ in ended:
        assert start["status"] == 429
        assert dict(start["headers"])[b"retry-after"] == b"1"
    await door.ask(B)
    assert not door.tasks[-1].done()
    await finish(door)


async def test_requests_that_fail_or_are_cut_are_not_under_way_any_more(door: Door) -> None:
    await door.ask(A, 5)
    door.tasks[0].cancel()
    door.app.fault = ValueError("a fault")
    await finish(door)
    assert all(task.cancelled() or task.exception() is door.app.fault for task in door.tasks)


@pytest.mark.parametrize(("address", "path"), [(HERE, "/alice"), ("::1", "/alice"), (A, ILP)])
async def test_requests_from_here_and_packets_are_not_counted(door: Door, address: str, path: str) -> None:
    await door.ask(address, MAX_REQUESTS_PER_ADDRESS + 1, path)
    assert door.app.asked == MAX_REQUESTS_PER_ADDRESS + 1
    await finish(door)
