import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from payres.operator import wallets
from payres.operator.watch import BooksWatch
from payres.store.database import Database

NOW = 1_800_000_000_000_000


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = await Database.open(str(tmp_path / "payres.db"))
    await opened.write(lambda tx: wallets.create_wallet(tx, "alice", "USD", 2, "Alice", None, NOW))
    await opened.write(lambda tx: wallets.deposit(tx, "alice", "10.00", NOW))
    yield opened
    await opened.close()


def corrupt(path: str, change: str) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA ignore_check_constraints = ON")
        other.execute(f"UPDATE account SET {change} WHERE kind = 'wallet'")
        other.commit()


async def test_look_lets_sound_books_be(database: Database) -> None:
    await BooksWatch(database).look()
    assert database.halted is None
    await database.write(lambda tx: wallets.deposit(tx, "alice", "10.00", NOW))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("balance = balance + 1", "in USD with scale 2 sum to 1 minor units"),
        ("balance = balance - 1", "in USD with scale 2 sum to -1 minor units"),
        ("reserved = balance + 1", "with 1001 reserved, its floor is 0"),
        ("reserved = -1", "with -1 reserved"),
    ],
)
async def test_look_halts_what_does_not_balance(
    database: Database, caplog: pytest.LogCaptureFixture, change: str, found: str
) -> None:
    corrupt(database.path, change)
    await BooksWatch(database).look()
    assert database.halted == "The server takes no more work: its books do not balance, and an operator must look"
    assert found in caplog.text


async def test_run_looks_at_once_and_ends_when_there_is_nothing_left_to_watch(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    corrupt(database.path, "balance = balance + 1")
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", pause)
    async with asyncio.timeout(10):
        await BooksWatch(database).run()
    assert database.halted
    assert pauses == [60.0]


async def test_run_goes_on_after_a_look_that_failed(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    watch, looks = BooksWatch(database), iter([OSError("the disk is gone"), None])

    async def look() -> None:
        outcome = next(looks, asyncio.CancelledError())
        if outcome is not None:
            raise outcome

    async def pause(seconds: float) -> None:
        """Waits for nothing."""

    monkeypatch.setattr(watch, "look", look)
    monkeypatch.setattr(asyncio, "sleep", pause)
    with pytest.raises(asyncio.CancelledError):
        await watch.run()
    assert "the disk is gone" in caplog.text
