"""The fail-stop of the writer, when a unit finds stored data inconsistent; and its limit of waiting units."""

import asyncio
import logging
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from payres.core.process.settings import Settings
from payres.core.protocol.errors import DomainError
from payres.core.protocol.limits import MAX_WAITING_UNITS
from payres.core.store.accounts import ACCOUNTS
from payres.core.store.connections import Presence
from payres.core.store.database import Database
from payres.core.store.server_secrets import decrypt, encrypt
from payres.core.store.transactions import Raised, run_reads, run_units
from payres.core.store.work import Damaged, Environment, FailStop, Transaction
from payres.operator.upkeep.readiness import Readiness

Unit = Callable[[Transaction], Any]


class Found(FailStop):
    reason = "the sky has fallen"


def keep(tx: Transaction) -> None:
    tx.execute("INSERT INTO secret (name, value) VALUES (hex(randomblob(8)), x'00')")


def count(tx: Transaction) -> int:
    found: int = tx.execute("SELECT count(*) FROM secret").fetchone()[0]
    return found


def find_fault(tx: Transaction) -> None:
    keep(tx)
    raise Found("account 7 has 1 and should have 2")


def check_stopped(error: object) -> None:
    assert isinstance(error, DomainError)
    assert (error.status, error.code, error.headers) == (503, "unavailable", {"Retry-After": "60"})
    assert str(error) == "The server takes no more work: the sky has fallen, and an operator must look"


async def test_halt_ends_writing_for_good_and_keeps_nothing_of_the_batch(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    await database.write(keep)
    units = [keep] * 10 + [find_fault] + [keep] * 300  # more than one commit takes
    tasks = [asyncio.create_task(database.write(unit)) for unit in units]
    with caplog.at_level(logging.CRITICAL):
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    for outcome in outcomes:
        check_stopped(outcome)
    assert len({id(outcome) for outcome in outcomes}) == len(units)
    assert await database.read(count) == 1, "reading goes on"
    with pytest.raises(DomainError) as caught:
        await database.write(keep)
    check_stopped(caught.value)
    [record] = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert "account 7 has 1 and should have 2" in record.getMessage()
    with closing(sqlite3.connect(database.path)) as other:
        assert count(other) == 1


async def test_halt_ends_with_the_process(database: Database) -> None:
    database.fail_stop(Found("something"))
    again = await Database.open(database.path)
    await again.write(keep)
    assert await again.read(count) == 1
    await again.close()


@pytest.mark.parametrize("waiting", [MAX_WAITING_UNITS - 1, MAX_WAITING_UNITS, MAX_WAITING_UNITS + 1])
async def test_units_that_wait_are_limited(database: Database, waiting: int) -> None:
    tasks = [asyncio.create_task(database.write(lambda tx: 1)) for _ in range(waiting)]
    *most, last = await asyncio.gather(*tasks, return_exceptions=True)
    assert most == [1] * (waiting - 1)
    if waiting <= MAX_WAITING_UNITS:
        assert last == 1
    else:
        assert isinstance(last, DomainError)
        assert (last.status, last.headers) == (503, {"Retry-After": "1"})
    assert await database.write(lambda tx: 1) == 1


DAMAGED = "The server takes no more work: its database is damaged, and an operator must look"
MOVED = "The server takes no more work: its database has been moved, removed or replaced, and an operator must look"


def raising(code: int, error: type[sqlite3.Error] = sqlite3.OperationalError, text: str = "as SQLite says") -> Unit:
    def fail(tx: Transaction) -> None:
        keep_if_it_can(tx)
        raised = error(text)
        raised.sqlite_errorcode = code  # SQLite sets it when it raises one itself
        raise raised

    return fail


def keep_if_it_can(tx: Transaction) -> None:
    if not tx.execute("PRAGMA query_only").fetchone()[0]:
        keep(tx)


DAMAGES = {
    "corrupt": raising(sqlite3.SQLITE_CORRUPT, sqlite3.DatabaseError),
    "corrupt index": raising(sqlite3.SQLITE_CORRUPT | 3 << 8),
    "not a database": raising(sqlite3.SQLITE_NOTADB, sqlite3.DatabaseError),
    "no table": lambda tx: tx.execute("SELECT * FROM lost").fetchone(),
    "no column": lambda tx: tx.execute("SELECT lost FROM secret").fetchone(),
    "no column to insert": lambda tx: tx.execute("INSERT INTO secret (name, lost) VALUES ('a', 'b')").fetchone(),
    "no row that others refer to": lambda tx: ACCOUNTS.by_id(tx, 99),
}


@pytest.mark.parametrize("damaged", DAMAGES.values(), ids=DAMAGES.keys())
@pytest.mark.parametrize("reads", [False, True])
async def test_damage_halts_whoever_comes_upon_it(
    database: Database, damaged: Unit, reads: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(DomainError) as first:
        await (database.read if reads else database.write)(damaged)
    assert (first.value.code, str(first.value)) == ("unavailable", DAMAGED)
    with pytest.raises(DomainError, match="damaged"):
        await database.write(keep)
    assert database.stopped == DAMAGED
    assert [record.levelno for record in caplog.records].count(logging.CRITICAL) == 1
    assert await database.read(count) == 0


PASSING = ("FULL", "IOERR", "IOERR_READ", "IOERR_FSYNC", "BUSY", "LOCKED", "READONLY", "CANTOPEN", "ERROR", "NOMEM")


@pytest.mark.parametrize("name", PASSING)
@pytest.mark.parametrize("reads", [False, True])
async def test_what_may_pass_does_not_halt(database: Database, name: str, reads: bool) -> None:
    with pytest.raises(DomainError) as refused:
        await (database.read if reads else database.write)(raising(getattr(sqlite3, f"SQLITE_{name}")))
    assert refused.value.code == "unavailable"
    assert database.stopped is None
    await database.write(keep)
    assert await database.read(count) == 1


async def test_damage_met_at_the_commit_or_before_the_first_unit_halts(path: str) -> None:
    class Corrupt(sqlite3.Connection):
        fails_at = ""

        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            if sql.startswith(self.fails_at):
                error = sqlite3.DatabaseError("database disk image is malformed")
                error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT  # as SQLite does
                raise error
            return super().execute(sql, parameters)

    for statement in ("BEGIN", "COMMIT"):
        with closing(sqlite3.connect(":memory:", isolation_level=None, factory=Corrupt)) as connection:
            connection.fails_at = statement
            with pytest.raises(FailStop):
                run_units([lambda tx: None], connection, Environment.of(Settings()), Presence(":memory:"), [])
            connection.fails_at = "BEGIN"
            [outcome] = run_reads([lambda tx: None], connection, Environment.of(Settings()))
            assert isinstance(outcome, Raised)
            assert isinstance(outcome.error, FailStop)


def overwritten(path: str) -> None:
    """Damage as a disk does it: noise in the middle of a table that is in no cache."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (root,) = other.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'asset'").fetchone()
        (size,) = other.execute("PRAGMA page_size").fetchone()
        with Path(path).open("r+b") as file:
            file.seek((root - 1) * size)
            file.write(b"\xff" * size)
        other.execute("CREATE TABLE other_program (id)")  # so that caches are read again


async def test_noise_in_the_file_halts(path: str) -> None:
    database = await Database.open(path)
    overwritten(path)
    with pytest.raises(DomainError, match="damaged"):
        await database.write(lambda tx: tx.execute("SELECT * FROM asset").fetchall())
    assert database.stopped == DAMAGED
    await database.close()


def moved(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


def replaced(path: Path) -> None:
    copy = path.with_name("copy")
    shutil.copyfile(path, copy)
    copy.replace(path)


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
@pytest.mark.parametrize("lose", [Path.unlink, moved, replaced])
async def test_file_that_is_not_the_open_one_any_more_halts_before_anything_is_acknowledged(
    path: str, suffix: str, lose: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    database = await Database.open(path)
    await database.write(keep)
    lose(Path(path + suffix))
    with pytest.raises(DomainError) as refused:
        await database.write(keep)
    assert str(refused.value) == database.stopped == MOVED
    assert f"{path}{suffix} is " in caplog.text
    assert await database.read(count) == 1
    await database.close()


async def test_folder_that_has_moved_halts(tmp_path: Path) -> None:
    folder = tmp_path / "before"
    folder.mkdir()
    database = await Database.open(str(folder / "payres.db"))
    folder.rename(tmp_path / "after")
    assert await Readiness(database).problem() == MOVED
    await database.close()


async def test_symbolic_link_that_leads_elsewhere_halts(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        await (await Database.open(str(tmp_path / name / "payres.db"))).close()
    link = tmp_path / "payres.db"
    link.symlink_to(tmp_path / "first" / "payres.db")
    database = await Database.open(str(link))
    await database.write(keep)
    link.unlink()
    link.symlink_to(tmp_path / "second" / "payres.db")
    with pytest.raises(DomainError, match="replaced"):
        await database.write(keep)
    await database.close()


async def test_checkpoints_and_other_programs_that_come_and_go_do_not_halt(path: str) -> None:
    database = await Database.open(path)
    for mode in ("PASSIVE", "FULL", "RESTART", "TRUNCATE"):
        await database.write(keep)
        with closing(sqlite3.connect(path)) as other:
            other.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
    await database.write(keep)
    assert await database.read(count) == 5
    assert await Readiness(database).problem() is None
    await database.close()


async def test_presence_that_cannot_be_checked_refuses_and_recovers(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: str) -> None:
        raise PermissionError(13, "not now", path)

    with monkeypatch.context() as patch:
        patch.setattr("payres.core.store.connections._identity", fail)
        with pytest.raises(DomainError, match="nothing was changed"):
            await database.write(keep)
    assert database.stopped is None
    await database.write(keep)
    assert await database.read(count) == 1


@pytest.mark.parametrize("value", [None, b"", b"short", bytes(32)])
def test_secret_that_is_missing_or_another_is_damage(tx: Transaction, value: bytes | None) -> None:
    encrypted = encrypt(tx, "webhook", "whsec")
    assert decrypt(tx, "webhook", encrypted) == "whsec"
    tx.execute("DELETE FROM secret")
    if value is not None:
        tx.execute("INSERT INTO secret (name, value) VALUES ('webhook', ?)", (value,))
    with pytest.raises(Damaged, match="webhook"):
        decrypt(tx, "webhook", encrypted)


@pytest.mark.parametrize("kept", [0, 5, 20])
def test_what_is_cut_off_is_damage(tx: Transaction, kept: int) -> None:
    encrypted = encrypt(tx, "webhook", "whsec")
    with pytest.raises(Damaged, match="webhook"):
        decrypt(tx, "webhook", encrypted[:kept])
