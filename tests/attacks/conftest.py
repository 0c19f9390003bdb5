"""What attacks need: a server that asks public addresses only, a trap that notes who connects, and raw connections."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from payres.testing.instance import Instance, run_instance


class Trap:
    """A port on the loopback interface where nobody should ever connect."""

    def __init__(self) -> None:
        self.visits = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._watch, daemon=True).start()

    def close(self) -> None:
        # Closing alone does not wake a thread that is in accept().
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _watch(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.visits += 1
                connection.close()


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """A server set up for the open net: it asks https and public addresses only."""
    with run_instance(tmp_path_factory.mktemp("guarded") / "payres.db", allow_private_hosts=False) as instance:
        yield instance


@pytest.fixture(scope="session")
def trap() -> Iterator[Trap]:
    found = Trap()
    yield found
    found.close()


Exchange = Callable[[bytes], list[Answer]]


@pytest.fixture
def exchange(shared: Instance) -> Exchange:
    """Sends bytes, and reads answers until the server hangs up, which the last request had better ask it to do."""
    address = urlsplit(shared.base_url)

    def send(sent: bytes) -> list[Answer]:
        with socket.create_connection((address.hostname, address.port), timeout=10) as connection:
            with suppress(BrokenPipeError, ConnectionResetError):  # what is refused need not be read to its end
                connection.sendall(sent)
            return answers(b"".join(iter(lambda: connection.recv(65536), b"")))

    return send


def answers(received: bytes) -> list[Answer]:
    """The answers on a connection, in turn; each says how long it is."""
    found = []
    while received:
        head, _, received = received.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        length = int(headers.get("content-length", "0"))
        found.append(Answer(int(status.split(" ")[1]), headers, received[:length]))
        received = received[length:]
    return found


def process(*arguments: str) -> "subprocess.Popen[str]":
    """A `payres` command in a process of its own, without a terminal and without settings from the environment."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PAYRES_")}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "payres", *arguments]
    return subprocess.Popen(
        command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    )
