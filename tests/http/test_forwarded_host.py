"""A base URL that only this machine reaches, behind a proxy that serves a public name."""

import logging
from pathlib import Path

import httpx2
import pytest

from payres.testing.instance import Instance, run_instance

PUBLIC = "pay.example"


def ask(instance: Instance, forwarded: str) -> None:
    headers = {b"x-forwarded-host": forwarded.encode("latin-1")}
    assert httpx2.get(f"{instance.base_url}/healthz", headers=headers, verify=False).status_code == 200


def test_public_name_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with run_instance(tmp_path / "payres.db") as instance, caplog.at_level(logging.WARNING, "payres.http"):
        for _ in range(3):
            ask(instance, f"{PUBLIC}, proxy.internal")
            ask(instance, "other.example")
        [record] = caplog.records
        assert f"X-Forwarded-Host: '{PUBLIC}, proxy.internal', but base_url is {instance.base_url}" in record.message


@pytest.mark.parametrize(
    "forwarded",
    ["127.0.0.1:8080", "localhost", "app.localhost:80", "[::1]:8080", "", "[", ":", "localhost, other.example"],
)
def test_name_of_this_machine_is_not(shared: Instance, caplog: pytest.LogCaptureFixture, forwarded: str) -> None:
    with caplog.at_level(logging.WARNING, "payres.http"):
        ask(shared, forwarded)
    assert not caplog.records


def test_long_name_is_cut_and_cannot_forge_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with run_instance(tmp_path / "payres.db") as instance, caplog.at_level(logging.WARNING, "payres.http"):
        ask(instance, "\x85\xa0é" + "a" * 4000 + ".example")
        [record] = caplog.records
    assert len(record.message) < 300
    assert record.message.isprintable()


def test_public_base_url_is_what_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with run_instance(tmp_path / "payres.db", base_url="https://pay.example") as instance:
        address = instance._server._listener.getsockname()[1]
        with caplog.at_level(logging.WARNING, "payres.http"):
            headers = {"x-forwarded-host": "other.example"}
            assert httpx2.get(f"http://127.0.0.1:{address}/healthz", headers=headers, verify=False).status_code == 200
    assert not caplog.records
