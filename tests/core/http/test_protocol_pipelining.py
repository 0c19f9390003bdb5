"""Pipelined requests, unread answers, answers without a known length, and clients that leave before their answer."""

import asyncio
import logging
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

import pytest
from starlette.responses import PlainTextResponse
from uvicorn import Config
from uvicorn.server import ServerState

from payres.core.http import connections
from payres.core.http.protocol import ANSWER, UNSENT_BYTES, HttpProtocol
from payres.core.http.responses import CutShort
from payres.core.http.server import settings_of
from tests.core.http.conftest import GET, LAST, POST, on_loop, protocol_of
from tests.helpers import TIMEOUT, read_to_end, wait_until
from tests.instance import Instance

# Its body looks like the ends of many header sections.
STRANGE = POST + b"content-length: 400\r\n\r\n" + b"\r\n\r\n" * 100
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
READ_BYTES = 256_000  # what the event loop reads at a time


class Held(NamedTuple):
    connection: socket.socket
    protocol: HttpProtocol


Connect = Callable[[], Held]


@pytest.fixture
def connect(shared: Instance) -> Iterator[Connect]:
    """Connections on whose way little fits, that have had an answer."""
    address = urlsplit(shared.base_url)
    assert address.hostname is not None
    assert address.port is not None
    target = address.hostname, address.port

    def open_one(opened: ExitStack) -> Held:
        connection = opened.enter_context(socket.socket())
        connection.settimeout(TIMEOUT)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(target)
        connection.sendall(GET)
        received = b""
        while not received.endswith(b"}"):
            received += connection.recv(65536)
        protocol = protocol_of(shared, connection)
        assert protocol is not None
        protocol.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return Held(connection, protocol)

    with ExitStack() as opened:
        yield lambda: open_one(opened)


def statuses(received: bytes) -> list[int]:
    return [int(part[:3]) for part in received.split(b"HTTP/1.1 ")[1:]]


def send(connection: socket.socket, data: bytes) -> threading.Thread:
    """Sends while the caller reads."""

    def run() -> None:
        with suppress(OSError):
            connection.sendall(data)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.parametrize("mix", [[GET], [STRANGE], [CHUNKED, GET], [GET, STRANGE, CHUNKED]])
def test_pipelined_requests_are_answered_in_order(connect: Connect, mix: list[bytes]) -> None:
    held, rounds = connect(), 1500 // len(mix)
    sender = send(held.connection, b"".join(mix * rounds) + LAST)
    received = read_to_end(held.connection)
    sender.join()
    assert statuses(received) == [200 if request is GET else 401 for request in mix] * rounds + [200]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_requests_in_pieces_of_any_size_are_read_one_at_a_time(connect: Connect, shared: Instance, size: int) -> None:
    """Wherever a read ends, in the middle of what ends a section too: nothing of the next request is parsed early."""
    held, mix = connect(), [STRANGE, GET, CHUNKED, GET]
    sent = b"".join(mix) + LAST
    for start in range(0, len(sent), size):
        wait_until(lambda: held.protocol.state != ANSWER)
        piece = sent[start : start + size]
        on_loop(shared, lambda piece=piece: held.protocol.data_received(piece))  # type: ignore[misc]
    assert statuses(read_to_end(held.connection)) == [200 if request is GET else 401 for request in mix] + [200]


def test_requests_without_end_take_no_more_memory(connect: Connect, shared: Instance) -> None:
    held = connect()
    sender = send(held.connection, GET * 100_000)
    received, most = b"", 0
    while len(received) < 250_000:
        received += held.connection.recv(65536)
        most = max(most, held.protocol.buffered_bytes())
    assert UNSENT_BYTES < most <= READ_BYTES + 2 * UNSENT_BYTES
    assert not held.protocol.pipeline
    held.connection.shutdown(socket.SHUT_RDWR)
    sender.join()
    wait_until(lambda: held.protocol not in shared._server.server_state.connections)
    assert held.protocol.buffered_bytes() <= UNSENT_BYTES


def clog(held: Held) -> None:
    """Sends requests until the server waits for its answers to be read."""
    held.connection.sendall(GET * 2000)
    wait_until(lambda: held.protocol.flow.write_paused and held.protocol.flow.read_paused)


def test_client_that_reads_late_gets_all_answers(connect: Connect) -> None:
    held = connect()
    clog(held)
    assert held.protocol.transport.get_write_buffer_size() < 2 * UNSENT_BYTES, "no request is begun meanwhile"
    held.connection.sendall(LAST)
    assert statuses(read_to_end(held.connection)) == [200] * 2001


def test_who_leaves_answers_unread_for_longest_loses_them(
    connect: Connect, shared: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond what all may buffer together; who reads is served."""
    first, second, other = connect(), connect(), connect()
    clog(first)
    clog(second)
    together = first.protocol.buffered_bytes() + second.protocol.buffered_bytes()
    monkeypatch.setattr(connections, "MAX_BUFFERED_BYTES", together - 1)
    on_loop(shared, second.protocol._count_buffers)
    wait_until(lambda: first.protocol not in shared._server.server_state.connections)
    with suppress(ConnectionResetError):
        read_to_end(first.connection)
    other.connection.sendall(LAST)
    assert statuses(read_to_end(other.connection)) == [200]
    second.connection.sendall(LAST)
    assert statuses(read_to_end(second.connection)) == [200] * 2001
    wait_until(lambda: not second.protocol._counts._buffers)
    assert second.protocol._counts._total == 0


class Recorder:
    """A transport that keeps what is written to it, each time on its own."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self.written: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        self.written.append(bytes(data))
        self._transport.write(data)


Part = bytes | Exception


def exchanged(connect: Connect, request: bytes, status: int, headers: dict[str, str], *parts: Part) -> list[bytes]:
    """What is written for an answer of these parts, each write on its own; one that is raised ends it."""
    held = connect()
    recorder = Recorder(held.protocol.transport)
    held.protocol.transport = cast(Any, recorder)

    async def app(_: Any, __: Any, send: Any) -> None:
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        for number, part in enumerate(parts, 1):
            if isinstance(part, Exception):
                raise part
            await send({"type": "http.response.body", "body": part, "more_body": number < len(parts)})

    held.protocol.app = app
    held.connection.sendall(request)
    received = read_to_end(held.connection)
    assert b"".join(recorder.written) == received
    return recorder.written


OLD = LAST.replace(b"1.1", b"1.0")
HEAD = LAST.replace(b"GET", b"HEAD")
TWO = {"content-length": "2"}


def test_answer_of_known_length_is_written_at_once(connect: Connect) -> None:
    [written] = exchanged(connect, LAST, 200, TWO | {"x-one": "1"}, b"ok")
    assert written.startswith(b"HTTP/1.1 200 OK\r\ndate: ")
    assert written.endswith(b"\r\ncontent-length: 2\r\nx-one: 1\r\nconnection: close\r\n\r\nok")


@pytest.mark.parametrize(
    ("request_", "status", "headers", "parts", "body"),
    [
        (LAST, 200, TWO, [b"o", b"k"], b"ok"),
        (LAST, 200, {}, [b"ok", b""], b"2\r\nok\r\n0\r\n\r\n"),
        (LAST, 200, {}, [b"ok", CutShort("not read")], b"2\r\nok\r\n"),
        (GET, 200, TWO | {"connection": "close"}, [b"ok"], b"ok"),
        (HEAD, 200, TWO, [b"ok"], b""),
        (LAST, 204, {}, [b""], b""),
        (OLD, 200, TWO, [b"ok"], b"ok"),
        (OLD, 200, {}, [b"o", b"k"], b"ok"),
    ],
)
def test_answers_are_framed_as_they_must_be(
    connect: Connect, request_: bytes, status: int, headers: dict[str, str], parts: list[Part], body: bytes
) -> None:
    head, _, content = b"".join(exchanged(connect, request_, status, headers, *parts)).partition(b"\r\n\r\n")
    assert content == body
    assert head.count(b"connection: close") == 1
    assert b"keep-alive" not in head
    assert (b"transfer-encoding: chunked" in head) == (b"\r\n" in body)


@pytest.mark.parametrize("value", ["a\r\nset-cookie: b", "a\nb", "a\rb"])
def test_header_with_a_line_break_is_never_written(connect: Connect, value: str) -> None:
    written = b"".join(exchanged(connect, LAST, 200, TWO | {"location": value}, b"ok"))
    assert written.startswith(b"HTTP/1.1 500 ")
    assert b"location" not in written


RESET = struct.pack("ii", 1, 0)  # closing sends a reset


def leave(connection: socket.socket, is_reset: bool) -> None:
    if is_reset:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    connection.close()


@pytest.mark.parametrize("request_", [GET, HEAD, OLD])
@pytest.mark.parametrize("is_reset", [True, False])
@pytest.mark.parametrize("headers", [{}, TWO])
def test_client_that_leaves_before_its_answer_is_not_logged(
    connect: Connect, caplog: pytest.LogCaptureFixture, request_: bytes, is_reset: bool, headers: dict[str, str]
) -> None:
    """Anybody could fill the log with tracebacks."""
    held = connect()
    tasks: list[asyncio.Task[Any] | None] = []

    async def app(_: Any, receive: Any, send: Any) -> None:
        tasks.append(asyncio.current_task())
        while (await receive())["type"] != "http.disconnect":
            pass
        await PlainTextResponse(b"ok", headers=headers)({"type": "http"}, receive, send)

    held.protocol.app = app
    held.connection.sendall(request_)
    wait_until(lambda: bool(tasks))
    with caplog.at_level(logging.WARNING):
        leave(held.connection, is_reset)
        wait_until(lambda: all(task and task.done() for task in tasks))
    assert not caplog.records


@pytest.mark.parametrize("is_reset", [True, False])
@pytest.mark.parametrize("headers", [{}, {"content-length": "100000"}])
async def test_client_that_leaves_in_the_middle_is_not_logged(
    caplog: pytest.LogCaptureFixture, headers: dict[str, str], is_reset: bool
) -> None:
    """asyncio's own loop warns of each write after a few."""
    done, loop = asyncio.Event(), asyncio.get_running_loop()

    async def app(_: Any, __: Any, send: Any) -> None:
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": raw})
        leave(client, is_reset)  # all that follows is in one turn of the loop
        for number in range(1, 101):
            await send({"type": "http.response.body", "body": b"x" * 1000, "more_body": number < 100})
        done.set()

    config = Config(app, **settings_of())
    make = partial(HttpProtocol, config=config, server_state=ServerState(), app_state={})
    async with await loop.create_server(make, "127.0.0.1", 0) as server:
        client = socket.create_connection(server.sockets[0].getsockname())
        client.sendall(GET)
        await asyncio.wait_for(done.wait(), TIMEOUT)
    assert not caplog.records
