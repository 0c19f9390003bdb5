import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path
from time import perf_counter

import pytest

from payres.operator import wallets
from payres.operator.invariant_checks import ALL_SHARE, PAUSE_SECONDS, RECENT_SHARE, BackgroundCheck
from payres.store.database import Database
from payres.store.invariants import LEDGER_INVARIANTS
from payres.store.status import last_check
from payres.store.work import Work
from tests.helpers import TIMEOUT

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


def corrupt(path: str, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA ignore_check_constraints = ON")
        for statement in statements:
            other.execute(statement)
        other.commit()


def count_time(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Each look at the time is so many seconds after the one before; servers of other tests keep the real time."""
    times, ours = count(0, step), threading.get_ident()
    monkeypatch.setattr(
        "payres.operator.invariant_checks.perf_counter",
        lambda: next(times) if threading.get_ident() == ours else perf_counter(),
    )


class Pauses:
    """Instead of sleeping: notes how long it would have been, and has no end after so many."""

    def __init__(self, limit: int) -> None:
        self.seconds: list[float] = []
        self._limit = limit
        self._over = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await asyncio.sleep(0)
        if len(self.seconds) >= self._limit:
            self._over.set()
            await asyncio.Event().wait()

    async def end(self, watching: Coroutine[None, None, None]) -> None:
        """Watches until there were so many pauses."""
        task = asyncio.create_task(watching)
        async with asyncio.timeout(TIMEOUT):
            await self._over.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_sound_ledger_goes_on(database: Database) -> None:
    check = BackgroundCheck(database, Pauses(1000))
    await check.check_recent()
    assert await database.read(last_check) is None
    before = await database.read(lambda work: work.now)
    await check.check_all()
    assert database.stopped is None
    assert before <= (await database.read(last_check) or 0) <= await database.read(lambda work: work.now)
    await database.write(lambda tx: wallets.deposit(tx, "alice", "10.00"))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("balance = balance + 1", "in USD with scale 2 sum to 2 minor units"),
        ("held = balance + 1", "holds back 1001, its open holds sum to 0"),
        ("floor = 1001", "has a balance of 1000 with 0 held, its floor is 1001"),
    ],
)
async def test_recent_check_halts_what_does_not_balance(
    database: Database, caplog: pytest.LogCaptureFixture, change: str, found: str
) -> None:
    corrupt(database.path, f"UPDATE account SET {change} WHERE kind = 'wallet'")
    await BackgroundCheck(database).check_recent()
    assert database.stopped == "The server takes no more work: its ledger does not balance, and an operator must look"
    assert found in caplog.text


WALLET = "(SELECT account_id FROM wallet_address WHERE path = '{}')"


@pytest.mark.parametrize(
    ("statements", "found"),
    [
        (
            [
                f"UPDATE account SET balance = balance - 500 WHERE id = {WALLET.format('alice')}",
                f"UPDATE account SET balance = balance + 500 WHERE id = {WALLET.format('bob')}",
            ],
            "has a balance that its transfers miss by 500 minor units",
        ),
        (["DELETE FROM transfer"], "has a balance that its transfers miss by -1000 minor units"),
        (["DELETE FROM asset"], "account row 1 refers to a missing asset"),
        (["UPDATE wallet_address SET state = 'odd' WHERE path = 'bob'"], "CHECK constraint failed"),
    ],
)
async def test_full_check_halts_what_the_recent_one_does_not_see(
    database: Database, caplog: pytest.LogCaptureFixture, statements: Sequence[str], found: str
) -> None:
    corrupt(database.path, *statements)
    check = BackgroundCheck(database, Pauses(1000))
    await check.check_recent()
    assert not database.stopped
    await check.check_all()
    assert "an operator must look" in (database.stopped or "")
    assert found in caplog.text


async def test_lost_table_halts(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    corrupt(database.path, "DROP TABLE transfer")
    async with asyncio.timeout(TIMEOUT):
        await BackgroundCheck(database, Pauses(1000)).run()
    assert database.stopped == "The server takes no more work: its database is damaged, and an operator must look"
    assert "no such table: transfer" in caplog.text


async def test_full_check_rests_most_of_the_time(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = Pauses(1000)
    count_time(monkeypatch, 1)
    await BackgroundCheck(database, pauses).check_all()
    assert set(pauses.seconds) == {ALL_SHARE}  # each step took one second
    assert len(pauses.seconds) > len(LEDGER_INVARIANTS)


async def test_run_checks_at_once_and_ends_when_writing_has_stopped(database: Database) -> None:
    corrupt(database.path, "UPDATE account SET balance = balance + 1 WHERE kind = 'wallet'")
    pauses = Pauses(1000)
    async with asyncio.timeout(TIMEOUT):
        await BackgroundCheck(database, pauses).run()
    assert database.stopped
    assert PAUSE_SECONDS not in pauses.seconds


async def test_check_that_takes_long_comes_less_often(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    count_time(monkeypatch, 2)
    pauses = Pauses(1)
    check = BackgroundCheck(database, pauses)
    await pauses.end(check.repeat(check.check_recent, RECENT_SHARE))
    assert pauses.seconds == [2 * RECENT_SHARE]


async def test_run_goes_on_after_a_check_that_failed(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    looks = iter([OSError("the disk is gone"), None])
    seen: list[object] = []

    async def look() -> None:
        seen.append(outcome := next(looks))
        if outcome is not None:
            raise outcome

    pauses = Pauses(2)
    await pauses.end(BackgroundCheck(database, pauses).repeat(look, 0))
    assert pauses.seconds == [PAUSE_SECONDS] * 2
    assert len(seen) == 2
    assert "the disk is gone" in caplog.text


async def test_large_file_is_not_read_in_one_step(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    corrupt(database.path, "UPDATE wallet_address SET state = 'odd' WHERE path = 'bob'")
    with monkeypatch.context() as patched:
        patched.setattr("payres.operator.invariant_checks.MAX_PAGES", 1)
        await BackgroundCheck(database, Pauses(1000)).check_all()
        assert not database.stopped
    await BackgroundCheck(database, Pauses(1000)).check_all()
    assert database.stopped
