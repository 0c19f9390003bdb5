"""`payres sandbox` as a process: its options, how it starts, and how it ends."""

import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from payres.core.protocol.limits import MAX_WAIT_SECONDS
from tests.helpers import TIMEOUT, child, free_of_settings, is_refused, wait_until
from tests.testing.sandboxes import Sandbox, started
from tests.webhooks.endpoint import Endpoint


def test_ends_with_standard_input_and_by_signals(tmp_path: Path) -> None:
    for number, how in enumerate(("stdin", "terminate")):
        folder = tmp_path / str(number)
        folder.mkdir()
        with started(folder) as (process, line):
            assert process.stdin is not None
            assert len(list(folder.iterdir())) == 1, "its folder, and no database of settings"
            (process.stdin.close if how == "stdin" else process.terminate)()
            assert process.wait(TIMEOUT) == 0
            assert is_refused(urlsplit(line["base_url"]).port or 0)
        assert list(folder.iterdir()) == []


@pytest.mark.parametrize("stdin", ["< /dev/null", "<&-"])
def test_ends_with_its_parent(tmp_path: Path, stdin: str) -> None:
    script = f"{sys.executable} -m payres sandbox {stdin} & sleep 300"
    with child(["sh", "-c", script], stdout=subprocess.PIPE, env=free_of_settings(TMPDIR=str(tmp_path))) as process:
        assert process.stdout is not None
        port = urlsplit(json.loads(process.stdout.readline())["base_url"]).port or 0
        assert not is_refused(port), "only a pipe or socket that was open ends it"
        process.kill()
        wait_until(lambda: is_refused(port), seconds=TIMEOUT)
        wait_until(lambda: list(tmp_path.iterdir()) == [], seconds=TIMEOUT)


def test_start_that_fails_says_why(one: Sandbox) -> None:
    for options, why in [
        (("--port", str(urlsplit(one.base_url).port)), "The sandbox did not start: "),
        (("--set", "quote_lifetime=0"), "quote_lifetime = '0' (set) is not allowed: it must be a whole number"),
        (("--set", "database=mine.db"), "database is the sandbox's own"),
        (("--set", "colour"), "write NAME=VALUE"),
        (("--base-url", "http://host/path"), "must have no path"),
        (("--token", "a b"), "letters, digits"),
        (("--webhook", "shop"), "must be an absolute http or https URL"),
    ]:
        command = [sys.executable, "-m", "payres", "sandbox", *options]
        done = subprocess.run(command, env=free_of_settings(), capture_output=True, text=True, timeout=TIMEOUT)
        assert (done.returncode, done.stdout) == (2, ""), options
        assert why in done.stderr


def test_options_and_what_killed_sandboxes_have_left(tmp_path: Path) -> None:
    killed, young = tmp_path / "payres-sandbox-1", tmp_path / "payres-sandbox-2"
    for folder in (killed, young):
        folder.mkdir()
    os.utime(killed, (0, 0))
    options = ["--token", "T", "--set", "quote_lifetime=60", "--log", "info"]
    named = ["--host", "0.0.0.0", "--base-url", "http://payres.test:8080", "--control-from", "203.0.113.0/24"]
    with started(tmp_path, *options, *named, "--keep", stderr=subprocess.PIPE) as (process, line):
        assert not killed.exists()
        assert young.exists(), "its process may not have come to lock it"
        assert (line["base_url"], line["control_token"]) == ("http://payres.test:8080", "T")
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.close()
        own = next(one for one in tmp_path.glob("payres-sandbox-*/") if one != young)
        os.utime(own, (0, 0))
        with started(tmp_path):
            assert own.exists(), "it is locked"
        sent = f"http://127.0.0.1:{_port_of(process)}"
        for address, host, status in [
            ("203.0.113.7", "payres.test:8080", 200),
            ("203.0.113.7", "attacker.test", 404),
            ("203.0.114.7", "payres.test:8080", 404),
        ]:
            headers = {"Authorization": "Bearer T", "Host": host, "X-Forwarded-For": address}
            assert httpx2.get(f"{sent}/_sandbox", headers=headers).status_code == status
        process.terminate()
        assert process.wait(TIMEOUT) == 0


def test_consent_by_flag_and_a_baseline_that_resets_return_to(tmp_path: Path) -> None:
    with started(tmp_path, "--consent", "deny") as (_, line), Sandbox(line) as sandbox:
        assert "grant_rejected" in str(sandbox.open(sandbox.redirect()))
        sandbox.ask("PUT", "/wallets/carol", {"balance": "5.00"})
        assert sandbox.ask("POST", "/baseline", {}) == {"generation": 1}
        sandbox.ask("PUT", "/wallets/carol", {"balance": "6.00"})
        sandbox.redirect()
        sandbox.ask("POST", "/reset", {})
        assert sandbox.balance("carol") == "5.00"
        assert "grant_rejected" in str(sandbox.open(sandbox.redirect()))


def test_webhook_of_all_servers_keeps_its_secret(tmp_path: Path) -> None:
    with Endpoint().running() as endpoint:
        options = ("--webhook", endpoint.url, "--peers", "2", "--set", "allow_private_hosts=false")
        with started(tmp_path, *options) as (_, line), Sandbox(line) as sandbox:
            for servers in ([sandbox, *sandbox.peers],) * 2:
                endpoint.received.clear()
                for server in servers:
                    server.ask("PUT", "/wallets/alice", {"balance": "1.00"})
                for received in endpoint.wait_for(2):
                    assert received.verified(line["webhook"]["secret"])["type"] == "wallet.withdrawn"
                sandbox.ask("POST", "/reset", {})
            shown = [server.line["webhook"] for server in servers]
            listed = [server.admin.get("/webhooks").json()["result"][0] for server in servers]
            assert [(one["id"], one["url"]) for one in shown] == [(one["id"], endpoint.url) for one in listed]


def _port_of(process: "subprocess.Popen[str]") -> int:
    """Where a process listens."""
    inodes = {os.readlink(one) for one in Path(f"/proc/{process.pid}/fd").iterdir()}
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return next(int(row[1].split(":")[1], 16) for row in rows if f"socket:[{row[9]}]" in inodes and row[3] == "0A")


def test_fault_of_a_client_that_has_gone_is_no_fault_of_the_sandbox(tmp_path: Path) -> None:
    with started(tmp_path, stderr=subprocess.PIPE) as (process, line), Sandbox(line) as sandbox:
        sandbox.ask("POST", "/faults", {"fault": "no_answer", "seconds": 0.2})
        address = urlsplit(sandbox.base_url)
        token = f"Host: {address.netloc}\r\nAuthorization: {sandbox.token['Authorization']}\r\n"
        for head in (
            f"POST /_sandbox/reset HTTP/1.1\r\n{token}Content-Length: 2\r\n",
            "GET /alice HTTP/1.1\r\nHost: x\r\n",
        ):
            with socket.create_connection((address.hostname, address.port), timeout=TIMEOUT) as connection:
                connection.sendall(f"{head}\r\n".encode())
        [asked] = sandbox.ask("GET", f"/requests?wait={MAX_WAIT_SECONDS}")["requests"]
        assert asked["fault"] == "no_answer"
        assert process.stdin is not None
        process.stdin.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_end_while_it_writes_tells_nobody_to_look(tmp_path: Path) -> None:
    with started(tmp_path, stderr=subprocess.PIPE) as (process, line), Sandbox(line) as sandbox:
        made = list[int]()

        def write(number: int) -> None:
            with suppress(httpx2.TransportError):  # until it ends
                for wallet in range(1000):
                    if sandbox.control.put(f"/wallets/w-{number}-{wallet}", json={}).is_success:
                        made.append(wallet)

        with ThreadPoolExecutor(8) as threads:
            writing = [threads.submit(write, number) for number in range(8)]
            [folder] = tmp_path.iterdir()
            for number in range(2000):  # so that removing it takes a while
                (folder / f"{number}").touch()
            wait_until(lambda: len(made) > 20)
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(TIMEOUT) == 0
            assert [one.exception() for one in writing] == [None] * 8
        assert process.stderr is not None
        assert process.stderr.read() == ""
