import json
import signal
import socket
import struct
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from payres import __version__
from payres.cli.server import _bound
from payres.core.process.settings import Settings
from payres.core.store.connections import connect_writer
from payres.settings import ALL_SETTINGS, load_settings, settings_with
from tests.cli.conftest import CREATE, AsJson, Command, one_sentence
from tests.helpers import (
    TIMEOUT,
    announced,
    check_log_of_a_clean_end,
    child,
    free_of_settings,
    is_refused,
    read_to_end,
    wait_until,
)


def serving(*options: str, **settings: str) -> AbstractContextManager["subprocess.Popen[str]"]:
    """A server in its own process, which ends with the block at the latest; its database is made before."""
    if "--demo" not in options and "--database" not in options:
        connect_writer(settings.get("PAYRES_DATABASE", "payres.db")).close()
    command = [sys.executable, "-m", "payres", "serve", "--port", "0", *options]
    return child(command, env=free_of_settings() | settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def quiet(*options: str) -> AbstractContextManager["subprocess.Popen[str]"]:
    return serving("--quiet", "--json", *options)


def fetch(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=TIMEOUT) as response:
        assert "server" not in response.headers
        assert "date" in response.headers
        return json.load(response)


def test_init_writes_a_file_that_changes_nothing_and_creates_the_database(as_json: AsJson, database: Path) -> None:
    made = {"config": "payres.toml", "configWritten": True, "database": "payres.db", "databaseCreated": True}
    assert as_json("init") == made
    assert database.exists()
    assert tomllib.loads(Path("payres.toml").read_text()) == {}
    assert Path("payres.toml").stat().st_mode & 0o777 == 0o600
    assert load_settings() == settings_with({})


def test_init_again_leaves_everything_as_it_is(payres: Command, as_json: AsJson) -> None:
    payres(*CREATE)
    Path("payres.toml").write_text("port = 9000\n")
    answer = as_json("init")
    assert (answer["configWritten"], answer["databaseCreated"]) == (False, False)
    assert Path("payres.toml").read_text() == "port = 9000\n"
    assert len(as_json("wallet", "list")["wallets"]) == 1


def test_init_with_a_database_writes_it_down(payres: Command, database: Path) -> None:
    assert payres("init", "--database", 'my "shop".db').exit_code == 0
    assert load_settings().database == 'my "shop".db'
    assert Path('my "shop".db').exists()
    assert not database.exists()


def test_init_of_a_database_that_other_commands_do_not_use_is_warned_of(payres: Command) -> None:
    Path("payres.toml").write_text('database = "one.db"\n')
    assert payres("init").stderr == ""
    assert payres("init", "--database", "two.db").stderr.startswith("Warning: other commands use one.db")


def test_template_shows_every_setting_with_its_default() -> None:
    text = (files("payres.cli") / "payres.toml").read_text(encoding="utf-8")
    shown = "\n".join(line.removeprefix("# ") for line in text.splitlines() if " = " in line)
    assert settings_with(tomllib.loads(shown)) == settings_with({})
    assert tomllib.loads(shown).keys() == ALL_SETTINGS.keys()


def open_alice(payres: Command) -> None:
    """A wallet without a password: `--demo` hashes passwords with the full work of Argon2."""
    assert payres(*CREATE).exit_code == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_answers_and_stops_cleanly(payres: Command, number: signal.Signals) -> None:
    open_alice(payres)
    with quiet() as process:
        ready = announced(process)
        assert ready["wallets"] == 1
        assert fetch(f"{ready['baseUrl']}/alice")["id"] == f"{ready['baseUrl']}/alice"
        process.send_signal(number)
        _, errors = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 0
        check_log_of_a_clean_end(errors)


def test_serve_logs_each_request(payres: Command) -> None:
    open_alice(payres)
    with serving("--json", PAYRES_LOG_FORMAT="json") as process:
        fetch(f"{announced(process)['baseUrl']}/alice?token=secret")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=TIMEOUT)
    lines = [json.loads(line) for line in errors.splitlines()]
    assert {line["level"] for line in lines} == {"INFO"}
    (line,) = [line for line in lines if line["logger"] == "payres.requests"]
    assert (line["method"], line["path"], line["status"]) == ("GET", "/alice", 200)


def test_serve_makes_no_database_and_says_where_others_are(
    payres: Command, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("shop/shop.db", "other.db"):
        Path(name).parent.mkdir(exist_ok=True)
        payres("init", "--database", name)
    Path("notes.db").write_text("no database")
    Path("wrong").mkdir()
    monkeypatch.chdir("wrong")
    line = one_sentence(payres("serve", "--port", "0"))
    assert line.startswith(f"Error: There is no database at {database.parent}/wrong/payres.db (")
    assert "Make one with `payres init`" in line
    assert line.endswith(f"or name another with --database PATH, such as {database.parent}/other.db")
    line = one_sentence(payres("serve", "--port", "0", "--database", "/nonexistent/x.db"))
    made = "Make one with `payres init --database /nonexistent/x.db`, or"
    assert line.startswith(f"Error: There is no database at /nonexistent/x.db (--database names it). {made}")
    assert not Path("/nonexistent").exists()
    assert not any(Path().iterdir())


def test_commands_use_the_base_url_that_the_server_runs_with_and_a_changed_one_is_told(
    payres: Command, as_json: AsJson, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_alice(payres)
    monkeypatch.setenv("PAYRES_BASE_URL", "http://127.0.0.1:9")  # of another server
    with quiet() as process:
        first = announced(process)["baseUrl"]
        fetch(f"{first}/alice")  # it has started
        process.terminate()
        process.communicate(timeout=TIMEOUT)
    assert as_json("wallet", "show", "alice")["walletAddress"] == "http://127.0.0.1:9/alice", "it does not run"
    with quiet("--base-url", "http://localhost:7") as process:
        announced(process)
        assert process.stderr is not None
        line = process.stderr.readline()
        told = "the base URL is now http://localhost:7: 1 wallet had addresses at"
        assert line.endswith(f"WARNING payres.operator: {told} {first}; clients and keys know them by these\n")
        assert payres("wallet", "reset-link", "alice").stdout.startswith("http://localhost:7/")
        found = payres("doctor").stdout
    assert "FIX  base URL: base_url is http://127.0.0.1:9 here, and the server runs with http://localhost:7\n" in found
    entry = as_json("audit", "list")["entries"][1]
    assert (entry["actor"], entry["action"], entry["object"]) == ("server", "server.base_url", "http://localhost:7")
    assert entry["details"] == {"before": first}


def test_serve_stops_cleanly_when_it_has_hardly_begun(payres: Command) -> None:
    payres("init")
    with quiet() as process:
        announced(process)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, output) == (0, "")
    if errors:  # it was in progress
        check_log_of_a_clean_end(errors)


def test_serve_cuts_what_is_under_way_at_a_second_signal(payres: Command) -> None:
    """The request gets no answer, since its outcome is not known; the log gets no traceback."""
    payres("init")
    with quiet() as process:
        address = urlsplit(announced(process)["baseUrl"])
        with socket.create_connection((address.hostname, address.port), timeout=TIMEOUT) as connection:
            head = b"POST / HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n"
            connection.sendall(head + b"expect: 100-continue\r\ncontent-length: 2\r\n\r\n")
            assert connection.recv(1024) == b"HTTP/1.1 100 Continue\r\n\r\n"  # the endpoint waits for the body
            process.send_signal(signal.SIGINT)
            wait_until(lambda: is_refused(address.port or 0), "the server still takes connections")
            process.send_signal(signal.SIGINT)
            assert read_to_end(connection) == b""
        _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0
    check_log_of_a_clean_end(errors)
    assert not [*Path().glob("payres.db-*")]  # SQLite's files, which do not exist after a clean close


def strange_connections() -> Iterator[tuple[bytes, str]]:
    """What anybody can send without access, and when they disconnect."""
    start = b"POST / HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n"
    offer = b"GET /healthz HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
    refused = [b"garbage\r\n\r\n", b"\x16\x03\x01\x02\x00", b"GET / HTTP/1.1\r\n\r\n", b"GET /" + b"a" * 2**16]
    yield from ((sent, "at the end") for sent in [*refused, offer + b"garbage\r\n\r\n"])
    yield start + b"expect: 100-continue\r\ntransfer-encoding: chunked\r\n\r\nno length\r\n", "at the end"
    yield start + b"content-length: 100\r\n\r\n{", "at once"
    yield start + b"expect: 100-continue\r\ncontent-length: 100\r\n\r\n", "in the middle"
    yield b"GET /alice HTTP/1.1\r\nhost: h\r\n\r\n" * 100, "in the middle"


def test_serve_logs_nothing_that_clients_send(payres: Command) -> None:
    """A line for each would let anybody fill the disk; a traceback for each would hide the others."""
    open_alice(payres)
    with quiet() as process:
        address = urlsplit(announced(process)["baseUrl"])
        for sent, end in [*strange_connections()] * 5:
            with socket.create_connection((address.hostname, address.port), timeout=TIMEOUT) as connection:
                connection.sendall(sent)
                if end == "at the end":
                    assert b"HTTP/1.1 4" in read_to_end(connection)
                    continue
                if end == "in the middle":
                    connection.recv(1)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # with a reset
        process.terminate()
        _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0
    check_log_of_a_clean_end(errors)


def test_serve_sees_what_a_command_commits(payres: Command, database: Path) -> None:
    with quiet() as process:
        ready = announced(process)
        assert ready["wallets"] == 0
        payres("wallet", "create", "carol", "--asset", "USD", "--scale", "2")
        assert fetch(f"{ready['baseUrl']}/carol")["assetCode"] == "USD"
        assert payres("ledger", "check").exit_code == 0


def test_serve_demo_opens_wallets_once_and_tells_newcomers_what_to_do(payres: Command, as_json: AsJson) -> None:
    for _ in range(2):
        with serving("--demo", "--quiet") as process:
            assert process.stdout is not None
            text = [process.stdout.readline() for _ in range(9)]
            consent = httpx2.get(text[6].split()[-1], timeout=TIMEOUT, headers={"Accept": "text/html"})
        assert text[0].startswith(f"payres {__version__} serves http://127.0.0.1:")
        assert text[2].endswith("/alice  USD 1000.00, password alice-demo\n")
        assert text[3].endswith("/bob  USD 0.00, password bob-demo\n")
        base_url = text[0].split()[3]
        assert text[4] == f"Their owners sign in at {base_url}/account\n"
        there = base_url.replace("127.0.0.1", "localhost")
        assert text[5] == f"Passkeys need a name: set PAYRES_BASE_URL={there} to try them there\n"
        assert (consent.status_code, "Demo shop" in consent.text) == (200, True)
        assert text[7].startswith(f"The operator's pages, from another terminal: PAYRES_BASE_URL={base_url} ")
        assert text[7].endswith("payres admin link\n")
        assert text[8].startswith(f"Try next: curl {base_url}")
    assert [one["path"] for one in as_json("wallet", "list")["wallets"]] == ["alice", "bob"]


def test_serve_demo_keeps_out_of_a_database_in_use(payres: Command, as_json: AsJson) -> None:
    payres("wallet", "create", "alice", "--asset", "EUR", "--scale", "2", "--password", "my password", "--create")
    with quiet("--demo") as process:
        ready = announced(process)
    assert (ready["wallets"], ready["demoWallets"]) == (1, [])
    assert as_json("wallet", "show", "alice")["balance"] == "0.00"


@pytest.mark.parametrize(
    ("options", "at_fault"),
    [
        (["--host", "0.0.0.0"], "host = 0.0.0.0"),
        (["--host", "192.0.2.1"], "host = 192.0.2.1"),
        (["--host", "::"], "host = ::"),
        (["--host", "pay.example"], "host = pay.example"),
        (["--host", "0.0.0.0", "--base-url", "http://127.0.0.1:8080"], "host = 0.0.0.0"),
        (["--base-url", "https://pay.example"], "base_url = https://pay.example"),
        (["--base-url", "http://127.0.0.1.pay.example:8080"], "base_url = http://127.0.0.1.pay.example:8080"),
        (["--base-url", "http://192.168.1.5"], "base_url = http://192.168.1.5"),
    ],
)
def test_serve_demo_is_for_this_machine_alone(
    payres: Command, database: Path, options: list[str], at_fault: str
) -> None:
    sentence = one_sentence(payres("serve", "--demo", "--port", "0", *options))
    assert f"{at_fault} is reached from other machines" in sentence
    assert "without --demo" in sentence
    assert not database.exists()


@pytest.mark.parametrize(
    "options", [["--host", "localhost"], ["--host", "::1"], ["--base-url", "http://alice.localhost:8080"]]
)
def test_serve_demo_takes_every_name_of_this_machine(payres: Command, options: list[str]) -> None:
    open_alice(payres)
    with quiet("--demo", *options) as process:
        assert announced(process)["wallets"] == 1


def test_serve_on_a_port_in_use_is_one_sentence(payres: Command) -> None:
    payres("init")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        sentence = one_sentence(payres("serve", "--port", str(taken.getsockname()[1])))
    assert sentence.startswith("Error: Port ")
    assert "is in use" in sentence


@pytest.mark.parametrize(
    ("host", "why"), [("no..name", ": "), ("a" * 64, ": "), ("192.0.2.1", "; choose another with --host")]
)
def test_serve_on_what_is_no_address_of_this_machine_is_one_sentence(payres: Command, host: str, why: str) -> None:
    payres("init")
    sentence = one_sentence(payres("serve", "--host", host, "--port", "0"))
    assert sentence.startswith(f"Error: The host {host} is not an address of this machine{why}")


def test_port_is_taken_before_anything_is_made_and_listens_after() -> None:
    with _bound(Settings(port=0)) as listener:
        port = listener.getsockname()[1]
        assert is_refused(port)
        listener.listen()
        assert not is_refused(port)
