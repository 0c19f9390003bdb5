"""Many connections that are held open by doing next to nothing, while others want to be served.

SLOW_CONNECTIONS says how many; 10000 takes a while, and a machine that lets a process open as many files.
"""

import json
import os
import resource
import select
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from time import perf_counter
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from payres.cli import main
from payres.limits import SPARE_FILES
from tests.attacks.conftest import process

SLOW_CONNECTIONS = int(os.environ.get("SLOW_CONNECTIONS", "500"))
REQUEST = b"GET /alice HTTP/1.1\r\nhost: h\r\n\r\n"
HEAD = b"POST /quotes HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n"
BEGINNINGS = [
    b"",
    b"G",
    b"GET /alice HTTP/1.1\r\nhost: h\r\nx-slow: ",
    HEAD + b"content-length: 1000\r\n\r\n{",
    HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\n",
    REQUEST + b"GET /alice HTTP/1.1\r\n",
]
SAMPLES = 60


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
    database = str(tmp_path / "payres.db")
    opening = ["wallet", "create", "alice", "--asset", "USD", "--scale", "2", "--database", database]
    assert CliRunner().invoke(main, opening).exit_code == 0
    with process("serve", "--port", "0", "--json", "--database", database) as server:
        try:
            assert server.stdout is not None
            announced = json.loads("".join(iter(server.stdout.readline, "}\n")) + "}")
            parts = urlsplit(announced["baseUrl"])
            assert parts.hostname is not None
            assert parts.port is not None
            yield parts.hostname, parts.port
        finally:
            server.kill()


def ask(connection: socket.socket) -> bytes:
    """The answer to one request on a connection that stays open."""
    connection.sendall(REQUEST)
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65536)
    head, _, body = received.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(65536)
    return head


def latencies(connection: socket.socket) -> list[float]:
    """Seconds for each of some requests, the quickest first."""
    found = []
    for _ in range(SAMPLES):
        began = perf_counter()
        assert ask(connection).startswith(b"HTTP/1.1 200 ")
        found.append(perf_counter() - began)
    return sorted(found)


def turned_away(connections: list[socket.socket]) -> int:
    """How many of the connections have been told that they are too many."""
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
def test_slow_connections_do_not_slow_the_others_down(address: tuple[str, int]) -> None:
    with ExitStack() as opened:
        regular = opened.enter_context(socket.create_connection(address, timeout=20))
        alone = latencies(regular)
        slow = []
        for number in range(SLOW_CONNECTIONS):
            connection = opened.enter_context(socket.create_connection(address, timeout=20))
            slow.append(connection)
            connection.sendall(BEGINNINGS[number % len(BEGINNINGS)])
            if number % 100 == 0:
                ask(regular)  # so that it does not count as idle, however long it takes to open the others
        among = latencies(regular)
        # The median and one of the slowest, with room for whatever else the machine does.
        assert among[SAMPLES // 2] < 5 * alone[SAMPLES // 2] + 0.01
        assert among[SAMPLES * 9 // 10] < 5 * alone[SAMPLES * 9 // 10] + 0.05
        with socket.create_connection(address, timeout=20) as newcomer:
            assert ask(newcomer).startswith(b"HTTP/1.1 200 ")
        assert turned_away(slow) == 0
