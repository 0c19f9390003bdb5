"""Storage that fails under load: what gets a 503 has changed nothing, and all goes on when the fault is over.

The load is real and so is the server; the disk is one that fails on demand (`storage_fault.c`), a small one that is
filled, or one that another program has locked. FAULT_SECONDS prolongs the faults, FAULT_ROUNDS the series of them, and
FAULT_SEED draws the work again that a failure names.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from time import sleep
from typing import Any

import httpx2
import pytest

from tests.crash import load
from tests.crash.conftest import Compile
from tests.crash.load import UNLIMITED, Load, drawn_by
from tests.crash.serve import serve, serve_impatient
from tests.crash.server import SERVE, Server
from tests.crash.told import check_told
from tests.helpers import TIMEOUT, wait_until
from tests.webhooks.endpoint import Endpoint

SECONDS = float(os.environ.get("FAULT_SECONDS", "0"))
ROUNDS = int(os.environ.get("FAULT_ROUNDS", "1"))
ALL = "FAULT_ROUNDS" in os.environ
CLIENTS = 16 if ALL else 4
DEATHS = 20 * ROUNDS if ALL else 2
WAYS = [(word, end) for word in ("sync", "full", "read-only") for end in ("mended", "killed")]
DISK_BYTES = 80 * 1024 * 1024  # more than has to be free for a server to be ready
HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=20, isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""

pytestmark = pytest.mark.timeout(300 + ROUNDS * (60 + 3 * SECONDS))


@pytest.fixture(scope="module")
def failing_disk(compiled: Compile) -> Path:
    """The library that makes the calls of a process fail."""
    return compiled("storage_fault.c")


@pytest.fixture
def server(tmp_path: Path) -> Server:
    """Not started, with a folder of its own, which may be mounted."""
    return Server(tmp_path / "served", UNLIMITED, serve if ALL else serve_impatient)


class Fault:
    """What is wrong with the storage of a server, from `begin` to `end`."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def begin(self) -> None: ...

    def end(self) -> None: ...


class FailingDisk(Fault):
    """Calls of the operating system fail with the error of a word in `storage_fault.c`."""

    def __init__(self, server: Server, library: Path, word: str) -> None:
        super().__init__(server)
        self._word = word
        self._said = server.folder / "fault"
        server.variables |= {"LD_PRELOAD": str(library), "STORAGE_FAULT": str(self._said)}

    def begin(self) -> None:
        self._said.with_suffix(".new").write_text(self._word)
        self._said.with_suffix(".new").rename(self._said)

    def end(self) -> None:
        self._said.unlink(missing_ok=True)


class FullDisk(Fault):
    """Something else has filled the disk."""

    def begin(self) -> None:
        with (self.server.folder / "other").open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(64 * 1024))

    def end(self) -> None:
        (self.server.folder / "other").unlink(missing_ok=True)


class Locked(Fault):
    """Another program writes to the database and does not come to an end."""

    def begin(self) -> None:
        command = [sys.executable, "-c", HOLD, str(self.server.database)]
        self._holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == "held\n"

    def end(self) -> None:
        self._holder.communicate("")


@pytest.mark.parametrize(("word", "end"), WAYS if ALL else [("sync", "mended"), ("read-only", "killed")])
def test_failing_disk(
    word: str, end: str, server: Server, endpoint: Endpoint, failing_disk: Path, record_property: Any
) -> None:
    fault = FailingDisk(server, failing_disk, word)
    record_property("events", go_through(fault, endpoint, killed=end == "killed"))


def test_death_at_any_call_that_changes_the_files_keeps_every_answer(
    server: Server, endpoint: Endpoint, failing_disk: Path, record_property: Any
) -> None:
    """Between two writes of a commit, before it is confirmed, in a checkpoint: wherever the draw falls."""
    prepare(server, endpoint)
    server.start()
    with drawn_by("FAULT_SEED") as chance, closing(Load(server, chance, [], CLIENTS)) as at_work:
        for _ in range(DEATHS):
            server.kill()
            disk = FailingDisk(server, failing_disk, f"die {chance.randint(1, 60)}")
            server.start()
            with at_work.running():
                at_work.wait_for_answers(chance.randint(1, 40))
                disk.begin()
                assert server.wait() == -signal.SIGKILL
            disk.end()
            server.start()
            at_work.check()
        record_property("events", check_told(server, endpoint))


def test_what_was_refused_for_a_failing_fsync_is_not_there_after_a_kill(
    server: Server, endpoint: Endpoint, failing_disk: Path
) -> None:
    """The log may hold such a commit whole; whoever opens the database next must not take it for one."""
    fault = FailingDisk(server, failing_disk, "sync")
    server.open_wallet("bob", "USD")
    server.open_client("shop")
    server.command("webhook", "add", endpoint.url, "--private")
    server.start()
    with closing(server.client()) as shop:
        bob = server.wallet("bob")
        token = shop.grant({"type": "incoming-payment", "actions": ["create"], "identifier": bob})
        fault.begin()
        refused = shop.post("/incoming-payments", {"walletAddress": bob}, token)
        assert refused.status_code == 503
        assert "nothing was changed" in refused.json()["error"]["details"]["hint"]
        server.kill()
        fault.end()
        server.start()
        assert server.select("SELECT count(*) FROM incoming_payment") == [(0,)]
        assert shop.post("/incoming-payments", {"walletAddress": bob}, token).status_code == 201
    check_told(server, endpoint)


def test_full_disk(server: Server, endpoint: Endpoint, record_property: Any) -> None:
    with small_disk(server.folder):
        record_property("events", go_through(FullDisk(server), endpoint, killed=False))
        server.kill()


def test_start_on_a_disk_that_became_read_only_is_refused_in_a_sentence(server: Server) -> None:
    with small_disk(server.folder):
        server.open_wallet("bob", "USD")
        remount(server.folder, "ro")
        assert server.refuses_to(*SERVE).startswith("Error: ")
        remount(server.folder, "rw")
        server.start()
        assert ready(server)
        server.kill()


def test_database_locked_by_another_program(server: Server, endpoint: Endpoint, record_property: Any) -> None:
    record_property("events", go_through(Locked(server), endpoint, killed=False))


def prepare(server: Server, endpoint: Endpoint) -> None:
    """Everything for the load, and a webhook."""
    load.prepare(server, CLIENTS)
    server.command("webhook", "add", endpoint.url, "--private")


def go_through(fault: Fault, endpoint: Endpoint, *, killed: bool) -> int:
    """The fault under load: refusals that say so, no lost answer, nothing of what was refused, and all well after;
    returns of how many events the webhook was told."""
    server = fault.server
    prepare(server, endpoint)
    server.start()
    with drawn_by("FAULT_SEED") as chance, closing(Load(server, chance, [], CLIENTS, tolerant=True)) as at_work:
        for _ in range(ROUNDS):
            with at_work.running(), ExitStack() as stack:
                at_work.wait_for_answers(chance.randint(20, 60))
                assert ready(server)
                at_work.faulty.set()
                stack.callback(at_work.faulty.clear)
                fault.begin()
                stack.callback(fault.end)
                live_through(fault, at_work, killed)
            if killed:
                server.start()
            at_work.check()
        assert at_work.figures["answers 503"]
        print(dict(at_work.figures))  # noqa: T201 - pytest -s shows what a series has done
        return check_told(server, endpoint)


def live_through(fault: Fault, at_work: Load, killed: bool) -> None:
    """From the first refusals of a fault to its end, and until the load goes on as before; or to the server's end."""
    server = fault.server
    for _ in range(CLIENTS):
        assert at_work.unavailable.acquire(timeout=TIMEOUT), "the fault is not felt"
    assert get(server, "/healthz").json() == {"status": "ok"}  # it lives, and what is stored can be read
    wait_until(lambda: not ready(server), "the server says that it is ready, and is not")
    assert get(server, "/readyz").json()["reason"]
    assert get(server, "/alice").status_code == 200
    sleep(SECONDS)
    if killed:
        server.signal(signal.SIGKILL)
        assert server.wait() == -signal.SIGKILL
    fault.end()
    at_work.faulty.clear()
    if not killed:
        wait_until(lambda: ready(server), "the server does not recover")
        at_work.wait_for_answers(60)


def ready(server: Server) -> bool:
    """Whether the server says that it takes payments."""
    answer = get(server, "/readyz")
    assert answer.status_code in {200, 503}
    return answer.status_code == 200


def get(server: Server, path: str) -> httpx2.Response:
    return httpx2.get(server.base_url + path, timeout=TIMEOUT, verify=False)


def remount(folder: Path, way: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{way}", str(folder)], check=True)


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A disk of its own for a folder, with little room; skips the test where that is not allowed."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "payres", str(folder)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"a small disk needs root: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
