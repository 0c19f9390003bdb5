"""The limits of connections, in total and per address, and of their buffered bytes."""

import json
import resource
import socket
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from payres.core.http import connections, protocol
from payres.core.http.connections import Connections, connections_of, most_connections, most_of_one_address
from payres.core.protocol.limits import MAX_BUFFERED_BYTES, MAX_CONNECTIONS_PER_ADDRESS, SPARE_FILES
from tests.core.http.conftest import GET, Connect, protocol_of
from tests.helpers import wait_until
from tests.instance import Instance


class Buffering:
    """A connection that buffers bytes."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.is_cut = False
        self.transport: Any = self

    def buffered_bytes(self) -> int:
        return self.size

    def abort(self) -> None:
        self.is_cut = True


def cut_of(counts: Connections, made: list[Any]) -> list[bool]:
    """Which of the connections are cut when all of them have been counted."""
    for one in made:
        counts.buffer(one, one.size)
    return [one.is_cut for one in made]


@pytest.mark.parametrize(
    ("client", "counted"),
    [
        (("203.0.113.1", 1), "203.0.113.1"),
        (("2001:db8::1", 1), "2001:db8::/64"),
        (("::ffff:203.0.113.1", 1), "203.0.113.1"),
        (("127.0.0.1", 1), None),
        (("::1", 1), None),
        (("198.51.100.7", 1), None),
        (("192.0.2.77", 1), None),
        (None, None),
    ],
)
def test_proxies_and_this_machine_are_not_counted(client: tuple[str, int] | None, counted: str | None) -> None:
    assert Connections("198.51.100.7,192.0.2.0/24").counted_address(client) == counted


@pytest.mark.parametrize(
    ("sizes", "cut"),
    [
        ([1000, MAX_BUFFERED_BYTES - 2000, 1000], [False, False, False]),
        ([1000, MAX_BUFFERED_BYTES - 2000, 1001], [True, False, False]),
        ([MAX_BUFFERED_BYTES // 10] * 10 + [MAX_BUFFERED_BYTES // 2], [True] * 5 + [False] * 6),
        ([1, MAX_BUFFERED_BYTES + 1], [True, True]),
    ],
)
def test_buffers_of_all_are_limited_and_the_oldest_are_cut(sizes: list[int], cut: list[bool]) -> None:
    assert cut_of(Connections(""), [Buffering(size) for size in sizes]) == cut


def test_what_has_been_read_meanwhile_does_not_count() -> None:
    counts, first = Connections(""), Buffering(1000)
    assert cut_of(counts, [first, Buffering(MAX_BUFFERED_BYTES - 1000)]) == [False, False]
    first.size = 0
    assert cut_of(counts, [Buffering(1000)]) == [False]
    assert not first.is_cut


@pytest.mark.parametrize(("files", "most"), [(1024, 824), (12_200, 12_000), (20_000, 12_000), (100, 1), (-1, 12_000)])
def test_connections_leave_files_to_others(monkeypatch: pytest.MonkeyPatch, files: int, most: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert most_connections() == most


@pytest.mark.parametrize(("most", "of_one"), [(12_000, MAX_CONNECTIONS_PER_ADDRESS), (824, 412), (1, 1)])
def test_one_address_never_has_all_connections(most: int, of_one: int) -> None:
    assert most_of_one_address(most) == of_one


def first_answer(connection: socket.socket) -> bytes:
    """The answer to a request; nothing when the connection was closed without one."""
    with suppress(ConnectionError):
        connection.sendall(GET)
        return connection.recv(65536)
    return b""


def check_too_many(received: bytes, code: str) -> None:
    assert b"retry-after: 1" in received.lower()
    assert json.loads(received.partition(b"\r\n\r\n")[2])["error"]["code"] == code


@pytest.mark.parametrize(("room", "status"), [(2, b"200"), (1, b"200"), (0, b"503"), (-SPARE_FILES, b"")])
def test_connections_are_limited(
    connect: Connect, shared: Instance, monkeypatch: pytest.MonkeyPatch, room: int, status: bytes
) -> None:
    """Beyond the limit each is told so for a while; those that come too fast for that are not even told."""
    kept = [connect() for _ in range(3)]
    wait_until(lambda: all(protocol_of(shared, one) for one in kept))
    # Those of other tests may be closing meanwhile: they count where there is to be room, and not where there is none.
    most = room + len(shared._server.server_state.connections) if room > 0 else len(kept) + room
    monkeypatch.setattr(protocol, "most_connections", lambda: most)
    received = first_answer(connect())
    assert received.startswith(b"HTTP/1.1 " + status if status else b"")
    assert bool(received) == bool(status)
    if status == b"503":
        check_too_many(received, "unavailable")


def test_connection_that_was_accepted_as_the_server_stops_ends_at_once(
    connect: Connect, shared: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections_of(shared._server.server_state, shared._server.config), "is_stopping", True)
    assert first_answer(connect()) == b""


@pytest.mark.usefixtures("timers")  # none that is told so is closed meanwhile
@pytest.mark.parametrize(("before", "status"), [(1, b"200"), (2, b"200"), (3, b"429"), (6, b"")])
def test_connections_of_one_address_are_limited(
    connect: Connect, shared: Instance, monkeypatch: pytest.MonkeyPatch, before: int, status: bytes
) -> None:
    """Twice as many are too many to be told so."""
    counts = connections_of(shared._server.server_state, shared._server.config)
    monkeypatch.setattr(Connections, "counted_address", lambda *_: "203.0.113.9")
    monkeypatch.setattr(connections, "MAX_CONNECTIONS_PER_ADDRESS", 3)
    with ExitStack() as others:
        for _ in range(before):
            others.enter_context(connect())
        wait_until(lambda: counts._open == {"203.0.113.9": before})
        received = first_answer(others.enter_context(connect()))
        assert received.startswith(b"HTTP/1.1 " + status if status else b"")
        assert bool(received) == bool(status)
        if status == b"429":
            check_too_many(received, "too_many_requests")
    wait_until(lambda: not counts._open)
    assert first_answer(connect()).startswith(b"HTTP/1.1 200 ")
