"""`payres backup` and `payres restore` beside a `payres serve` that is paid through without a pause.

CRASH_BACKUPS prolongs the series.
"""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import monotonic

from payres.testing.client import Client
from tests.crash.test_kill import PATIENCE_SECONDS, SERVE, TABLES, Creation, Deployment, Journal, paying
from tests.crash.test_kill import deployment as deployment
from tests.crash.test_kill import journal as journal
from tests.crash.test_kill import shop as shop

BACKUPS = int(os.environ.get("CRASH_BACKUPS", "2"))
PAYRES = (sys.executable, "-m", "payres")


@dataclass
class Taken:
    """A backup, and the moments between which it was made."""

    path: Path
    began: float
    ended: float


def payres(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a command as a program of its own, as an operator does."""
    command = (*PAYRES, *arguments)
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)


def take(folder: Path, number: int) -> Taken:
    path, began = folder / f"backup-{number}.db", monotonic()
    finished = payres("backup", str(path), "--json")
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout)["backup"] == str(path)
    return Taken(path, began, monotonic())


def test_backups_of_a_busy_server_hold_what_was_acknowledged_and_fail_no_payment(
    deployment: Deployment, journal: Journal, tmp_path: Path
) -> None:
    with paying(journal, Random(1)):  # where a payment that is not answered 201 fails the test
        try:
            journal.wait_for_answers(20)
            backups = [take(tmp_path, number) for number in range(BACKUPS)]
            journal.wait_for_answers(20)
            deployment.signal(signal.SIGTERM)
            assert deployment.wait() == 0
        finally:
            deployment.kill()
    payments = [one for one in journal.creations if one.path in TABLES]
    for backup in backups:
        stored = {path: journal.stored(path, backup.path) for path in TABLES}

        def is_there(one: Creation) -> bool:
            return one.body["metadata"]["number"] in stored[one.path]  # noqa: B023 - used in this turn alone

        answered_before = [one for one in payments if one.answered_at is not None and one.answered_at < backup.began]
        assert answered_before
        assert all(map(is_there, answered_before))
        assert not any(map(is_there, (one for one in payments if one.asked_at > backup.ended)))
    assert not list(tmp_path.glob("*.partial"))


def test_restored_server_goes_on_from_the_backup(
    deployment: Deployment, journal: Journal, shop: Client, tmp_path: Path
) -> None:
    journal.pay(journal.quote(100))
    journal.wait_until_all_ended()
    backup = take(tmp_path, 0).path
    deployment.command("wallet", "withdraw", "bob", "1.00")
    refused = payres("restore", str(backup))
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == f"Error: A payres serves {deployment.database} or restores it: stop that one first\n"

    deployment.signal(signal.SIGTERM)
    assert deployment.wait() == 0
    restored = deployment.command("restore", str(backup))
    assert restored["source"] == str(backup)
    deployment.start()
    assert deployment.balance("bob") == (100, 0)
    journal.check()
    journal.pay(journal.quote(200))
    journal.check()
    kept = deployment.command("wallet", "show", "bob", "--database", restored["replaced"])
    assert kept["balance"] == "0.00"


def test_second_server_on_the_database_is_refused_until_the_first_is_gone(deployment: Deployment) -> None:
    refused = subprocess.run((*SERVE, "--port", "0"), capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == f"Error: A payres serves {deployment.database} or restores it: stop that one first\n"
    deployment.kill()
    deployment.start()


def test_backup_that_is_killed_leaves_no_backup(deployment: Deployment, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    with subprocess.Popen((*PAYRES, "backup", str(folder / "backup.db"))) as process:
        while process.poll() is None and not list(folder.iterdir()):
            pass
        process.kill()
    found = [file.name for file in folder.iterdir()]
    assert found
    assert all(name == "backup.db" or name.endswith(".partial") for name in found)
    assert payres("backup", "--force", str(folder / "backup.db")).returncode == 0
    assert deployment.command("ledger", "check", "--database", str(folder / "backup.db"))["ok"]
