"""`GET /healthz` and `GET /readyz`: whether the server lives, and whether it can take payments."""

import asyncio
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import pytest

from payres.core.protocol.errors import Unavailable
from payres.core.store.work import FailStop, Transaction
from payres.operator.limits import MIN_FREE_BYTES
from payres.operator.upkeep import monitoring, readiness
from tests.instance import Instance, run_instance
from tests.traces import trace

LOG_BYTES = 1000 * 4096  # after which SQLite begins the log anew when nobody reads what is in it


@pytest.fixture
def payres(tmp_path: Path) -> Iterator[Instance]:
    """One that may be made unwell, and was not asked yet."""
    with run_instance(tmp_path / "payres.db") as instance:
        yield instance


def reason(payres: Instance) -> str | None:
    """Why no payments can be taken, if so."""
    answer = httpx2.get(f"{payres.base_url}/readyz")
    assert answer.status_code == (503 if "reason" in answer.json() else 200)
    found: str | None = answer.json().get("reason")
    return found


def test_health_is_ok_while_the_database_answers(shared: Instance, anonymous: httpx2.Client) -> None:
    answer = anonymous.get(f"{shared.base_url}/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    assert answer.headers["cache-control"] == "no-store"


def test_health_says_why_not_when_the_database_does_not_answer(
    shared: Instance, anonymous: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(tx: Transaction) -> bool:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(monitoring, "answers", broken)
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


def test_ready_commits_and_not_for_each_who_asks(payres: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    statements: list[str] = []
    payres.write(lambda work: trace(work, statements.append))
    for seconds, commits in ((1000, 1), (0, 9)):
        monkeypatch.setattr(readiness, "CACHE_SECONDS", seconds)
        with ThreadPoolExecutor(8) as threads:
            assert set(threads.map(reason, [payres] * 8)) == {None}
        assert sum("user_version =" in statement for statement in statements) == commits


@pytest.mark.parametrize(("free", "problem"), [(MIN_FREE_BYTES - 1, "less than 64 MiB free"), (MIN_FREE_BYTES, "None")])
def test_ready_wants_room_on_the_disk(
    payres: Instance, monkeypatch: pytest.MonkeyPatch, free: int, problem: str
) -> None:
    monkeypatch.setattr(readiness, "free_bytes", lambda folder: free)
    assert str(reason(payres)).endswith(problem)


async def refuse(unit: Any) -> None:
    raise Unavailable("The disk is full")


async def wait(unit: Any) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("write", "problem"),
    [(refuse, "The disk is full"), (wait, "The database did not take a commit within 0.01 seconds")],
)
def test_ready_tells_why_there_is_no_commit_and_does_not_wait_long(
    payres: Instance, monkeypatch: pytest.MonkeyPatch, write: Any, problem: str
) -> None:
    monkeypatch.setattr(payres.context.database, "write", write)
    monkeypatch.setattr(readiness, "COMMIT_SECONDS", 0.01)
    assert reason(payres) == problem
    monkeypatch.undo()


def test_ready_ends_at_once_when_writing_halts(payres: Instance) -> None:
    assert reason(payres) is None
    payres.context.database.fail_stop(FailStop("something"))
    assert "an operator must look" in str(reason(payres))


def test_ready_shows_the_log_that_a_long_reader_makes_grow(
    payres: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def details() -> Any:
        return httpx2.get(f"{payres.base_url}/readyz").json()["details"]

    numbers = count()
    with closing(sqlite3.connect(tmp_path / "payres.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM wallet_address").fetchall()
        assert details()["walBytes"] == (tmp_path / "payres.db-wal").stat().st_size
        while details()["walBytes"] < 2 * LOG_BYTES:
            for number in range(300):
                payres.create_wallet(f"w{next(numbers)}", name="x" * 100 + str(number))
    (tmp_path / "payres.db-wal").rename(tmp_path / "elsewhere")
    monkeypatch.setattr(readiness, "CACHE_SECONDS", 0)
    assert reason(payres) is not None
    assert details() == {"walBytes": 0, "restoredAt": None}
    (tmp_path / "elsewhere").rename(tmp_path / "payres.db-wal")
