"""The proxies of deploy/, run as they stand there but for ports and certificates, before a real server."""

import http.client
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.helpers import ROOT, TIMEOUT, child, usd, wait_until
from tests.http_server import free_port
from tests.testing.sandboxes import Sandbox, started

UPSTREAM = "127.0.0.1:8080"


def caddy(folder: Path, text: str, port: int) -> Sequence[str]:
    text = text.replace("pay.example.com {", f"http://127.0.0.1:{port} {{").replace(
        "{\n\tservers", "{\n\tadmin off\n\tservers"
    )
    (folder / "Caddyfile").write_text(text, encoding="utf-8")
    return ["caddy", "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]


def nginx(folder: Path, text: str, port: int) -> Sequence[str]:
    kept = [line for line in text.splitlines() if "ssl_certificate" not in line]
    site = "\n".join(kept).replace("listen 443 ssl", f"listen 127.0.0.1:{port}")
    paths = "".join(f"{kind}_temp_path {folder};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    main = f"daemon off; master_process off; pid {folder}/pid; events {{}} http {{ access_log off; {paths}\n{site}\n}}"
    (folder / "nginx.conf").write_text(main, encoding="utf-8")
    return ["nginx", "-e", "stderr", "-p", str(folder), "-c", str(folder / "nginx.conf")]


@pytest.fixture(scope="module", params=[(caddy, "Caddyfile"), (nginx, "nginx.conf")], ids=["caddy", "nginx"])
def behind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A sandbox whose base URL is that of the proxy."""
    command_of: Callable[[Path, str, int], Sequence[str]]
    command_of, name = request.param
    if shutil.which(command_of.__name__) is None:
        pytest.skip(f"{command_of.__name__} is not installed")
    own, outside, folder = free_port(), free_port(), tmp_path_factory.mktemp("proxy")
    text = (ROOT / "deploy" / name).read_text(encoding="utf-8")
    assert UPSTREAM in text
    command = command_of(folder, text.replace(UPSTREAM, f"127.0.0.1:{own}"), outside)
    environment = os.environ | {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    options = ("--port", str(own), "--base-url", f"http://127.0.0.1:{outside}", "--consent", "approve")
    with (
        child(command, env=environment, stderr=subprocess.DEVNULL),
        started(folder, *options) as (_, line),
        Sandbox(line) as sandbox,
    ):
        wait_until(lambda: is_up(sandbox))
        yield sandbox


def is_up(sandbox: Sandbox) -> bool:
    try:
        return httpx2.get(sandbox.bob, timeout=TIMEOUT).status_code == 200
    except httpx2.TransportError:
        return False


def test_requests_pass_as_they_were_signed(behind: Sandbox) -> None:
    bill = behind.app.create_incoming_payment(behind.bob, usd(500))
    assert behind.app.pay(behind.alice, bill["id"])["sentAmount"]["value"] == "500"
    token = behind.app.grant({"type": "incoming-payment", "actions": ["create", "read"]})
    odd = behind.app.post("/incoming-payments?a=%2e%2E%2f%C3%BC&&b=+//", {"walletAddress": behind.bob}, token)
    assert odd.status_code == 201
    waited = behind.app.request(
        "GET", odd.json()["id"].removeprefix(behind.base_url), None, token, {"Prefer": "wait=1"}
    )
    assert waited.status_code == 200
    assert {one["verifier"]["verdict"] for one in behind.ask("GET", "/requests")["requests"]} <= {"valid", "unsigned"}


def test_what_a_client_says_of_its_address_is_not_believed(behind: Sandbox) -> None:
    """The control API is for this machine alone, from which the proxy was asked."""
    for name in ("X-Forwarded-For", "X-Real-IP", "Forwarded"):
        assert behind.control.get("/wallets/bob", headers={name: "203.0.113.7"}).status_code == 200


def test_operators_api_is_not_outside(behind: Sandbox) -> None:
    address = urlsplit(behind.base_url).netloc
    asked = http.client.HTTPConnection(address, timeout=TIMEOUT)
    asked.request("GET", "/admin/v1/payments", headers=behind.token)
    assert asked.getresponse().status == 404
    asked.close()


def test_long_bodies_get_the_answer_of_payres(behind: Sandbox) -> None:
    answer = httpx2.post(behind.base_url, content=b" " * 100_000, timeout=TIMEOUT)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")
