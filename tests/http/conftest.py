"""The time of the server's connections, which tests move by hand."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from payres.testing.instance import Instance


def on_loop(shared: Instance, function: Callable[[], None]) -> None:
    async def call() -> None:
        function()

    shared._server.call(call())


class Timer:
    """A call that is due at some time, like asyncio's TimerHandle."""

    def __init__(self, due: float, call: Callable[[], object]) -> None:
        self.due = due
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Timers:
    """An event loop whose timers go off when a test lets time pass; everything else is the loop's own doing."""

    def __init__(self, shared: Instance, loop: asyncio.AbstractEventLoop) -> None:
        self._shared = shared
        self._loop = loop
        self._now = 0.0
        self._set: list[Timer] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def call_later(self, delay: float, call: Callable[..., object], *arguments: Any) -> Timer:
        timer = Timer(self._now + delay, lambda: call(*arguments))
        self._set.append(timer)
        return timer

    def elapse(self, seconds: float) -> None:
        """Lets this time pass for the connections of the test."""
        on_loop(self._shared, lambda: self._elapse(seconds))

    def _elapse(self, seconds: float) -> None:
        end = self._now + seconds
        while due := [timer for timer in self._set if not timer.cancelled and timer.due <= end]:
            timer = min(due, key=lambda timer: timer.due)
            self._set.remove(timer)
            self._now = timer.due
            timer.call()
        self._now = end


@pytest.fixture
def timers(shared: Instance, monkeypatch: pytest.MonkeyPatch) -> Timers:
    """The time of all connections that are made from now on."""
    loop = shared._server._loop
    assert loop is not None
    timers = Timers(shared, loop)
    init = HttpToolsProtocol.__init__

    def init_with_timers(protocol: HttpToolsProtocol, *arguments: Any) -> None:
        init(protocol, *arguments)
        protocol.loop = cast(asyncio.AbstractEventLoop, timers)

    monkeypatch.setattr(HttpToolsProtocol, "__init__", init_with_timers)
    return timers
