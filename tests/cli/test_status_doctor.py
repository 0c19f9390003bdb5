import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from payres.operator import peers
from payres.operator.upkeep import doctor
from tests.cli.conftest import Command
from tests.http_server import reply, serving
from tests.instance import Instance, run_instance
from tests.tls import server_tls
from tests.works import add_usd_peer

CLOCK = doctor._clock
Found = Callable[[], dict[str, Any]]


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with run_instance(tmp_path_factory.mktemp("doctor") / "payres.db") as running:
        yield running


@pytest.fixture
def findings(payres: Command, instance: Instance, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """The findings of `payres doctor` about the instance at a base URL, by subject; the last of each."""

    def run(base_url: str = instance.base_url) -> dict[str, Any]:
        monkeypatch.setenv("PAYRES_BASE_URL", base_url)
        monkeypatch.setenv("PAYRES_PORT", instance.base_url.rpartition(":")[2])
        monkeypatch.setenv("PAYRES_DATABASE", instance.context.database.path)
        result = payres("doctor")
        lines = [line for line in result.stdout.splitlines() if not line.startswith("     ")]
        shown = {line[5:].partition(": ")[0]: line[:3] + line[5:].partition(": ")[2] for line in lines}
        assert result.exit_code == int(any(seen.startswith("FIX") for seen in shown.values()))
        return shown

    # The clock of this machine is not tested.
    monkeypatch.setattr("payres.operator.upkeep.doctor._clock", lambda: iter(()))
    return run


def test_server_and_address_of_another_database_are_not_taken_for_this_one(
    findings: Callable[..., dict[str, Any]], instance: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with run_instance(tmp_path / "other.db") as other:
        monkeypatch.setattr(instance, "base_url", other.base_url)  # its port
        found = findings(other.base_url)
    assert found["server"].startswith(f"FIXit runs, but {other.base_url} is that of another database than ")
    assert found["public address"] == f"FIX{other.base_url}/ is a payres with another database than this one"


@contextmanager
def proxy(answer: Callable[[BaseHTTPRequestHandler], None], tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """The public address, at which something other than the server answers."""
    with serving(answer, tls) as port:
        yield f"{'http' if tls is None else 'https'}://localhost:{port}"


def test_server_that_is_well(findings: Callable[..., dict[str, Any]], instance: Instance) -> None:
    found = findings()
    assert all(seen.startswith("ok ") for seen in found.values())
    assert found["public address"] == f"ok {instance.base_url}/ is this server"
    assert found["server"].startswith("ok it runs and can take payments")
    assert found["keep-alive"] == f"ok {instance.base_url}/ answers two requests on one connection"


def test_clock_that_no_client_sets_is_a_warning(
    findings: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "timedatectl"
    program.write_text("#!/bin/sh\necho no\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(doctor, "_clock", CLOCK)
    assert findings()["clock"] == "WARno NTP client sets the clock of this machine"


def test_no_server(payres: Command, database: Path) -> None:
    payres("init")
    result = payres("doctor")
    assert result.exit_code == 1
    assert f"FIX  server: no server runs on {database.name}\n     Start it: `payres serve`" in result.stdout


@pytest.mark.parametrize(
    ("answer", "seen"),
    [
        (
            lambda handler: reply(handler, 301, Location="https://pay.example.com/"),
            "redirects to https://pay.example.com/",
        ),
        (lambda handler: reply(handler, 502, b"<html>"), "is answered 502, and not by payres"),
        (lambda handler: reply(handler, 200, b'{"a": "\xff"}'), "is answered 200, and not by payres"),
        (lambda handler: reply(handler, 200, b'{"a":' * 10**5), "is answered 200, and not by payres"),
        (
            lambda handler: reply(handler, 200, b'{"grant_request_endpoint": "https://other.example/"}'),
            "is a payres whose base_url is https://other.example/",
        ),
    ],
)
def test_public_address_that_is_not_this_server(
    findings: Callable[..., dict[str, Any]], answer: Callable[[BaseHTTPRequestHandler], None], seen: str
) -> None:
    with proxy(answer) as url:
        assert seen in findings(url)["public address"]


def test_peer_whose_server_is_stopped_is_not_well(findings: Callable[..., dict[str, Any]], instance: Instance) -> None:
    def seen_at(url: str) -> str:
        instance.write(lambda work: work.execute("UPDATE peer SET url = ?", (url,)).fetchall())
        return str(findings()["peer bank"])

    instance.write(lambda work: add_usd_peer(work, "bank", "10.00"))
    with proxy(lambda handler: reply(handler, 405)) as url:
        assert seen_at(f"{url}/ilp") == f"ok {url}/ilp answers"
    with proxy(lambda handler: reply(handler, 502)) as url:
        assert seen_at(f"{url}/ilp") == f"FIX{url}/ilp is answered 502"
    assert seen_at("http://127.0.0.1:1/ilp").startswith("FIXhttp://127.0.0.1:1/ilp does not answer: ")
    assert seen_at("http://127.0.0.1:1/ilp").endswith("The connection to 127.0.0.1:1 failed; check that it is up")
    assert seen_at("http://no-such.invalid/").endswith("The name no-such.invalid has no address")
    instance.write(lambda work: peers.remove_peer(work, "bank"))


def test_public_address_that_nobody_answers(findings: Callable[..., dict[str, Any]]) -> None:
    assert "http://127.0.0.1:1/ does not answer" in findings("http://127.0.0.1:1")["public address"]


def described(handler: BaseHTTPRequestHandler, scheme: str = "http") -> None:
    """The answer of a proxy in front of the server."""
    reply(handler, 200, f'{{"grant_request_endpoint": "{scheme}://{handler.headers["Host"]}/"}}'.encode())


@pytest.mark.parametrize(("version", "seen"), [("HTTP/1.0", "FIX"), ("HTTP/1.1", "ok ")])
def test_proxy_that_closes_connections_or_keeps_them(
    findings: Callable[..., dict[str, Any]], version: str, seen: str
) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        # Nothing in the answer says that the connection will be closed.
        handler.close_connection = version == "HTTP/1.0"
        handler.protocol_version = "HTTP/1.1"
        described(handler)

    with proxy(answer) as url:
        found = findings(url)["keep-alive"]
    assert found.startswith(seen)
    assert found.endswith("closes idle ones after 75 seconds, so the proxy must close its own earlier") is (
        seen == "ok "
    )


@pytest.mark.parametrize(("days", "seen"), [(2, "FIX"), (13, "WAR"), (16, "ok ")])
def test_certificate_that_nobody_has_renewed(
    findings: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int, seen: str
) -> None:
    pem = tmp_path / "server.pem"
    tls = server_tls(pem, "localhost", timedelta(days=90 - days), timedelta(days=days))
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    monkeypatch.setattr(doctor, "trust", doctor.trust.__wrapped__)
    with proxy(lambda handler: described(handler, "https"), tls) as url:
        assert findings(url)["TLS"].startswith(f"{seen}the certificate ends ")
        assert f": {days} of 90 days are left" in findings(url)["TLS"]


@pytest.mark.parametrize("date", ["yesterday", "Tue, 01 Jan 99999 00:00:00 GMT", ""])
def test_proxy_whose_time_cannot_be_read(findings: Callable[..., dict[str, Any]], date: str) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.date_time_string = lambda timestamp=None: date  # type: ignore[method-assign]
        described(handler)

    with proxy(answer) as url:
        assert "clock" not in findings(url)


def test_proxy_that_removes_slashes_and_has_another_time(findings: Callable[..., dict[str, Any]]) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        if handler.command == "OPTIONS":
            handler.date_time_string = lambda timestamp=None: "Tue, 01 Jan 2030 00:00:00 GMT"  # type: ignore[method-assign]
            described(handler)
        else:
            reply(handler, 308, Location=handler.path.rstrip("/"))

    with proxy(answer) as url:
        found = findings(url)
    assert "is answered 308" in found["paths"]
    assert "seconds off" in found["clock"]
