"""What is logged of storage that fails for a while: a lock of another program, a damaged file, a full disk."""

import logging
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from payres.core.process.settings import Settings
from payres.core.protocol.errors import Unavailable
from payres.core.store import connections
from payres.core.store.database import Database
from payres.core.store.work import Environment, Failures, Transaction
from payres.interledger.packets import Code, PacketRejected
from payres.testing.clock import MovableClock

LOCKED = "no transaction could be started: database is locked"


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock(frozen=True)


@pytest.fixture
async def database(path: str, clock: MovableClock) -> AsyncIterator[Database]:
    opened = await Database.open(path, Environment.of(Settings(), clock))
    yield opened
    await opened.close()


def nothing(_: Transaction) -> None:
    """Changes nothing."""


async def fail(ask: Callable[[Callable[[Any], None]], Any], times: int) -> None:
    for _ in range(times):
        with pytest.raises(Unavailable):
            await ask(nothing)


async def test_lock_is_logged_once_and_again_when_it_has_ended(
    database: Database, clock: MovableClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BUSY_TIMEOUT_SECONDS", 0)
    for _ in range(2):
        caplog.clear()
        with closing(sqlite3.connect(database.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            await fail(database.write, 30)
            assert caplog.messages == [LOCKED]
            await database.read(nothing)  # works all the time
        await database.write(nothing)
        assert caplog.messages == [LOCKED], "another lock may follow at once"
        clock.advance(10)
        await database.write(nothing)
        await database.write(nothing)
        assert caplog.messages == [LOCKED, "writing works again; failures: 30"]


@pytest.mark.parametrize("has_written", [True, False])
async def test_rejection_by_a_unit_is_not_logged(
    database: Database, caplog: pytest.LogCaptureFixture, has_written: bool
) -> None:
    """Peers cause these. What is unexpected is logged by whoever asked."""

    def reject(tx: Transaction) -> None:
        if has_written:
            tx.execute("INSERT INTO secret (name, value) VALUES ('a', x'00')")
        raise PacketRejected(Code.UNREACHABLE)

    with caplog.at_level(logging.DEBUG, "payres"):
        for ask in (database.write, database.read, database.examine):
            if ask == database.write or not has_written:
                with pytest.raises(PacketRejected):
                    await ask(reject)
    assert not caplog.records


def damage(path: str) -> None:
    """Overwrites all pages but the first."""
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with Path(path).open("r+b") as file:
        size = file.seek(0, 2)
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))


async def test_damage_is_logged_once_by_all_who_read(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    def read_all(tx: Transaction) -> None:
        for (table,) in tx.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            tx.execute(f'SELECT * FROM "{table}"').fetchall()

    damage(database.path)
    for ask in (database.read, database.examine):
        for _ in range(20):
            with pytest.raises(Unavailable):
                await ask(read_all)
    assert len(caplog.records) == len(set(caplog.messages)) <= 3, "one of them says that writing has stopped"
    assert "is malformed" in caplog.text


def test_failures_that_change_are_logged_and_may_alternate(
    clock: MovableClock, caplog: pytest.LogCaptureFixture
) -> None:
    failures = Failures("writing", clock)
    failures.end()
    for _ in range(5):
        failures.note("a commit failed", OSError("full"))
        failures.note("a commit failed", OSError("gone"))
        failures.end()
    assert caplog.messages == ["a commit failed: full", "a commit failed: gone"]
    clock.advance(-3600)  # a clock that was ahead delays nothing
    failures.end()
    assert caplog.messages[2:] == ["writing works again; failures: 10"]
    failures.note("a commit failed", OSError("full"))
    assert caplog.messages[3:] == ["a commit failed: full"]
