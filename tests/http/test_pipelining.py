"""Requests that come ahead of answers, answers that nobody reads, and clients that finish sending."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import NamedTuple, cast
from urllib.parse import urlsplit

import pytest

from payres.http import connections
from payres.http.connections import connections_of
from payres.http.protocol import UNSENT_BYTES, HttpProtocol, State
from payres.testing.instance import Instance
from tests.helpers import TIMEOUT, read_to_end, wait_until

GET = b"GET /healthz HTTP/1.1\r\nhost: h\r\n\r\n"
LAST = GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
POST = b"POST /quotes HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n"
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
        protocols = cast(set[HttpProtocol], shared._server.server_state.connections)
        protocol = next(one for one in protocols.copy() if one.client == connection.getsockname())
        protocol.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return Held(connection, protocol)

    with ExitStack() as opened:
        yield lambda: open_one(opened)


@pytest.fixture
def queued(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many requests wait each time that one has been read."""
    found: list[int] = []
    read: Callable[[HttpProtocol], None] = HttpProtocol.on_headers_complete

    def record(protocol: HttpProtocol) -> None:
        read(protocol)
        found.append(len(protocol.pipeline))

    monkeypatch.setattr(HttpProtocol, "on_headers_complete", record)
    return found


def statuses(received: bytes) -> list[int]:
    return [int(part[:3]) for part in received.split(b"HTTP/1.1 ")[1:]]


def send(connection: socket.socket, data: bytes, *, finishes: bool = False) -> threading.Thread:
    """Sends while the caller reads."""

    def run() -> None:
        with suppress(OSError):
            connection.sendall(data)
            if finishes:
                connection.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.parametrize("mix", [[GET], [STRANGE], [CHUNKED, GET], [GET, STRANGE, CHUNKED]])
def test_pipelined_requests_are_answered_in_order_and_read_one_at_a_time(
    connect: Connect, queued: list[int], mix: list[bytes]
) -> None:
    held, rounds = connect(), 1500 // len(mix)
    queued.clear()
    sender = send(held.connection, b"".join(mix * rounds) + LAST)
    received = read_to_end(held.connection)
    sender.join()
    assert statuses(received) == [200 if request is GET else 401 for request in mix] * rounds + [200]
    assert len(queued) == len(mix) * rounds + 1
    assert max(queued) == 0


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_requests_in_pieces_of_any_size_are_read_one_at_a_time(
    connect: Connect, shared: Instance, queued: list[int], size: int
) -> None:
    """Wherever a read ends, in the middle of what ends a section too: nothing of the next request is parsed early."""
    held, mix = connect(), [STRANGE, GET, CHUNKED, GET]
    queued.clear()

    async def receive(piece: bytes) -> None:
        held.protocol.data_received(piece)

    sent = b"".join(mix) + LAST
    for start in range(0, len(sent), size):
        wait_until(lambda: held.protocol.state is not State.ANSWER)
        shared._server.call(receive(sent[start : start + size]))
    assert statuses(read_to_end(held.connection)) == [200 if request is GET else 401 for request in mix] + [200]
    assert queued == [0] * (len(mix) + 1)


def test_requests_without_end_take_no_more_memory(connect: Connect, shared: Instance, queued: list[int]) -> None:
    held = connect()
    sender = send(held.connection, GET * 100_000)
    received, most = b"", 0
    while len(received) < 250_000:
        received += held.connection.recv(65536)
        most = max(most, held.protocol.buffered_bytes())
    assert UNSENT_BYTES < most <= READ_BYTES + 2 * UNSENT_BYTES
    assert max(queued) == 0
    held.connection.shutdown(socket.SHUT_RDWR)
    sender.join()
    wait_until(lambda: held.protocol not in shared._server.server_state.connections)
    assert held.protocol.buffered_bytes() <= UNSENT_BYTES


def clog(held: Held, shared: Instance) -> None:
    """Sends requests until the server waits for its answers to be read."""
    counts = connections_of(shared._server.server_state, shared._server.config)
    held.connection.sendall(GET * 2000)
    wait_until(lambda: held.protocol.flow.write_paused and held.protocol in counts._buffers)


def look_again(held: Held, shared: Instance) -> None:
    async def look() -> None:
        connections_of(shared._server.server_state, shared._server.config).buffer(held.protocol)

    shared._server.call(look())


def test_client_that_reads_late_gets_all_answers(connect: Connect, shared: Instance) -> None:
    held = connect()
    clog(held, shared)
    assert held.protocol.transport.get_write_buffer_size() < 2 * UNSENT_BYTES, "no request is begun meanwhile"
    held.connection.sendall(LAST)
    assert statuses(read_to_end(held.connection)) == [200] * 2001


def test_unread_answers_of_all_are_limited(connect: Connect, shared: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has left them longest loses them; who reads is served."""
    first, second, other = connect(), connect(), connect()
    clog(first, shared)
    clog(second, shared)
    together = first.protocol.buffered_bytes() + second.protocol.buffered_bytes()
    monkeypatch.setattr(connections, "MAX_BUFFERED_BYTES", together)
    look_again(second, shared)
    assert not first.protocol.transport.is_closing()
    monkeypatch.setattr(connections, "MAX_BUFFERED_BYTES", together - 1)
    look_again(second, shared)
    wait_until(lambda: first.protocol not in shared._server.server_state.connections)
    with suppress(ConnectionResetError):
        read_to_end(first.connection)
    other.connection.sendall(LAST)
    assert statuses(read_to_end(other.connection)) == [200]
    second.connection.sendall(LAST)
    assert statuses(read_to_end(second.connection)) == [200] * 2001


def test_nothing_is_counted_any_more_when_connections_have_ended(connect: Connect, shared: Instance) -> None:
    counts = connections_of(shared._server.server_state, shared._server.config)
    read, hung_up = connect(), connect()
    clog(read, shared)
    clog(hung_up, shared)
    read.connection.sendall(LAST)
    read_to_end(read.connection)
    hung_up.connection.close()
    wait_until(lambda: not counts._buffers)
    assert counts._total == 0


@pytest.mark.parametrize("count", [1, 2, 300])
@pytest.mark.parametrize("request_", [GET, STRANGE, CHUNKED])
def test_client_that_finishes_sending_gets_its_answers(connect: Connect, request_: bytes, count: int) -> None:
    held = connect()
    sender = send(held.connection, request_ * count, finishes=True)
    received = read_to_end(held.connection)
    sender.join()
    assert statuses(received) == [200 if request_ is GET else 401] * count


@pytest.mark.usefixtures("timers")  # no time passes, so nothing is waited for
@pytest.mark.parametrize(
    ("sent", "answered"),
    [
        (b"", []),
        (GET[:10], []),
        (POST + b"content-length: 10\r\n\r\n{}", []),
        (GET + GET[:10], [200]),
        (GET + POST + b"content-length: 10\r\n\r\n{}", [200]),
        (CHUNKED + POST + b"content-length: 10\r\n\r\n{}", [401]),
        (GET + b"garbage\r\n\r\n", [200, 400]),
        (b"garbage\r\n\r\n", [400]),
    ],
)
def test_what_a_client_leaves_unfinished_is_not_answered(
    connect: Connect, shared: Instance, sent: bytes, answered: list[int]
) -> None:
    held = connect()
    held.connection.sendall(sent)
    held.connection.shutdown(socket.SHUT_WR)
    assert statuses(read_to_end(held.connection)) == answered
    wait_until(lambda: held.protocol not in shared._server.server_state.connections)
