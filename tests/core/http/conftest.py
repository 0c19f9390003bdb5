"""Connections to the shared instance, the server's side of them, and their time, which tests move by hand."""

import asyncio
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from payres.core.http.protocol import HttpProtocol
from tests.helpers import TIMEOUT
from tests.instance import Instance
from tests.raw_requests import Answer

GET = b"GET /healthz HTTP/1.1\r\nhost: h\r\n\r\n"
LAST = GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
POST = b"POST /quotes HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n"
Connect = Callable[[], socket.socket]


@pytest.fixture
def connect(shared: Instance) -> Iterator[Connect]:
    """Opens connections, which are closed after the test."""
    address = urlsplit(shared.base_url)
    with ExitStack() as opened:
        yield lambda: opened.enter_context(socket.create_connection((address.hostname, address.port), timeout=TIMEOUT))


@pytest.fixture
def connection(connect: Connect) -> socket.socket:
    return connect()


def check_refusal(answer: Answer, status: int, code: str) -> None:
    """The answer is an error that ends its connection, in the form of all errors."""
    assert answer.status == status
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["connection"] == "close"
    assert "keep-alive" not in answer.headers
    assert answer.headers["access-control-allow-origin"] == "*", "scripts of other origins may read it"
    assert "date" in answer.headers
    error = json.loads(answer.body)["error"]
    assert error.keys() == {"code", "description", "details"}
    assert error["code"] == code
    assert error["details"]["hint"]


def protocol_of(shared: Instance, connection: socket.socket) -> HttpProtocol | None:
    """The server's side of a connection, if it has one."""
    protocols = cast(set[HttpProtocol], shared._server.server_state.connections)
    return next((one for one in protocols.copy() if one.client == connection.getsockname()), None)


def on_loop(shared: Instance, function: Callable[[], object]) -> None:
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
    loop = shared._server._loop.result()
    timers = Timers(shared, loop)
    init = HttpToolsProtocol.__init__

    def init_with_timers(protocol: HttpToolsProtocol, **arguments: Any) -> None:
        init(protocol, **arguments)
        protocol.loop = cast(asyncio.AbstractEventLoop, timers)

    monkeypatch.setattr(HttpToolsProtocol, "__init__", init_with_timers)
    return timers
