import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import pytest

from payres.errors import Unavailable
from payres.limits import MIN_FREE_BYTES
from payres.routes import health
from payres.routes.health import Readiness
from payres.store.database import Database
from payres.store.fail_stop import FailStop
from payres.store.work import Transaction
from payres.testing.instance import Instance, run_instance
from tests.traces import trace

LOG_BYTES = 1000 * 4096  # after which SQLite begins the log anew when nobody reads what is in it


def test_health_is_ok_while_the_database_answers(shared: Instance, anonymous: httpx2.Client) -> None:
    answer = anonymous.get(f"{shared.base_url}/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    assert answer.headers["cache-control"] == "no-store"


def test_health_says_why_not_when_the_database_does_not_answer(
    shared: Instance, anonymous: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(tx: Transaction) -> bool:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(health, "answers", broken)
    answer = anonymous.get(f"{shared.base_url}/healthz")
    assert answer.status_code == 503
    assert answer.json() == {
        "status": "unavailable",
        "reason": "The server could not use its storage. Try again shortly",
    }
    monkeypatch.undo()
    assert anonymous.get(f"{shared.base_url}/healthz").status_code == 200


def test_ready_is_ok_while_payments_can_be_taken(shared: Instance, anonymous: httpx2.Client) -> None:
    answer = anonymous.get(f"{shared.base_url}/readyz")
    assert (answer.status_code, answer.json()["status"], answer.json().keys()) == (200, "ok", {"status", "details"})
    assert answer.headers["cache-control"] == "no-store"


def test_ready_shows_the_log_that_a_long_reader_makes_grow(
    tmp_path: Path, anonymous: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with run_instance(tmp_path / "payres.db") as instance:

        def shown() -> int:
            answer = anonymous.get(f"{instance.base_url}/readyz").json()
            size: int = answer["details"]["walBytes"]
            return size

        def grow() -> None:
            for number in range(300):
                instance.create_wallet(f"w{next(numbers)}", name="x" * 100 + str(number))

        numbers = count()
        with closing(sqlite3.connect(tmp_path / "payres.db", isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM wallet_address").fetchall()
            before = shown()
            assert before == (tmp_path / "payres.db-wal").stat().st_size
            while shown() < 2 * LOG_BYTES:
                grow()
        (tmp_path / "payres.db-wal").rename(tmp_path / "elsewhere")
        monkeypatch.setattr(health, "CACHE_SECONDS", 0)
        answer = anonymous.get(f"{instance.base_url}/readyz")
        assert (answer.status_code, answer.json()["details"]) == (503, {"walBytes": 0, "restoredAt": None})
        (tmp_path / "elsewhere").rename(tmp_path / "payres.db-wal")


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = await Database.open(str(tmp_path / "payres.db"))
    yield opened
    await opened.close()


async def test_readiness_commits_at_most_once_a_second(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    statements: list[str] = []
    await database.write(lambda work: trace(work, statements.append))
    statements.clear()
    found = Readiness(database)
    assert await asyncio.gather(*(found.problem() for _ in range(50))) == [None] * 50
    assert statements.count("COMMIT") == 1
    assert any("user_version =" in statement for statement in statements)
    monkeypatch.setattr(health, "CACHE_SECONDS", 0)
    assert await found.problem() is None
    assert statements.count("COMMIT") == 2


@pytest.mark.parametrize(("free", "is_ready"), [(MIN_FREE_BYTES - 1, False), (MIN_FREE_BYTES, True)])
async def test_readiness_wants_room_on_the_disk(
    database: Database, monkeypatch: pytest.MonkeyPatch, free: int, is_ready: bool
) -> None:
    monkeypatch.setattr(health, "free_bytes", lambda folder: free)
    problem = await Readiness(database).problem()
    assert problem == (None if is_ready else "The disk of the database has less than 64 MiB free")


async def test_readiness_tells_why_there_is_no_commit(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(unit: Any) -> None:
        raise Unavailable("The disk is full")

    monkeypatch.setattr(database, "write", refuse)
    assert await Readiness(database).problem() == "The disk is full"


async def test_readiness_does_not_wait_long_for_a_commit(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    async def wait(unit: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(database, "write", wait)
    monkeypatch.setattr(health, "COMMIT_SECONDS", 0.01)
    assert await Readiness(database).problem() == "The database did not take a commit within 0.01 seconds"


async def test_readiness_ends_at_once_when_writing_halts(database: Database) -> None:
    found = Readiness(database)
    assert await found.problem() is None
    database.fail_stop(FailStop("something"))
    assert "an operator must look" in (await found.problem() or "")
