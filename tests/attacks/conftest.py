"""What attacks need: a server that asks public addresses only, traps for who connects, and meters of work."""

import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, suppress
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from payres.cli import main
from payres.core.http.protocol import HttpProtocol
from tests.helpers import ROOT, child, free_of_settings, settle
from tests.instance import Instance, run_instance


class Trap:
    """Takes connections at one port of each address of 127.0.0.0/8, and never answers. `close` hangs up on all."""

    def __init__(self) -> None:
        self.taken: list[socket.socket] = []
        self._listener = socket.create_server(("0.0.0.0", 0), backlog=512)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._take, daemon=True).start()

    def origin(self, number: int) -> str:
        return f"http://127.0.{1 + number // 200}.{1 + number % 200}:{self.port}"

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self.taken:
            connection.close()

    def _take(self) -> None:
        with suppress(OSError):
            while True:
                self.taken.append(self._listener.accept()[0])


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """A server set up for the open net: it asks https and public addresses only."""
    with run_instance(tmp_path_factory.mktemp("guarded") / "payres.db", allow_private_hosts=False) as instance:
        yield instance


@pytest.fixture(scope="session")
def trap() -> Iterator[Trap]:
    """Where nobody should ever connect."""
    with closing(Trap()) as trap:
        yield trap


PASSWORD = "correct horse battery"
SOURCE = str(ROOT / "payres")


class Work(NamedTuple):
    """What a request costs: calls of functions of payres, and instructions of SQLite's virtual machine."""

    calls: int
    steps: int


class Meter:
    """Counts the work of requests to a server that is started with it, and of nothing else that the server does."""

    def __init__(self) -> None:
        self._calls = self._steps = 0
        self._connect = sqlite3.connect
        self._is_request = ContextVar("is_request", default=False)  # tasks inherit it

    def connect(self, *arguments: Any, **options: Any) -> sqlite3.Connection:
        """sqlite3.connect, whose connection counts."""
        connection: sqlite3.Connection = self._connect(*arguments, **options)
        connection.set_progress_handler(self._count_step, 1)
        return connection

    def of_request(self, method: Callable[..., None]) -> Callable[..., None]:
        """A method of connections, all that comes of which counts."""

        @wraps(method)
        def counted(*arguments: Any) -> None:
            before = self._is_request.set(True)
            method(*arguments)
            self._is_request.reset(before)

        return counted

    async def watch_thread(self) -> None:
        """Counts the calls of this thread from now on."""
        sys.setprofile(self._count_call)

    def work(self, instance: Instance, ask: Callable[[], object]) -> Work:
        """The work of one request, when one before has filled the caches."""
        before = Work(0, 0)
        for _ in range(2):
            before = Work(self._calls, self._steps)
            ask()
            instance._server.call(settle())  # what it does after its answer
        return Work(self._calls - before.calls, self._steps - before.steps)

    def _count_step(self) -> None:
        self._steps += self._is_request.get()

    def _count_call(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(SOURCE) and self._is_request.get():
            self._calls += 1


Metered = tuple[Instance, Meter]


@pytest.fixture(scope="module")
def metered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metered]:
    """A server, and the meter of its work, which is also called for each step of every other database opened now."""
    meter = Meter()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", meter.connect)
        for name in ("connection_made", "data_received"):
            patch.setattr(HttpProtocol, name, meter.of_request(getattr(HttpProtocol, name)))
        with run_instance(tmp_path_factory.mktemp("metered") / "payres.db") as instance:
            instance._server.call(meter.watch_thread())
            yield instance, meter


def process(*arguments: str) -> AbstractContextManager["subprocess.Popen[str]"]:
    """A `payres` command in a process of its own, without a terminal and without settings from the environment."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "payres", *arguments]
    return child(command, env=free_of_settings(), stdin=pipe, stdout=pipe, stderr=pipe)


def with_alice(folder: Path) -> str:
    """A new database with a wallet."""
    database = str(folder / "payres.db")
    opening = ["wallet", "create", "alice", "--asset", "USD", "--scale", "2", "--create", "--database", database]
    assert CliRunner().invoke(main, opening).exit_code == 0
    return database
