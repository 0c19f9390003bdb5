import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path
from time import perf_counter

import pytest

from payres.operator import wallets
from payres.operator.watch import BALANCES_SHARE, PAUSE_SECONDS, PROOFS_SHARE, BooksWatch
from payres.store.database import Database, Transaction
from payres.store.ledger_proofs import LEDGER_PROOFS
from tests.helpers import PATIENCE

NOW = 1_800_000_000_000_000


def create_wallet(tx: Transaction, path: str) -> None:
    wallets.create_wallet(tx, path, "USD", 2, None, None, NOW)


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = await Database.open(str(tmp_path / "payres.db"))
    for name in ("alice", "bob"):
        await opened.write(partial(create_wallet, path=name))
    await opened.write(lambda tx: wallets.deposit(tx, "alice", "10.00", NOW))
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
        "payres.operator.watch.perf_counter", lambda: next(times) if threading.get_ident() == ours else perf_counter()
    )


class Pauses:
    """Instead of sleeping: notes how long it would have been, and ends the watch after so many."""

    def __init__(self, limit: int) -> None:
        self.seconds: list[float] = []
        self._limit = limit

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await asyncio.sleep(0)
        if len(self.seconds) >= self._limit:
            raise asyncio.CancelledError


async def test_sound_books_are_let_be(database: Database) -> None:
    watch = BooksWatch(database, Pauses(1000))
    await watch.look()
    await watch.go_through()
    assert database.halted is None
    await database.write(lambda tx: wallets.deposit(tx, "alice", "10.00", NOW))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("balance = balance + 1", "in USD with scale 2 sum to 2 minor units"),
        ("balance = balance - 1", "in USD with scale 2 sum to -2 minor units"),
        ("reserved = balance + 1", "with 1001 reserved, its floor is 0"),
        ("reserved = -1", "with -1 reserved"),
    ],
)
async def test_look_halts_what_does_not_balance(
    database: Database, caplog: pytest.LogCaptureFixture, change: str, found: str
) -> None:
    corrupt(database.path, f"UPDATE account SET {change} WHERE kind = 'wallet'")
    await BooksWatch(database).look()
    assert database.halted == "The server takes no more work: its books do not balance, and an operator must look"
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
        ([f"UPDATE account SET reserved = 5 WHERE id = {WALLET.format('alice')}"], "has 5 reserved, its open"),
        (["DELETE FROM asset"], "account row 1 refers to a missing asset"),
        (["UPDATE wallet_address SET state = 'odd' WHERE path = 'bob'"], "CHECK constraint failed"),
    ],
)
async def test_going_through_halts_what_one_look_at_the_balances_does_not_see(
    database: Database, caplog: pytest.LogCaptureFixture, statements: Sequence[str], found: str
) -> None:
    corrupt(database.path, *statements)
    watch = BooksWatch(database, Pauses(1000))
    await watch.look()
    assert not database.halted
    await watch.go_through()
    assert "an operator must look" in (database.halted or "")
    assert found in caplog.text


async def test_lost_table_halts(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    corrupt(database.path, "DROP TABLE transfer")
    async with asyncio.timeout(PATIENCE):
        await BooksWatch(database, Pauses(1000)).run()
    assert database.halted == "The server takes no more work: its database is damaged, and an operator must look"
    assert "no such table: transfer" in caplog.text


async def test_going_through_rests_most_of_the_time(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = Pauses(1000)
    count_time(monkeypatch, 1)
    await BooksWatch(database, pauses).go_through()
    assert set(pauses.seconds) == {PROOFS_SHARE}  # each step took one second
    assert len(pauses.seconds) > len(LEDGER_PROOFS)


async def test_run_looks_at_once_and_ends_when_there_is_nothing_left_to_watch(database: Database) -> None:
    corrupt(database.path, "UPDATE account SET balance = balance + 1 WHERE kind = 'wallet'")
    pauses = Pauses(1000)
    async with asyncio.timeout(PATIENCE):
        await BooksWatch(database, pauses).run()
    assert database.halted
    assert pauses.seconds.count(PAUSE_SECONDS) == 2


async def test_look_that_takes_long_comes_less_often(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    count_time(monkeypatch, 2)
    pauses = Pauses(1)
    watch = BooksWatch(database, pauses)
    with pytest.raises(asyncio.CancelledError):
        await watch.repeat(watch.look, BALANCES_SHARE)
    assert pauses.seconds == [2 * BALANCES_SHARE]


async def test_run_goes_on_after_a_look_that_failed(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    looks = iter([OSError("the disk is gone"), None])
    seen: list[object] = []

    async def look() -> None:
        seen.append(outcome := next(looks))
        if outcome is not None:
            raise outcome

    watch = BooksWatch(database, Pauses(2))
    with pytest.raises(asyncio.CancelledError):
        await watch.repeat(look, 0)
    assert len(seen) == 2
    assert "the disk is gone" in caplog.text
