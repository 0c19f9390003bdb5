import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from payres.core.store.database import Database
from payres.core.store.work import Work
from payres.operator import wallets
from payres.operator.store.invariants import LEDGER_INVARIANTS, last_check
from payres.operator.upkeep.invariant_checks import ALL_SHARE, PAUSE_SECONDS, RECENT_SHARE, BackgroundCheck
from tests.helpers import TIMEOUT, settle

NOW = 1_800_000_000_000_000


def create_wallet(tx: Work, path: str) -> None:
    wallets.create_wallet(tx, path, "USD", 2, None, None)


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = await Database.open(str(tmp_path / "payres.db"))
    for name in ("alice", "bob"):
        await opened.write(partial(create_wallet, path=name))
    await opened.write(lambda tx: wallets.deposit(tx, "alice", "10.00"))
    yield opened
    await opened.close()


def corrupt(path: str, change: str) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA ignore_check_constraints = ON")
        other.execute(change)
        other.commit()


def count_time(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Each reading of the loop's time is this many seconds after the last; servers of other tests keep the real one."""
    counted, ours = SimpleNamespace(time=partial(next, count(0, step))), threading.get_ident()

    def running_loop() -> Any:
        return counted if threading.get_ident() == ours else asyncio.get_running_loop()

    seen = SimpleNamespace(**vars(asyncio) | {"get_running_loop": running_loop})
    monkeypatch.setattr("payres.operator.upkeep.invariant_checks.asyncio", seen)


pytestmark = pytest.mark.usefixtures("pauses")


async def test_sound_ledger_goes_on(database: Database) -> None:
    check = BackgroundCheck(database)
    await check.check_recent()
    assert await database.read(last_check) is None
    before = await database.read(lambda work: work.now)
    await check.check_all()
    assert database.stopped is None
    assert before <= (await database.read(last_check) or 0) <= await database.read(lambda work: work.now)
    await database.write(lambda tx: wallets.deposit(tx, "alice", "10.00"))


WALLET = "(SELECT account_id FROM wallet_address WHERE path = '{}')"


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (
            f"UPDATE account SET balance = balance + iif(id = {WALLET.format('bob')}, 500, -500)"
            f" WHERE id IN ({WALLET.format('alice')}, {WALLET.format('bob')})",
            "has a balance that differs from its transfers by 500 minor units",
        ),
        ("DELETE FROM transfer", "has a balance that differs from its transfers by -1000 minor units"),
        ("DELETE FROM asset", "account row 1 refers to a missing asset"),
        ("UPDATE wallet_address SET state = 'odd' WHERE path = 'bob'", "CHECK constraint failed"),
    ],
)
async def test_full_check_halts_what_the_recent_one_does_not_see(
    database: Database, caplog: pytest.LogCaptureFixture, change: str, found: str
) -> None:
    corrupt(database.path, change)
    check = BackgroundCheck(database)
    await check.check_recent()
    assert not database.stopped
    await check.check_all()
    assert "an operator must look" in (database.stopped or "")
    assert found in caplog.text


async def test_lost_table_halts(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    corrupt(database.path, "DROP TABLE transfer")
    async with asyncio.timeout(TIMEOUT):
        await BackgroundCheck(database).run()
    assert database.stopped == "The server takes no more work: its database is damaged, and an operator must look"
    assert "no such table: transfer" in caplog.text


async def test_full_check_rests_most_of_the_time(
    database: Database, pauses: Sequence[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    count_time(monkeypatch, 1)
    await BackgroundCheck(database).check_all()
    assert set(pauses) == {ALL_SHARE}  # each step took one second
    assert len(pauses) > len(LEDGER_INVARIANTS)


async def test_check_that_takes_long_comes_less_often_and_one_that_failed_again(
    database: Database, pauses: Sequence[float], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks = iter([OSError("the disk is gone"), None])

    async def look() -> None:
        outcome = next(looks, None)
        if outcome is not None:
            raise outcome

    count_time(monkeypatch, 2)
    task = asyncio.create_task(BackgroundCheck(database).repeat(look, RECENT_SHARE))
    await settle()
    task.cancel()
    assert pauses[:2] == [PAUSE_SECONDS, 2 * RECENT_SHARE]
    assert "the disk is gone" in caplog.text


async def test_large_file_is_not_read_in_one_step(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    corrupt(database.path, "UPDATE wallet_address SET state = 'odd' WHERE path = 'bob'")
    with monkeypatch.context() as patched:
        patched.setattr("payres.operator.upkeep.invariant_checks.MAX_PAGES", 1)
        await BackgroundCheck(database).check_all()
        assert not database.stopped
    await BackgroundCheck(database).check_all()
    assert database.stopped
