import sqlite3

import httpx2
import pytest

from payres.routes import health
from payres.store.database import Transaction
from payres.testing.instance import Instance


def test_health_is_ok_while_the_database_answers(shared: Instance, stranger: httpx2.Client) -> None:
    answer = stranger.get(f"{shared.base_url}/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    assert answer.headers["cache-control"] == "no-store"


def test_health_says_why_not_when_the_database_does_not_answer(
    shared: Instance, stranger: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(tx: Transaction) -> bool:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(health, "answers", broken)
    answer = stranger.get(f"{shared.base_url}/healthz")
    assert answer.status_code == 503
    assert answer.json() == {
        "status": "unavailable",
        "reason": "The server could not use its storage. Try again shortly",
    }
    monkeypatch.undo()
    assert stranger.get(f"{shared.base_url}/healthz").status_code == 200
