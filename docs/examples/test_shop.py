"""Tests of an app with `payres sandbox`: one for all tests, as new before each."""

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

Sandbox = tuple[dict[str, Any], httpx2.Client]


@pytest.fixture(scope="session")
def server() -> Iterator[dict[str, Any]]:
    command = os.environ.get("PAYRES", "payres sandbox").split()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        yield json.loads(process.stdout.readline())
        process.stdin.close()


@pytest.fixture
def sandbox(server: dict[str, Any]) -> Iterator[Sandbox]:
    headers = {"Authorization": f"Bearer {server['control_token']}"}
    with httpx2.Client(base_url=server["control_url"], headers=headers) as control:
        control.post("/reset", json={}).raise_for_status()
        yield server, control


def test_alice_has_money(sandbox: Sandbox) -> None:
    _, control = sandbox
    assert control.get("/wallets/alice").json()["balance"] == "1000.00"


def test_the_app_meets_a_busy_server(sandbox: Sandbox) -> None:
    server, control = sandbox
    control.post("/faults", json={"fault": "unavailable", "wallet": "alice"}).raise_for_status()
    address = server["wallets"]["alice"]["address"]
    assert [httpx2.get(address).status_code for _ in range(2)] == [503, 200]
    requests = control.get("/requests", params={"wallet": "alice"}).json()["requests"]
    assert [one["fault"] for one in requests] == ["unavailable", None]
