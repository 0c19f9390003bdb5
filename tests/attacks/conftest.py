"""What attacks need: a server that asks public addresses only, traps for who connects, and meters of work."""

import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from payres.cli import main
from tests.helpers import child, free_of_settings
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


class Work(NamedTuple):
    """What a request costs: calls of functions on the server's thread, and instructions of SQLite's virtual machine."""

    calls: int
    steps: int


class Meter:
    """Counts the work of a server that is started with it."""

    def __init__(self) -> None:
        self._calls = self._steps = 0
        self._connect = sqlite3.connect

    def connect(self, *arguments: Any, **options: Any) -> sqlite3.Connection:
        """sqlite3.connect, whose connection counts."""
        connection: sqlite3.Connection = self._connect(*arguments, **options)
        connection.set_progress_handler(self._count_step, 1)
        return connection

    async def watch_thread(self) -> None:
        """Counts the calls of this thread from now on."""
        sys.setprofile(self._count_call)

    def least(self, ask: Callable[[], object]) -> Work:
        """The work of one request: the least of some, because what a connection brings in two pieces takes more."""
        return min(self._steady(ask) for _ in range(5))

    def _steady(self, ask: Callable[[], object]) -> Work:
        """The work of a request that was the same three times running, so with no worker in between.

        A worker on a thread of its own, as the invariant check, may be there for many requests."""
        found = [Work(0, index) for index in range(3)]
        for _ in range(300):
            before = Work(self._calls, self._steps)
            ask()
            found = [*found[1:], Work(self._calls - before.calls, self._steps - before.steps)]
            if len(set(found)) == 1:
                return found[0]
        raise AssertionError(f"no three requests in a row took the same work: {found}")

    def _count_step(self) -> None:
        self._steps += 1

    def _count_call(self, frame: FrameType, event: str, argument: object) -> None:
        self._calls += event in {"call", "c_call"}


Metered = tuple[Instance, Meter]


@pytest.fixture(scope="session")
def metered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metered]:
    """A server, and the meter of its work."""
    meter = Meter()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", meter.connect)
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
