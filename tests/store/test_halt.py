"""What makes the writer stop: a unit that finds that what is stored cannot be right, and too much waiting work."""

import asyncio
import logging
import os
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from payres.errors import Refusal
from payres.limits import MAX_WAITING_UNITS
from payres.store.database import Database, Halt, Transaction, touch


class Found(Halt):
    told = "the sky has fallen"


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = await Database.open(str(tmp_path / "payres.db"))
    yield opened
    await opened.close()


def keep(tx: Transaction) -> None:
    tx.execute("INSERT INTO secret (name, value) VALUES (hex(randomblob(8)), x'00')")


def count(tx: Transaction) -> int:
    found: int = tx.execute("SELECT count(*) FROM secret").fetchone()[0]
    return found


def find_fault(tx: Transaction) -> None:
    keep(tx)
    raise Found("account 7 has 1 and should have 2")


def check_halted(error: object) -> None:
    assert isinstance(error, Refusal)
    assert (error.status, error.code, error.headers) == (503, "unavailable", {"Retry-After": "60"})
    assert error.description == "The server takes no more work: the sky has fallen, and an operator must look"


async def test_halt_ends_writing_for_good_and_keeps_nothing_of_the_batch(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    await database.write(keep)
    reached, opened = threading.Event(), threading.Event()

    def hold(tx: Transaction) -> None:
        reached.set()
        opened.wait(10)

    holder = asyncio.create_task(database.write(hold))
    await asyncio.to_thread(reached.wait, 10)
    units = [keep] * 10 + [find_fault] + [keep] * 300  # more than one commit takes
    tasks = [asyncio.create_task(database.write(unit)) for unit in units]
    await asyncio.sleep(0)
    opened.set()
    await holder
    with caplog.at_level(logging.CRITICAL):
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    for outcome in outcomes:
        check_halted(outcome)
    assert len({id(outcome) for outcome in outcomes}) == len(units)
    assert await database.read(count) == 1, "reading goes on"
    with pytest.raises(Refusal) as caught:
        await database.write(keep)
    check_halted(caught.value)
    [record] = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert "account 7 has 1 and should have 2" in record.getMessage()
    with closing(sqlite3.connect(database.path)) as other:
        assert count(other) == 1


async def test_halt_from_outside_says_so_once(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    assert not database.halted
    database.halt(Found("the first"))
    database.halt(Halt("the second"))
    with pytest.raises(Refusal) as caught:
        await database.write(touch)
    check_halted(caught.value)
    assert [record.levelname for record in caplog.records] == ["CRITICAL"]


async def test_halt_ends_with_the_process(database: Database) -> None:
    database.halt(Found("something"))
    again = await Database.open(database.path)
    await again.write(keep)
    assert await again.read(count) == 1
    await again.close()


@pytest.mark.parametrize("waiting", [MAX_WAITING_UNITS - 1, MAX_WAITING_UNITS, MAX_WAITING_UNITS + 1])
async def test_units_that_wait_are_limited(database: Database, waiting: int) -> None:
    reached, opened = threading.Event(), threading.Event()

    def hold(tx: Transaction) -> None:
        reached.set()
        opened.wait(10)

    holder = asyncio.create_task(database.write(hold))
    await asyncio.to_thread(reached.wait, 10)
    tasks = [asyncio.create_task(database.write(lambda tx: 1)) for _ in range(waiting)]
    await asyncio.sleep(0)
    opened.set()
    await holder
    *most, last = await asyncio.gather(*tasks, return_exceptions=True)
    assert most == [1] * (waiting - 1)
    if waiting <= MAX_WAITING_UNITS:
        assert last == 1
    else:
        assert isinstance(last, Refusal)
        assert (last.status, last.headers) == (503, {"Retry-After": "1"})
    assert await database.write(lambda tx: 1) == 1


async def test_touch_leaves_something_to_commit_and_nothing_changed(database: Database) -> None:
    def written() -> int:
        return os.stat(f"{database.path}-wal").st_size

    def state(tx: Transaction) -> tuple[object, ...]:
        return tuple(tx.execute(f"PRAGMA {name}").fetchone()[0] for name in ("user_version", "schema_version"))

    await database.write(lambda tx: None)
    before, size = await database.read(state), written()
    await database.write(lambda tx: None)
    assert written() == size
    await database.write(touch)
    assert written() > size
    assert await database.read(state) == before
