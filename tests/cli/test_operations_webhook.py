"""`payres webhook`, with and without a running server."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from payres.cli import main
from payres.core.store.connections import connect_writer
from payres.webhooks import deliveries
from tests.helpers import Json, wait_until
from tests.instance import run_instance
from tests.webhooks.endpoint import Endpoint, answering

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a command on an existing database."""
    path = str(tmp_path / "payres.db")
    connect_writer(path).close()

    def invoke(*words: str, status: int = 0) -> Result:
        result = CliRunner().invoke(main, ["--database", path, "webhook", *words])
        assert result.exit_code == status, result.output
        return result

    return invoke


def shown(result: Result) -> Any:
    return json.loads(result.stdout)


def test_add_prints_the_secret_once(run: Run) -> None:
    made = shown(run("add", "https://shop.example/hook", "--events", "grant.*,liquidity.low", "--json"))
    assert re.fullmatch(r"whsec_[A-Za-z0-9+/]{43}=", made.pop("secret"))
    assert made["url"] == "https://shop.example/hook"
    assert made["events"] == ["grant.*", "liquidity.low"]
    assert shown(run("list", "--json")) == {"webhooks": [made]}
    assert "whsec" not in run("list").stdout
    assert "whsec_" in run("add", "https://shop.example/hook").stdout


def test_test_sends_an_event_and_tells_the_answer(run: Run, endpoint: Endpoint) -> None:
    made = shown(run("add", endpoint.url, "--private", "--events", "grant.*", "--json"))
    found = shown(run("test", made["id"], "--json"))
    [received] = endpoint.received
    assert received.verified(made["secret"])["data"] == {"webhook": made["id"], "url": endpoint.url}
    assert found == {"event": received.event["id"], "webhook": made["id"], "status": 200, "error": None}
    endpoint.answer = answering(503)
    failed = run("test", made["id"], "--json", status=1)
    assert "answered with 503" in failed.stderr
    assert json.loads(failed.stdout)["status"] == 503
    [listed] = shown(run("list", "--json"))["webhooks"]
    assert (listed["lastStatus"], listed["lastError"]) == (503, "It was answered with 503")
    assert "503" in run("list").stdout


def test_server_that_runs_sends_what_commands_ask_for(
    tmp_path: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "LOOK_SECONDS", 0.02)
    path = tmp_path / "payres.db"

    def run(*words: str) -> Json:
        result = CliRunner().invoke(main, ["--database", str(path), *words, "--json"])
        assert result.exit_code == 0, result.output
        found: Json = json.loads(result.stdout)
        return found

    def states() -> list[str]:
        return [one["state"] for one in run("webhook", "deliveries")["deliveries"]]

    with run_instance(path):
        made = run("webhook", "add", endpoint.url, "--private")
        run("wallet", "deposit", "alice", "1.00")
        [received] = endpoint.wait_for(1)
        endpoint.answer = answering(410, 200)
        run("wallet", "deposit", "alice", "2.00")
        wait_until(lambda: states() == ["failed"])
        text = CliRunner().invoke(main, ["--database", str(path), "webhook", "deliveries", made["id"]]).stdout
        assert "failed" in text
        assert "answered with 410" in text
        run("webhook", "test", made["id"])
        assert run("webhook", "replay", "--failed", "--webhook", made["id"]) == {"deliveries": 1}
        wait_until(lambda: states() == ["delivered"])
        count = len(endpoint.received)
        assert run("webhook", "replay", received.event["id"]) == {"deliveries": 1}
        wait_until(lambda: received.body in [one.body for one in endpoint.received[count:]])
