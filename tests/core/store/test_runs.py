"""Commits that are missing after a kill, because the write-ahead log was removed: that is noticed, and nothing else."""

import logging
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from payres.cli.session import Session
from payres.core.process.settings import Settings
from payres.core.store import runs
from payres.core.store.connections import Presence, connect_writer, server_lock
from payres.core.store.copies import side_file
from payres.core.store.database import Database
from payres.core.store.rows import number
from payres.core.store.runs import HighWaterMark, LostCommits
from payres.core.store.transactions import run_units
from payres.core.store.work import Environment, Work
from payres.operator import wallets
from payres.operator.upkeep.backup_and_restore import make_backup, restore_backup
from tests.versions import make_up, plain
from tests.works import NOW

NAME = "payres.db"
ALL = ("", "-wal", ".lock")


def deposit(work: Work) -> None:
    wallets.deposit(work, "alice", f"{1 + count(work)}.00")  # the same again would be asked about


def count(work: Work) -> int:
    return number(work, "SELECT count(*) FROM movement")


def copy(source: Path, folder: Path, *suffixes: str) -> Path:
    """A copy of the files of a database, as by another program."""
    folder.mkdir(exist_ok=True)
    for suffix in suffixes:
        if side_file(source, suffix).exists():
            shutil.copyfile(side_file(source, suffix), folder / f"{NAME}{suffix}")
    return folder / NAME


def read(path: Path) -> bytes:
    return path.read_bytes()


async def begin(path: Path) -> Database:
    """A server's run."""
    database = await Database.open(str(path))
    token = f"token-{path.parent.name}"
    await database.write(partial(runs.begin, token=token))
    await database.watch_commits(token)
    return database


@pytest.fixture
async def served(tmp_path: Path) -> Path:
    """A database, one of whose two deposits was made by a server that has stopped.

    Beside it are `killed`, with what a kill would have left after the second, which is in the log alone; `early`, with
    what it would have left at the start; and `backup`, made while the server ran.
    """
    path = tmp_path / "served" / NAME
    with closing(connect_writer(str(path))) as connection:
        wallets.create_wallet(Work(connection, Environment.of(Settings())), "alice", "USD", 2, None, None)
        deposit(Work(connection, Environment.of(Settings())))
    with server_lock(str(path)):
        database = await begin(path)
        copy(path, tmp_path / "early", *ALL)
        await database.write(deposit)
        copy(path, tmp_path / "killed", *ALL)
        make_backup(path, tmp_path / "backup", False, NOW)
        await database.write(runs.end)
        await database.close()
    return path


@pytest.fixture
def killed(served: Path) -> Path:
    return served.parent.parent / "killed" / NAME


@pytest.fixture
def early(served: Path) -> Path:
    return served.parent.parent / "early" / NAME


async def deposits_at_start(path: Path) -> int:
    """The number of deposits that a server has which starts on the database, and runs for a while."""
    with server_lock(str(path)):
        database = await begin(path)
        found = await database.read(count)
        await database.close()
    return found


def remove_log(path: Path) -> None:
    side_file(path, "-wal").unlink()


def empty_log(path: Path) -> None:
    side_file(path, "-wal").write_bytes(b"")


def take_earlier_log(path: Path) -> None:
    shutil.copyfile(path.parent.parent / "early" / f"{NAME}-wal", side_file(path, "-wal"))


def leave_log_behind(path: Path) -> None:
    """The database alone was copied, without the lock file too."""
    remove_log(path)
    side_file(path, ".lock").unlink()


LOSSES = pytest.mark.parametrize("lose", [remove_log, empty_log, take_earlier_log, leave_log_behind])


@LOSSES
async def test_start_without_the_log_of_a_killed_server_is_refused(killed: Path, lose: Callable[[Path], None]) -> None:
    log = read(side_file(killed, "-wal"))
    lose(killed)
    content = read(killed)
    for _ in range(2):
        with pytest.raises(LostCommits, match=f"Put {killed}-wal of that server back, .* `payres restore {killed}`"):
            await deposits_at_start(killed)
        with pytest.raises(LostCommits):
            connect_writer(str(killed))
    if lose is not take_earlier_log:
        assert read(killed) == content, "the log still fits"
    side_file(killed, "-wal").write_bytes(log)
    assert await deposits_at_start(killed) == 2


async def test_commits_of_commands_beside_the_server_are_missed_too(served: Path, tmp_path: Path) -> None:
    with server_lock(str(served)):
        database = await begin(served)
        session = Session(Settings(database=str(served)), as_json=False)
        session.write(deposit)
        await database.write(lambda work: None)
        session.write(deposit)
        path = copy(served, tmp_path / "killed", *ALL)
        await database.close()
    log = read(side_file(path, "-wal"))
    remove_log(path)
    with pytest.raises(LostCommits, match=r"\(events: 2, transfers: 2, and the last changes by operators\)"):
        await deposits_at_start(path)
    side_file(path, "-wal").write_bytes(log)
    assert await deposits_at_start(path) == 4


async def test_what_is_missing_is_counted(killed: Path) -> None:
    remove_log(killed)
    with pytest.raises(LostCommits, match=r"\(events: 1, transfers: 1, and the last changes by operators\)"):
        await deposits_at_start(killed)


@LOSSES
async def test_restore_of_the_database_itself_goes_on_without_them(killed: Path, lose: Callable[[Path], None]) -> None:
    lose(killed)
    assert restore_backup(killed, killed, NOW).replaced is not None
    assert await deposits_at_start(killed) == 1
    assert await deposits_at_start(killed) == 1


async def test_reading_goes_on_with_a_warning(killed: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = side_file(killed, "-wal").read_bytes()
    remove_log(killed)
    with closing(connect_writer(str(killed), may_lack=True)) as connection:
        assert count(Work(connection, Environment.of(Settings()))) == 1
    assert "lacks commits of the server that was killed" in caplog.text
    side_file(killed, "-wal").write_bytes(log)
    assert await deposits_at_start(killed) == 2


async def test_older_version_is_not_migrated_without_its_log(
    killed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = side_file(killed, "-wal").read_bytes()
    remove_log(killed)
    make_up(monkeypatch, tmp_path / "migrations", "alter table secret add column note text;")
    for may_lack in (False, True):
        with pytest.raises(LostCommits):
            connect_writer(str(killed), may_lack=may_lack)
    side_file(killed, "-wal").write_bytes(log)
    assert await deposits_at_start(killed) == 2


# Starts that are not refused


def leave(path: Path) -> Path:
    return path


def read_by_a_command(path: Path) -> Path:
    connect_writer(str(path), may_lack=True).close()
    assert not side_file(path, "-wal").exists()
    return path


def read_by_a_command_elsewhere(path: Path) -> Path:
    """It has applied the log, of which nothing else tells."""
    read_by_a_command(copy(path, path.parent.parent / "elsewhere", "", "-wal"))
    return path.parent.parent / "elsewhere" / NAME


def read_by_another_program(path: Path) -> Path:
    with plain(path) as connection:
        connection.execute("SELECT count(*) FROM transfer").fetchone()
    assert not side_file(path, "-wal").exists()
    return path


def checkpoint(path: Path) -> Path:
    """As Litestream does, and a kill right after it leaves an empty log."""
    with plain(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        copied = copy(path, path.parent.parent / "elsewhere", *ALL)
        assert side_file(copied, "-wal").stat().st_size == 0
    return copied


def move_all(path: Path) -> Path:
    return copy(path, path.parent.parent / "elsewhere", *ALL)


def vacuum(path: Path) -> Path:
    copied = path.parent.parent / "vacuumed.db"
    with plain(path) as connection:
        connection.execute("VACUUM INTO ?", (str(copied),))
    return copied


def copy_by_sqlites_backup(path: Path) -> Path:
    copied = path.parent.parent / "copied.db"
    with plain(path) as connection, closing(sqlite3.connect(copied)) as other:
        connection.backup(other)
    return copied


def copy_by_litestream(path: Path) -> Path:
    """It has two tables of Litestream, and never a log."""
    with plain(path) as connection:
        connection.execute("CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER)")
        connection.execute("CREATE TABLE _litestream_lock (id INTEGER)")
    return copy(path, path.parent.parent / "elsewhere", "")


def put_backup_in_place(path: Path) -> Path:
    return copy(path.parent.parent / "backup", path.parent.parent / "elsewhere", "")


def copy_after_a_clean_stop(path: Path) -> Path:
    return copy(path.parent.parent / "served" / NAME, path.parent.parent / "elsewhere", "")


def restore(path: Path) -> Path:
    remove_log(path)
    restore_backup(path.parent.parent / "backup", path, NOW)
    return path


def undo_a_restore(path: Path) -> Path:
    """Another server has run since, so the lock file knows nothing of the old database."""
    replaced = restore_backup(path.parent.parent / "backup", path, NOW).replaced
    assert replaced is not None
    side_file(path, ".lock").unlink()
    replaced.rename(path)
    return path


@pytest.mark.parametrize(
    "then",
    [
        *(leave, read_by_a_command, read_by_a_command_elsewhere, read_by_another_program, checkpoint, move_all, vacuum),
        *(copy_by_litestream, put_backup_in_place, copy_after_a_clean_stop, restore, undo_a_restore),
    ],
)
async def test_start_with_all_commits_is_not_refused(killed: Path, then: Callable[[Path], Path]) -> None:
    path = then(killed)
    for _ in range(2):
        assert await deposits_at_start(path) == 2


async def test_copy_by_sqlites_backup_starts_once_it_is_restored(killed: Path) -> None:
    """It looks like a file whose log was left behind."""
    path = copy_by_sqlites_backup(killed)
    with pytest.raises(LostCommits, match=f"unless it is a copy by SQLite's .backup.* `payres restore {path}`"):
        await deposits_at_start(path)
    restore_backup(path, path, NOW)
    assert await deposits_at_start(path) == 2


async def test_copy_of_before_a_migration_starts(killed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        make_up(newer, tmp_path / "migrations", "alter table secret add column note text;")
        assert await deposits_at_start(killed) == 2
    [kept] = killed.parent.glob("*.before-version-*")
    assert await deposits_at_start(copy(kept, tmp_path / "elsewhere", "")) == 2


async def test_kill_right_after_the_start_is_not_refused(early: Path) -> None:
    assert await deposits_at_start(early) == 1


async def test_new_database_beside_an_old_lock_file_starts(killed: Path) -> None:
    for suffix in ("", "-wal"):
        side_file(killed, suffix).unlink()
    assert await deposits_at_start(killed) == 0


@pytest.mark.parametrize(
    ("then", "says"),
    [(read_by_another_program, "is missing, but what clients asked for"), (copy_by_litestream, "a copy by Litestream")],
)
async def test_log_that_another_program_removed_is_told(
    killed: Path, then: Callable[[Path], Path], says: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = then(killed)
    with caplog.at_level(logging.WARNING):
        assert await deposits_at_start(path) == 2
    assert says in caplog.text


async def test_commands_beside_a_server_look_at_nothing(served: Path) -> None:
    with server_lock(str(served)):
        database = await begin(served)
        side_file(served, ".lock").write_text("nonsense")
        connect_writer(str(served)).close()
        await database.close()
    with plain(served) as connection:
        assert connection.execute("SELECT token FROM server_run").fetchone() == ("token-served",)


def test_mark_has_each_commit_and_none_that_failed(killed: Path) -> None:
    class Moved(Presence):
        def check(self) -> None:
            raise OSError("the disk failed")

    environment = Environment.of(Settings())
    with closing(connect_writer(str(killed))) as connection:
        mark = HighWaterMark(str(killed), "token")
        marks = []
        for presence in (Presence(str(killed)), Moved(str(killed)), Presence(str(killed))):
            run_units([deposit], connection, environment, presence, [], mark)
            marks.append(int(read(side_file(killed, ".lock")).split()[2]))
        mark.close()
    assert marks == [3, 3, 4], "the last transfer"


async def test_database_that_lacks_commits_is_kept_as_it_is(killed: Path) -> None:
    remove_log(killed)
    replaced = restore_backup(killed.parent.parent / "backup", killed, NOW).replaced
    assert replaced is not None
    side_file(killed, ".lock").rename(side_file(replaced, ".lock"))
    with pytest.raises(LostCommits):
        await deposits_at_start(replaced)
