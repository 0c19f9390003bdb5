"""The timeouts of a connection. Time passes only when a test moves it."""

import socket
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from payres.core.http.protocol import HttpProtocol
from payres.core.http.server import KEEP_ALIVE_MARGIN
from payres.core.protocol.limits import KEEP_ALIVE_SECONDS, REQUEST_SECONDS, UNREAD_SECONDS
from tests.core.http.conftest import GET, Connect, Timers, check_refusal, on_loop, protocol_of
from tests.helpers import TIMEOUT, read_to_end, wait_until
from tests.instance import Instance
from tests.raw_requests import answers_of

SHORT = b"POST /quotes HTTP/1.1\r\nhost: h\r\ncontent-length: 5\r\n\r\n"
# Answered before its body has come: the path is no wallet's.
EARLY = b"POST /nope/jwks.json HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\n1"
Send = Callable[[socket.socket, bytes], None]

pytestmark = pytest.mark.usefixtures("timers")


@pytest.fixture
def send(shared: Instance, monkeypatch: pytest.MonkeyPatch) -> Send:
    """Sends bytes and returns when the server has read them, or has the connection, which is opened after this."""
    read: Counter[Any] = Counter()
    take = HttpProtocol.data_received

    def take_and_count(protocol: HttpProtocol, data: bytes) -> None:
        take(protocol, data)
        read[protocol.client] += len(data)

    monkeypatch.setattr(HttpProtocol, "data_received", take_and_count)

    def send_and_wait(connection: socket.socket, data: bytes) -> None:
        name = connection.getsockname()
        wanted = read[name] + len(data)
        connection.sendall(data)
        wait_until(lambda: read[name] == wanted and protocol_of(shared, connection) is not None)

    return send_and_wait


def is_open(connection: socket.socket) -> bool:
    """Whether the server has neither sent anything that was not read, nor hung up."""
    connection.setblocking(False)
    try:
        return not isinstance(connection.recv(1, socket.MSG_PEEK), bytes)
    except BlockingIOError:
        return True
    finally:
        connection.settimeout(TIMEOUT)


def check_too_slow(connection: socket.socket) -> None:
    [answer] = answers_of(connection)
    check_refusal(answer, 408, "too_slow")


@pytest.mark.parametrize("sent", [b"G", b"GET /", b"GET / HTTP/1.1\r\nx: y", GET[:-2], SHORT, SHORT + b"1234"])
def test_request_that_does_not_end_is_refused(
    send: Send, connection: socket.socket, timers: Timers, sent: bytes
) -> None:
    send(connection, sent)
    timers.elapse(REQUEST_SECONDS - 0.1)
    assert is_open(connection)
    timers.elapse(0.1)
    check_too_slow(connection)


@pytest.mark.parametrize("request_", [GET, SHORT + b"12345"])
def test_bytes_that_drip_do_not_prolong_the_time(
    send: Send, connection: socket.socket, timers: Timers, request_: bytes
) -> None:
    send(connection, request_[:-5])
    for number in range(4):
        timers.elapse(REQUEST_SECONDS / 4 - 0.01)
        assert is_open(connection)
        send(connection, request_[number - 5 : number - 4])
    timers.elapse(0.04)
    check_too_slow(connection)


def test_request_in_time_is_answered_and_so_is_the_next(send: Send, connection: socket.socket, timers: Timers) -> None:
    for sent in [GET, SHORT + b"12345"] * 2:  # altogether longer than one may take
        send(connection, sent[:-5])
        timers.elapse(REQUEST_SECONDS - 0.1)
        send(connection, sent[-5:])
        assert connection.recv(65536).startswith(b"HTTP/1.1 ")


def test_connection_between_requests_has_its_own_time(send: Send, connection: socket.socket, timers: Timers) -> None:
    for _ in range(4):  # altogether longer than a request may take
        send(connection, GET)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        timers.elapse(KEEP_ALIVE_SECONDS)
        assert is_open(connection)
    timers.elapse(KEEP_ALIVE_MARGIN)
    assert read_to_end(connection) == b""


@pytest.mark.parametrize("sent", [b"", b"\r\n", b"\r\n\r\n"])
def test_connection_on_which_no_request_begins_is_just_closed(
    send: Send, connection: socket.socket, timers: Timers, sent: bytes
) -> None:
    send(connection, sent)
    timers.elapse(REQUEST_SECONDS)
    assert read_to_end(connection) == b""


def test_answered_request_whose_body_never_comes_is_closed(
    send: Send, connection: socket.socket, timers: Timers
) -> None:
    send(connection, EARLY)
    received = connection.recv(65536)
    assert received.startswith(b"HTTP/1.1 404 ")
    timers.elapse(REQUEST_SECONDS)
    received += read_to_end(connection)
    assert received.count(b"HTTP/1.1") == 1


def test_connection_is_idle_after_a_body_that_came_late(send: Send, connection: socket.socket, timers: Timers) -> None:
    """Its request had an answer before, and nothing else would ever close it."""
    send(connection, EARLY)
    assert connection.recv(65536).startswith(b"HTTP/1.1 404 ")
    send(connection, b"2")
    timers.elapse(REQUEST_SECONDS)
    assert is_open(connection)
    timers.elapse(KEEP_ALIVE_SECONDS + KEEP_ALIVE_MARGIN)
    assert read_to_end(connection) == b""


def answered(connection: socket.socket, shared: Instance) -> HttpProtocol:
    """The server's side of the connection, which has had an answer."""
    connection.sendall(GET)
    assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
    protocol = protocol_of(shared, connection)
    assert protocol is not None
    return protocol


def test_client_that_reads_no_answers_is_cut_off(connect: Connect, shared: Instance, timers: Timers) -> None:
    held, other = connect(), connect()
    for one in (held, other):
        on_loop(shared, answered(one, shared).pause_writing)  # as the transport does when nobody takes what it has
    timers.elapse(UNREAD_SECONDS - 0.1)
    assert is_open(held)
    protocol = protocol_of(shared, other)
    assert protocol is not None
    on_loop(shared, protocol.resume_writing)
    timers.elapse(0.1)
    with suppress(ConnectionResetError):
        assert held.recv(1) == b""
    other.sendall(GET)
    assert other.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_closed_connection_whose_answers_are_never_read_is_cut(
    connection: socket.socket, shared: Instance, timers: Timers
) -> None:
    """What waits to be sent keeps even a closed connection."""
    protocol = answered(connection, shared)

    def fill() -> None:
        transport = protocol.transport
        # More than the buffers of the system take.
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        transport.set_write_buffer_limits(high=1 << 30)  # so that it does not count as clogged
        transport.write(b"a" * (16 << 20))
        protocol._close()

    on_loop(shared, fill)
    timers.elapse(UNREAD_SECONDS - 0.1)
    assert protocol in shared._server.server_state.connections
    timers.elapse(0.1)
    wait_until(lambda: protocol not in shared._server.server_state.connections)
