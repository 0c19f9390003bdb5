"""Many connections that are held open by doing next to nothing, while others want to be served.

SLOW_CONNECTIONS says how many; 10000 takes a while, and a machine that lets a process open as many files.
"""

import os
import resource
import select
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from payres.core.protocol.limits import SPARE_FILES
from tests.attacks.conftest import Metered, process, with_alice
from tests.helpers import TIMEOUT, announced, read_to_end, wait_until

SLOW_CONNECTIONS = int(os.environ.get("SLOW_CONNECTIONS", "500"))
REQUEST = b"GET /alice HTTP/1.1\r\nhost: h\r\n\r\n"
LAST = b"GET /alice HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n"
HEAD = b"POST /quotes HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n"
BEGINNINGS = [
    b"",
    b"G",
    b"GET /alice HTTP/1.1\r\nhost: h\r\nx-slow: ",
    HEAD + b"content-length: 1000\r\n\r\n{",
    HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\n",
    REQUEST + b"GET /alice HTTP/1.1\r\n",
]


@pytest.fixture
def files_enough() -> Iterator[None]:
    """Leave to open as many files as there will be connections, here and in the server."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = SLOW_CONNECTIONS + 2 * SPARE_FILES
    if hard != resource.RLIM_INFINITY and wanted > hard:
        pytest.skip(f"a process may open {hard} files here, and SLOW_CONNECTIONS wants {wanted}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def address(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """A server in a process of its own, with a wallet; its arguments tell nothing that is a secret."""
    database = with_alice(tmp_path)
    with process("serve", "--port", "0", "--json", "--quiet", "--database", database) as server:
        parts = urlsplit(announced(server)["baseUrl"])
        assert parts.hostname is not None
        assert parts.port is not None
        yield parts.hostname, parts.port


def connect(address: tuple[str, int]) -> socket.socket:
    return socket.create_connection(address, timeout=TIMEOUT)


def ask(address: tuple[str, int]) -> bytes:
    """The answer to one request on a connection of its own."""
    with connect(address) as connection:
        connection.sendall(LAST)
        return read_to_end(connection)


def open_slowly(opened: ExitStack, address: tuple[str, int], count: int) -> list[socket.socket]:
    """Connections on which something has begun."""
    slow = [opened.enter_context(connect(address)) for _ in range(count)]
    for number, connection in enumerate(slow):
        connection.sendall(BEGINNINGS[number % len(BEGINNINGS)])
    return slow


def turned_away(connections: list[socket.socket]) -> int:
    """How many of the connections were answered that they are too many."""
    poll = select.poll()
    by_number = {connection.fileno(): connection for connection in connections}
    for number in by_number:
        poll.register(number, select.POLLIN)
    found = 0
    for number, _ in poll.poll(0):
        with suppress(ConnectionError):
            found += by_number[number].recv(65536).startswith(b"HTTP/1.1 503 ")
    return found


@pytest.mark.usefixtures("files_enough")
@pytest.mark.skipif(sys.platform == "win32", reason="limits of open files are those of POSIX")
def test_slow_connections_keep_nobody_from_being_answered(address: tuple[str, int]) -> None:
    with ExitStack() as opened:
        slow = open_slowly(opened, address, SLOW_CONNECTIONS)
        for _ in range(60):
            assert ask(address).startswith(b"HTTP/1.1 200 ")
        assert turned_away(slow) == 0


def test_slow_connections_make_no_work_for_the_others(metered: Metered) -> None:
    """A request takes as many steps among them as alone, and so as much time."""
    instance, meter = metered
    parts = urlsplit(instance.base_url)
    address = str(parts.hostname), int(parts.port or 0)
    alone = meter.work(instance, lambda: ask(address))
    with ExitStack() as opened:
        open_slowly(opened, address, 100)
        wait_until(lambda: len(instance._server.server_state.connections) >= 100)
        assert ask(address).startswith(b"HTTP/1.1 200 ")
        among = meter.work(instance, lambda: ask(address))
    assert alone.calls > 100
    assert among.calls < alone.calls + 15
    assert among.steps < alone.steps + 25
