"""How long a connection may take for what, and how many there may be."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import NamedTuple, cast
from urllib.parse import urlsplit

import pytest

from payres.http import connections, protocol
from payres.http.connections import Connections, connections_of
from payres.http.protocol import SECONDS, HttpProtocol, State
from payres.limits import SPARE_FILES
from payres.testing.instance import Instance

GET = b"GET /healthz HTTP/1.1\r\nhost: h\r\n\r\n"
POST = b"POST /quotes HTTP/1.1\r\nhost: h\r\ncontent-length: 5\r\n\r\n"
HEADER_SECONDS, BODY_SECONDS, UNREAD_SECONDS = 0.15, 0.2, 0.25
Connect = Callable[[], socket.socket]


@pytest.fixture
def connect(shared: Instance, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connect]:
    seconds = {State.NEW: HEADER_SECONDS, State.HEAD: HEADER_SECONDS, State.BODY: BODY_SECONDS}
    for state, time_left in seconds.items():
        monkeypatch.setitem(SECONDS, state, time_left)
    monkeypatch.setattr(protocol, "UNREAD_SECONDS", UNREAD_SECONDS)
    address = urlsplit(shared.base_url)
    with ExitStack() as opened:
        yield lambda: opened.enter_context(socket.create_connection((address.hostname, address.port), timeout=10))


def read_to_end(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65536), b""))


def check_too_slow(received: bytes) -> None:
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert b"connection: close" in head
    assert json.loads(body)["error"]["code"] == "too_slow"


@pytest.mark.parametrize("sent", [b"G", b"GET /", b"GET / HTTP/1.1\r\nx: y", GET[:-2]])
def test_header_section_that_does_not_end_is_refused(connect: Connect, sent: bytes) -> None:
    connection, began = connect(), time.monotonic()
    connection.sendall(sent)
    check_too_slow(read_to_end(connection))
    assert HEADER_SECONDS * 0.9 < time.monotonic() - began < 5


@pytest.mark.parametrize("sent", [b"", b"1", b"1234"])
def test_body_that_does_not_end_is_refused(connect: Connect, sent: bytes) -> None:
    connection = connect()
    connection.sendall(POST + sent)
    check_too_slow(read_to_end(connection))


@pytest.mark.parametrize("request_", [GET, POST + b"12345"])
def test_bytes_that_drip_do_not_prolong_the_time(connect: Connect, request_: bytes) -> None:
    connection, began = connect(), time.monotonic()
    connection.settimeout(0.01)
    received = b""
    for number in range(len(request_) - 1):
        try:
            connection.sendall(request_[number : number + 1])
            received += connection.recv(65536)
        except TimeoutError:
            continue
        break
    connection.settimeout(10)
    check_too_slow(received + read_to_end(connection))
    assert time.monotonic() - began < 5


def test_request_in_time_is_answered_and_so_is_the_next(connect: Connect) -> None:
    connection = connect()
    for _ in range(4):  # altogether longer than one may take
        connection.sendall(GET[:10])
        time.sleep(HEADER_SECONDS / 3)
        connection.sendall(GET[10:])
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
    connection.sendall(POST)
    time.sleep(BODY_SECONDS / 3)
    connection.sendall(b"12345")
    assert connection.recv(65536).startswith(b"HTTP/1.1 4")


def test_connection_between_requests_is_not_watched(connect: Connect) -> None:
    connection = connect()
    for _ in range(2):
        connection.sendall(GET)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        time.sleep(HEADER_SECONDS * 1.5)


@pytest.mark.parametrize("sent", [b"", b"\r\n", b"\r\n\r\n"])
def test_connection_on_which_no_request_begins_is_just_closed(connect: Connect, sent: bytes) -> None:
    connection = connect()
    connection.sendall(sent)
    assert read_to_end(connection) == b""
    answered = connect()
    answered.sendall(GET)
    assert answered.recv(65536).startswith(b"HTTP/1.1 200 ")
    answered.sendall(b"\r\n")
    assert read_to_end(answered) == b""


def test_request_before_the_slow_one_has_its_answer_first(connect: Connect) -> None:
    connection = connect()
    connection.sendall(GET + GET[:9])
    good, _, slow = read_to_end(connection).partition(b"HTTP/1.1 408")
    assert good.startswith(b"HTTP/1.1 200 ")
    check_too_slow(b"HTTP/1.1 408" + slow)


def test_answered_request_whose_body_never_comes_is_closed(connect: Connect) -> None:
    connection = connect()
    connection.sendall(b"POST /nowhere/at/all HTTP/1.1\r\nhost: h\r\ncontent-length: 9\r\n\r\n1")
    received = read_to_end(connection)
    assert received.startswith(b"HTTP/1.1 40")
    assert received.count(b"HTTP/1.1") == 1


def test_connection_is_idle_after_a_body_that_came_late(
    connect: Connect, shared: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its request had an answer before, and nothing else would ever close it."""
    held = accepted(shared, connect)
    monkeypatch.setattr(held.protocol, "timeout_keep_alive", 0.1)
    held.connection.sendall(b"POST /nope/jwks.json HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\n1")
    assert held.connection.recv(65536).startswith(b"HTTP/1.1 404 ")
    held.connection.sendall(b"2")
    assert read_to_end(held.connection) == b""


class Accepted(NamedTuple):
    connection: socket.socket
    protocol: HttpProtocol


def accepted(shared: Instance, connect: Connect) -> Accepted:
    """A connection that has had an answer, with the server's side of it."""
    connection = connect()
    connection.sendall(GET)
    assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
    protocols = cast(set[HttpProtocol], shared._server.server_state.connections)
    return Accepted(connection, next(one for one in protocols if one.client == connection.getsockname()))


def on_loop(shared: Instance, function: Callable[[], None]) -> None:
    async def call() -> None:
        function()

    shared._server.call(call())


def test_client_that_reads_no_answers_is_cut_off(connect: Connect, shared: Instance) -> None:
    held, other = accepted(shared, connect), accepted(shared, connect)
    began = time.monotonic()
    on_loop(shared, held.protocol.pause_writing)  # as the transport does when nobody takes what it has
    on_loop(shared, other.protocol.pause_writing)
    on_loop(shared, other.protocol.resume_writing)
    with suppress(ConnectionResetError):
        assert held.connection.recv(1) == b""
    assert UNREAD_SECONDS * 0.9 < time.monotonic() - began < 5
    other.connection.sendall(GET)
    assert other.connection.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_client_that_reads_slowly_is_waited_for_while_it_reads(
    connect: Connect, shared: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = accepted(shared, connect)
    unread = iter([30_000, 25_000, 20_000, 15_905])  # the last step is one byte short
    monkeypatch.setattr(held.protocol, "_unread_bytes", lambda: next(unread))
    began = time.monotonic()
    on_loop(shared, held.protocol.pause_writing)
    with suppress(ConnectionResetError):
        assert held.connection.recv(1) == b""
    assert 3 * UNREAD_SECONDS * 0.9 < time.monotonic() - began < 5
    assert next(unread, None) is None


def test_what_a_client_has_not_taken_is_known_also_of_what_the_system_keeps(connect: Connect, shared: Instance) -> None:
    held = accepted(shared, connect)
    held.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    sizes: list[int] = []

    def answer() -> None:
        held.protocol.transport.write(b"x" * 8_000_000)
        sizes.extend((held.protocol._unread_bytes(), held.protocol.transport.get_write_buffer_size()))

    on_loop(shared, answer)
    unread, ours = sizes
    assert 8_000_000 >= unread > ours
    on_loop(shared, held.protocol.transport.abort)
    on_loop(shared, lambda: sizes.append(held.protocol._unread_bytes()))
    assert sizes[-1] >= 0


@pytest.mark.parametrize(("room", "status"), [(2, b"200"), (1, b"200"), (0, b"503")])
def test_connections_are_limited(
    connect: Connect, shared: Instance, monkeypatch: pytest.MonkeyPatch, room: int, status: bytes
) -> None:
    monkeypatch.setitem(SECONDS, State.NEW, 10)
    kept = [accepted(shared, connect) for _ in range(3)]
    # Those of other tests may be closing meanwhile: they count where there is to be room, and not where there is none.
    most = room + len(shared._server.server_state.connections) if room else len(kept)
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", most)
    last = connect()
    last.sendall(GET)
    received = last.recv(65536)
    assert received.startswith(b"HTTP/1.1 " + status)
    if status == b"503":
        assert b"retry-after: 1" in received.lower()
        assert json.loads(received.partition(b"\r\n\r\n")[2])["error"]["code"] == "unavailable"


@pytest.fixture
def counted(shared: Instance, monkeypatch: pytest.MonkeyPatch) -> Connections:
    """The counts of the server, to which all that connect now come from one address that is not here."""
    monkeypatch.setattr(Connections, "counted_address", lambda *_: "203.0.113.9")
    monkeypatch.setattr(connections, "MAX_CONNECTIONS_PER_ADDRESS", 3)
    monkeypatch.setitem(SECONDS, State.NEW, 10)
    return connections_of(shared._server.server_state, shared._server.config)


@pytest.mark.parametrize(("before", "status"), [(1, b"200"), (2, b"200"), (3, b"429"), (5, b"429"), (6, b"")])
def test_connections_of_one_address_are_limited(
    connect: Connect, counted: Connections, monkeypatch: pytest.MonkeyPatch, before: int, status: bytes
) -> None:
    monkeypatch.setitem(SECONDS, State.END, 10)
    with ExitStack() as others:
        kept = [others.enter_context(connect()) for _ in range(before)]
        wait_until(lambda: counted._open.get("203.0.113.9") == before)
        kept.append(others.enter_context(connect()))
        with suppress(ConnectionResetError):
            received = b""
            kept[-1].sendall(GET)
            received = kept[-1].recv(65536)
        assert received.startswith(b"HTTP/1.1 " + status if status else b"")
        assert bool(received) == bool(status), "twice as many are too many to be told so"
        if status == b"429":
            assert b"retry-after: 1" in received.lower()
            assert json.loads(received.partition(b"\r\n\r\n")[2])["error"]["code"] == "too_many_requests"
    wait_until(lambda: not counted._open)
    again = connect()
    again.sendall(GET)
    assert again.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_refused_connections_leave_files_to_others(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal keeps its connection for a while; those that come too fast for that are not even told."""
    monkeypatch.setattr(protocol, "most_connections", lambda: -SPARE_FILES)
    hasty = connect()
    with suppress(ConnectionResetError):
        hasty.sendall(GET)
        assert hasty.recv(65536) == b""


def test_closed_connection_whose_answers_are_never_read_is_cut(connect: Connect, shared: Instance) -> None:
    """What waits to be sent keeps even a closed connection."""
    held = accepted(shared, connect)
    closing: list[bool] = []

    def fill() -> None:
        transport = held.protocol.transport
        # More than the buffers of the system take.
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        transport.set_write_buffer_limits(high=1 << 30)  # so that it does not count as clogged
        transport.write(b"a" * (16 << 20))
        held.protocol._close()
        closing.append(transport.is_closing())

    on_loop(shared, fill)
    assert closing == [True]
    assert held.protocol in shared._server.server_state.connections
    wait_until(lambda: held.protocol not in shared._server.server_state.connections)


def wait_until(happens: Callable[[], bool]) -> None:
    """Waits for what the server does in its own time."""
    end = time.monotonic() + 10
    while not happens():
        assert time.monotonic() < end
        time.sleep(0.005)
