"""`payres backup` and `payres restore` beside a `payres serve` that is paid through without a pause.

CRASH_BACKUPS prolongs the series.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

import pytest

from payres.core.protocol.clock import SECOND
from payres.core.store.connections import connect_writer
from payres.operator.upkeep.backup_and_restore import BackupError, make_backup, restore_backup
from payres.operator.wallets import create_wallet, deposit
from tests.crash.conftest import Compile
from tests.crash.load import TABLES, Asked, Load
from tests.crash.server import PAYRES, Server
from tests.helpers import child
from tests.works import work_at

BACKUPS = int(os.environ.get("CRASH_BACKUPS", "2"))
NOW = 1_767_225_600 * SECOND
IN_BACKUP, IN_DATABASE = 1000, 1500


@dataclass
class Taken:
    """A backup, and the moments between which it was made."""

    path: Path
    began: float
    ended: float


def take(server: Server, number: int) -> Taken:
    path, began = server.folder / f"backup-{number}.db", monotonic()
    finished = server.run("backup", str(path), "--json")
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout)["backup"] == str(path)
    return Taken(path, began, monotonic())


def test_backups_of_a_busy_server_hold_what_was_acknowledged_and_fail_no_payment(server: Server, payers: Load) -> None:
    with payers.running():  # where a payment that is not answered 201 fails the test
        payers.wait_for_answers(20)
        backups = [take(server, number) for number in range(BACKUPS)]
        payers.wait_for_answers(20)
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
    payments = payers.payments()
    for backup in backups:
        stored = {path: payers.stored(path, backup.path) for path in TABLES}

        def is_there(one: Asked) -> bool:
            return one.number in stored[one.path]  # noqa: B023 - used in this turn alone

        answered_before = [one for one in payments if one.answered_at is not None and one.answered_at < backup.began]
        assert answered_before
        assert all(map(is_there, answered_before))
        assert not any(map(is_there, (one for one in payments if one.asked_at > backup.ended)))
    assert not list(server.folder.glob("*.partial"))


def test_restored_server_goes_on_from_the_backup(server: Server, payers: Load) -> None:
    shopper = payers.shoppers[0]
    shopper.buy(100)
    backup = str(take(server, 0).path)
    server.command("wallet", "withdraw", "bob", "1.00")
    served = f"Error: A payres serves {server.database} or restores it: stop that one first\n"
    assert server.refuses_to("restore", backup) == served
    server.stop()
    restored = server.command("restore", backup)
    assert restored["source"] == backup
    server.start()
    assert server.balance("bob") == (100, 0)
    payers.check()
    shopper.buy(200)
    payers.check()
    kept = server.command("wallet", "show", "bob", "--database", restored["replaced"])
    assert kept["balance"] == "0.00"


def test_backup_that_is_killed_leaves_no_backup(server: Server) -> None:
    folder = server.folder / "backups"
    folder.mkdir()
    with child((*PAYRES, "backup", str(folder / "backup.db")), env=server.environment) as process:
        while process.poll() is None and not list(folder.iterdir()):
            pass
        process.kill()
    found = [file.name for file in folder.iterdir()]
    assert found
    assert all(name == "backup.db" or ".partial" in name for name in found), "and side files of the copy"
    assert server.run("backup", "--force", str(folder / "backup.db")).returncode == 0
    assert server.command("ledger", "check", "--database", str(folder / "backup.db"))["ok"]


def balance(database: Path) -> int:
    """What alice has; the file and its log are those that the next server would find."""
    with closing(connect_writer(str(database))) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return int(connection.execute("SELECT balance FROM account WHERE kind = 'wallet'").fetchone()[0])


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory, where there is one: many fsyncs take their time, and what dies here is but a process."""
    shared = Path("/dev/shm")
    with TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as folder:
        yield Path(folder)


@pytest.fixture
def template(memory: Path) -> Path:
    """A folder with a database that was not closed: what was deposited after the backup is in the log alone."""
    used, template = memory / "used", memory / "template"
    template.mkdir()
    with closing(connect_writer(str(used / "payres.db"))) as connection:
        work = work_at(connection, NOW)
        create_wallet(work, "alice", "USD", 2, None, None)
        deposit(work, "alice", "10.00")
        make_backup(used / "payres.db", memory / "backup.db", False, NOW)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        deposit(work, "alice", "5.00")
        for name in ("payres.db", "payres.db-wal"):
            shutil.copyfile(used / name, template / name)
    return template


@pytest.fixture
def deaths(template: Path, memory: Path, compiled: Compile, request: pytest.FixtureRequest) -> list[Path]:
    """The database as a restore leaves it that dies before one of its calls, one call later each, and as one that does
    not. Of those with the same files, the first stands for all."""
    if request.param == "damaged":
        (template / "payres.db").write_bytes(b"damaged" * 1000)
        (template / "payres.db-wal").write_bytes(b"log" * 1000)
    program = Path(__file__).with_name("restore_in_steps.py")
    command = [sys.executable, str(program), str(template), str(memory / "backup.db")]
    folder, environment = memory / "deaths", {**os.environ, "LD_PRELOAD": str(compiled("copy_at_calls.c"))}
    folder.mkdir()
    subprocess.run([*command, str(folder), str(NOW)], check=True, env=environment)
    whole, *died = sorted(folder.iterdir(), key=lambda death: int(death.name))
    found = [*died, whole]
    assert len(found) > 30
    left = {tuple((file.name, file.read_bytes()) for file in sorted(death.iterdir())): death for death in found[::-1]}
    return [death / "payres.db" for death in reversed(left.values())]


def kept_of(database: Path) -> list[Path]:
    return list(database.parent.glob("payres.db.replaced-*Z"))


def go_on_after(database: Path, backup: Path) -> None:
    """What an operator does next: tries again, which may be in the same second."""
    if kept_of(database) or list(database.parent.glob("payres.db.replaced-*")):
        with pytest.raises(BackupError, match="exists already; try again in a second"):
            restore_backup(backup, database, NOW)
    restore_backup(backup, database, NOW + SECOND)
    assert balance(database) == IN_BACKUP
    assert database.stat().st_nlink == 1


@pytest.mark.parametrize("deaths", ["whole"], indirect=True)
def test_restore_that_is_killed_leaves_the_old_database_or_the_new_one(deaths: list[Path], memory: Path) -> None:
    balances = []
    for database in deaths:
        balances.append(balance(database))
        with closing(connect_writer(str(database))) as connection:  # a server goes on, and stops
            deposit(work_at(connection, NOW), "alice", "1.00")
        for kept in kept_of(database):
            assert kept.stat().st_nlink == 1
            assert balance(kept) == IN_DATABASE
        assert balance(database) == balances[-1] + 100, "to look at what was kept has changed the database"
        go_on_after(database, memory / "backup.db")
    assert balances == sorted(balances, reverse=True)
    assert set(balances) == {IN_DATABASE, IN_BACKUP}
    assert not list(deaths[-1].parent.glob("*.partial*"))


@pytest.mark.parametrize("deaths", ["damaged"], indirect=True)
def test_restore_that_is_killed_loses_nothing_of_what_cannot_be_read(
    deaths: list[Path], template: Path, memory: Path
) -> None:
    old, log = (template / "payres.db").read_bytes(), (template / "payres.db-wal").read_bytes()
    for database in deaths:
        contents = [file.read_bytes() for file in database.parent.iterdir()]
        assert old in contents
        assert log in contents
        for kept in kept_of(database):
            assert kept.read_bytes() == old
            assert Path(f"{kept}-wal").read_bytes() == log
        go_on_after(database, memory / "backup.db")
