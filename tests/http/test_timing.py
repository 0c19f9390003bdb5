"""How long a connection may take for what, and how many there may be. Time passes when a test says so."""

import json
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

import pytest

from payres.http import connections, protocol
from payres.http.connections import Connections, connections_of
from payres.http.protocol import HttpProtocol
from payres.http.server import KEEP_ALIVE_MARGIN
from payres.limits import BODY_SECONDS, HEADER_SECONDS, KEEP_ALIVE_SECONDS, SPARE_FILES, UNREAD_SECONDS
from payres.testing.instance import Instance
from tests.helpers import TIMEOUT, read_to_end, wait_until
from tests.http.conftest import Timers, on_loop

GET = b"GET /healthz HTTP/1.1\r\nhost: h\r\n\r\n"
POST = b"POST /quotes HTTP/1.1\r\nhost: h\r\ncontent-length: 5\r\n\r\n"
Connect = Callable[[], socket.socket]


@pytest.fixture
def connect(shared: Instance, timers: Timers) -> Iterator[Connect]:
    address = urlsplit(shared.base_url)
    with ExitStack() as opened:
        yield lambda: opened.enter_context(socket.create_connection((address.hostname, address.port), timeout=TIMEOUT))


Send = Callable[[socket.socket, bytes], None]


@pytest.fixture
def send(shared: Instance, monkeypatch: pytest.MonkeyPatch) -> Send:
    """Sends bytes and returns when the server has read them, or has the connection."""
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


def protocol_of(shared: Instance, connection: socket.socket) -> HttpProtocol | None:
    """The server's side of a connection, if it has one."""
    protocols = cast(set[HttpProtocol], shared._server.server_state.connections)
    return next((one for one in protocols.copy() if one.client == connection.getsockname()), None)


def is_open(connection: socket.socket) -> bool:
    """Whether the server has neither sent anything that was not read, nor hung up."""
    connection.setblocking(False)
    try:
        return not isinstance(connection.recv(1, socket.MSG_PEEK), bytes)
    except BlockingIOError:
        return True
    finally:
        connection.settimeout(TIMEOUT)


def check_too_slow(received: bytes) -> None:
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert b"connection: close" in head
    assert json.loads(body)["error"]["code"] == "too_slow"


@pytest.mark.parametrize("sent", [b"G", b"GET /", b"GET / HTTP/1.1\r\nx: y", GET[:-2]])
def test_header_section_that_does_not_end_is_refused(connect: Connect, send: Send, timers: Timers, sent: bytes) -> None:
    connection = connect()
    send(connection, sent)
    timers.elapse(HEADER_SECONDS - 0.1)
    assert is_open(connection)
    timers.elapse(0.1)
    check_too_slow(read_to_end(connection))


@pytest.mark.parametrize("sent", [b"", b"1", b"1234"])
def test_body_that_does_not_end_is_refused(connect: Connect, send: Send, timers: Timers, sent: bytes) -> None:
    connection = connect()
    send(connection, POST + sent)
    timers.elapse(BODY_SECONDS - 0.1)
    assert is_open(connection)
    timers.elapse(0.1)
    check_too_slow(read_to_end(connection))


@pytest.mark.parametrize(("request_", "seconds"), [(GET, HEADER_SECONDS), (POST + b"12345", BODY_SECONDS)])
def test_bytes_that_drip_do_not_prolong_the_time(
    connect: Connect, send: Send, timers: Timers, request_: bytes, seconds: float
) -> None:
    connection = connect()
    send(connection, request_[:-5])
    for number in range(4):
        timers.elapse(seconds / 4 - 0.01)
        assert is_open(connection)
        send(connection, request_[number - 5 : number - 4])
    timers.elapse(0.04)
    check_too_slow(read_to_end(connection))


def test_request_in_time_is_answered_and_so_is_the_next(connect: Connect, send: Send, timers: Timers) -> None:
    connection = connect()
    for _ in range(4):  # altogether longer than one may take
        send(connection, GET[:10])
        timers.elapse(HEADER_SECONDS / 3)
        send(connection, GET[10:])
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
    send(connection, POST)
    timers.elapse(BODY_SECONDS / 3)
    send(connection, b"12345")
    assert connection.recv(65536).startswith(b"HTTP/1.1 4")


def test_connection_between_requests_has_its_own_time(connect: Connect, send: Send, timers: Timers) -> None:
    connection = connect()
    for _ in range(4):  # altogether longer than a header section may take
        send(connection, GET)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        timers.elapse(KEEP_ALIVE_SECONDS)
        assert is_open(connection)
    timers.elapse(KEEP_ALIVE_MARGIN)
    assert read_to_end(connection) == b""


def test_answer_says_how_long_its_connection_stays_open(connect: Connect) -> None:
    connection = connect()
    connection.sendall(GET)
    head = connection.recv(65536).lower()
    assert b"\r\nkeep-alive: timeout=75\r\n" in head
    assert KEEP_ALIVE_SECONDS == 75
    connection.sendall(b"none\r\n\r\n")
    head, _, _ = read_to_end(connection).lower().partition(b"\r\n\r\n")
    assert b"connection: close" in head
    assert b"keep-alive" not in head


@pytest.mark.parametrize(
    "sent", [GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"), GET.replace(b"1.1", b"1.0")]
)
def test_last_answer_says_that_its_connection_ends_and_not_how_long_it_stays(connect: Connect, sent: bytes) -> None:
    connection = connect()
    connection.sendall(sent)
    head, _, _ = read_to_end(connection).lower().partition(b"\r\n\r\n")
    assert b"connection: close" in head
    assert b"keep-alive" not in head


@pytest.mark.parametrize("sent", [b"", b"\r\n", b"\r\n\r\n"])
def test_connection_on_which_no_request_begins_is_just_closed(
    connect: Connect, send: Send, timers: Timers, sent: bytes
) -> None:
    connection = connect()
    send(connection, sent)
    timers.elapse(HEADER_SECONDS)
    assert read_to_end(connection) == b""
    answered = connect()
    send(answered, GET)
    assert answered.recv(65536).startswith(b"HTTP/1.1 200 ")
    send(answered, b"\r\n")
    timers.elapse(HEADER_SECONDS)
    assert read_to_end(answered) == b""


def test_request_before_the_slow_one_has_its_answer_first(connect: Connect, send: Send, timers: Timers) -> None:
    connection = connect()
    send(connection, GET + GET[:9])
    good = b""
    while not good.endswith(b"}"):
        good += connection.recv(65536)
    assert good.startswith(b"HTTP/1.1 200 ")
    timers.elapse(HEADER_SECONDS)
    check_too_slow(read_to_end(connection))


def test_answered_request_whose_body_never_comes_is_closed(connect: Connect, send: Send, timers: Timers) -> None:
    connection = connect()
    send(connection, b"POST /nowhere/at/all HTTP/1.1\r\nhost: h\r\ncontent-length: 9\r\n\r\n1")
    received = connection.recv(65536)
    assert received.startswith(b"HTTP/1.1 40")
    timers.elapse(BODY_SECONDS)
    received += read_to_end(connection)
    assert received.count(b"HTTP/1.1") == 1


def test_connection_is_idle_after_a_body_that_came_late(connect: Connect, send: Send, timers: Timers) -> None:
    """Its request had an answer before, and nothing else would ever close it."""
    connection = connect()
    send(connection, b"POST /nope/jwks.json HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\n1")
    assert connection.recv(65536).startswith(b"HTTP/1.1 404 ")
    send(connection, b"2")
    timers.elapse(KEEP_ALIVE_SECONDS + KEEP_ALIVE_MARGIN)
    assert read_to_end(connection) == b""


class Accepted(NamedTuple):
    connection: socket.socket
    protocol: HttpProtocol


def accepted(shared: Instance, connect: Connect) -> Accepted:
    """A connection that has had an answer, with the server's side of it."""
    connection = connect()
    connection.sendall(GET)
    assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
    protocol = protocol_of(shared, connection)
    assert protocol is not None
    return Accepted(connection, protocol)


def test_client_that_reads_no_answers_is_cut_off(connect: Connect, shared: Instance, timers: Timers) -> None:
    held, other = accepted(shared, connect), accepted(shared, connect)
    on_loop(shared, held.protocol.pause_writing)  # as the transport does when nobody takes what it has
    on_loop(shared, other.protocol.pause_writing)
    on_loop(shared, other.protocol.resume_writing)
    other.connection.sendall(GET)
    assert other.connection.recv(65536).startswith(b"HTTP/1.1 200 ")
    keep_open(other)
    timers.elapse(UNREAD_SECONDS - 0.1)
    assert is_open(held.connection)
    timers.elapse(0.1)
    with suppress(ConnectionResetError):
        assert held.connection.recv(1) == b""
    assert is_open(other.connection)


def keep_open(*connections: Accepted) -> None:
    """Stops the timers of connections on which nothing comes, which are shorter than what the test is about."""
    for one in connections:
        one.protocol._drop_deadline()


def test_client_that_reads_slowly_is_waited_for_while_it_reads(
    connect: Connect, shared: Instance, timers: Timers, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = accepted(shared, connect)
    unread = iter([30_000, 25_000, 20_000, 15_905])  # the last step is one byte short
    monkeypatch.setattr(held.protocol.flow, "unread_bytes", lambda: next(unread))
    on_loop(shared, held.protocol.pause_writing)
    timers.elapse(3 * UNREAD_SECONDS - 0.1)
    assert is_open(held.connection)
    timers.elapse(0.1)
    with suppress(ConnectionResetError):
        assert held.connection.recv(1) == b""
    assert next(unread, None) is None


def test_what_a_client_has_not_taken_is_known_also_of_what_the_system_keeps(connect: Connect, shared: Instance) -> None:
    held = accepted(shared, connect)
    held.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    sizes: list[int] = []

    def answer() -> None:
        held.protocol.transport.write(b"x" * 8_000_000)
        sizes.extend((held.protocol.flow.unread_bytes(), held.protocol.transport.get_write_buffer_size()))

    on_loop(shared, answer)
    unread, ours = sizes
    assert 8_000_000 >= unread > ours
    on_loop(shared, held.protocol.transport.abort)
    on_loop(shared, lambda: sizes.append(held.protocol.flow.unread_bytes()))
    assert sizes[-1] >= 0


def close_idle(shared: Instance) -> None:
    """Closes the idle connections of other tests."""
    server = connections_of(shared._server.server_state, shared._server.config)

    def close() -> None:
        while server.close_idle():
            pass

    on_loop(shared, close)


@pytest.mark.parametrize(("room", "status"), [(2, b"200"), (1, b"200"), (0, b"503")])
def test_connections_are_limited(
    connect: Connect, shared: Instance, monkeypatch: pytest.MonkeyPatch, room: int, status: bytes
) -> None:
    close_idle(shared)
    kept = [connect() for _ in range(3)]
    wait_until(lambda: all(protocol_of(shared, one) for one in kept))
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


def test_idle_connection_makes_room_for_a_new_one(
    connect: Connect, shared: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that was idle for longest; one whose request has begun keeps its place."""
    close_idle(shared)
    busy, first, second = (accepted(shared, connect) for _ in range(3))
    busy.connection.sendall(GET[:9])
    wait_until(lambda: busy.protocol.state is protocol.HEAD)
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 0)
    for closed in (first, second):
        last = connect()
        last.sendall(GET)
        assert last.recv(65536).startswith(b"HTTP/1.1 200 ")
        assert read_to_end(closed.connection) == b""
        last.close()
    busy.connection.sendall(GET[9:])
    assert busy.connection.recv(65536).startswith(b"HTTP/1.1 200 ")


@pytest.fixture
def counted(shared: Instance, monkeypatch: pytest.MonkeyPatch) -> Connections:
    """The counts of the server, to which all that connect now come from one address that is not here."""
    monkeypatch.setattr(Connections, "counted_address", lambda *_: "203.0.113.9")
    monkeypatch.setattr(connections, "MAX_CONNECTIONS_PER_ADDRESS", 3)
    return connections_of(shared._server.server_state, shared._server.config)


@pytest.mark.parametrize(("before", "status"), [(1, b"200"), (2, b"200"), (3, b"429"), (5, b"429"), (6, b"")])
def test_connections_of_one_address_are_limited(
    connect: Connect, counted: Connections, timers: Timers, before: int, status: bytes
) -> None:
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


def test_idle_connection_makes_room_for_a_new_one_of_its_address(
    connect: Connect, counted: Connections, timers: Timers
) -> None:
    kept = [connect() for _ in range(3)]
    wait_until(lambda: counted._open.get("203.0.113.9") == 3)
    for one in kept[1:]:
        one.sendall(GET)
        assert one.recv(65536).startswith(b"HTTP/1.1 200 ")
    for closed in kept[1:]:
        last = connect()
        last.sendall(GET[:9])
        assert read_to_end(closed) == b""
    last = connect()
    last.sendall(GET)
    assert last.recv(65536).startswith(b"HTTP/1.1 429 ")
    assert not counted._idle_of


def test_refused_connections_leave_files_to_others(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal keeps its connection for a while; those that come too fast for that are not even told."""
    monkeypatch.setattr(protocol, "most_connections", lambda: -SPARE_FILES)
    hasty = connect()
    with suppress(ConnectionResetError):
        hasty.sendall(GET)
        assert hasty.recv(65536) == b""


def test_closed_connection_whose_answers_are_never_read_is_cut(
    connect: Connect, shared: Instance, timers: Timers
) -> None:
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
    timers.elapse(UNREAD_SECONDS - 0.1)
    assert held.protocol in shared._server.server_state.connections
    timers.elapse(0.1)
    wait_until(lambda: held.protocol not in shared._server.server_state.connections)
