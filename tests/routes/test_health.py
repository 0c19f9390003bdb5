import sqlite3
from contextlib import closing
from itertools import count
from pathlib import Path

import httpx2
import pytest

from payres.routes import monitoring
from payres.store.work import Transaction
from payres.testing.instance import Instance, run_instance

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
        monkeypatch.setattr(monitoring, "CACHE_SECONDS", 0)
        answer = anonymous.get(f"{instance.base_url}/readyz")
        assert (answer.status_code, answer.json()["details"]) == (503, {"walBytes": 0, "restoredAt": None})
        (tmp_path / "elsewhere").rename(tmp_path / "payres.db-wal")
