import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from payres.errors import Unavailable
from payres.limits import MIN_FREE_BYTES
from payres.routes import monitoring
from payres.routes.monitoring import Readiness
from payres.store.database import Database
from payres.store.work import FailStop
from tests.traces import trace


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
    monkeypatch.setattr(monitoring, "CACHE_SECONDS", 0)
    assert await found.problem() is None
    assert statements.count("COMMIT") == 2


@pytest.mark.parametrize(("free", "is_ready"), [(MIN_FREE_BYTES - 1, False), (MIN_FREE_BYTES, True)])
async def test_readiness_wants_room_on_the_disk(
    database: Database, monkeypatch: pytest.MonkeyPatch, free: int, is_ready: bool
) -> None:
    monkeypatch.setattr(monitoring, "free_bytes", lambda folder: free)
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
    monkeypatch.setattr(monitoring, "COMMIT_SECONDS", 0.01)
    assert await Readiness(database).problem() == "The database did not take a commit within 0.01 seconds"


async def test_readiness_ends_at_once_when_writing_halts(database: Database) -> None:
    found = Readiness(database)
    assert await found.problem() is None
    database.fail_stop(FailStop("something"))
    assert "an operator must look" in (await found.problem() or "")
