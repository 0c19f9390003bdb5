import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.conftest import CREATE, Command
from tests.http_server import free_port, reply, serving


@contextmanager
def answering(restored_at: str | None) -> Iterator[str]:
    """A base URL with a server whose database was restored at this time."""
    body = json.dumps({"details": {"restoredAt": restored_at}}).encode()
    with serving(lambda handler: reply(handler, 200, body)) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def followed(payres: Command, database: Path) -> Path:
    """A database with a wallet; `standby.db` is the file that Litestream writes."""
    assert payres(*CREATE).exit_code == 0
    assert payres("wallet", "deposit", "alice", "10.00").exit_code == 0
    standby = database.with_name("standby.db")
    standby.write_bytes(database.read_bytes())
    Path(f"{standby}-txid").write_text("0000000000000001\n")
    return standby


def test_commands_read_what_litestream_writes_and_change_nothing(payres: Command, followed: Path) -> None:
    before = followed.read_bytes()
    assert "10.00" in payres("wallet", "show", "alice", "--database", str(followed)).output
    assert payres("ledger", "check", "--database", str(followed)).exit_code == 0
    assert payres("backup", "copy.db", "--database", str(followed)).exit_code == 0
    assert payres("ledger", "check", "--database", "copy.db").exit_code == 0
    assert "a read-only standby" in payres("status", "--database", str(followed)).output
    for arguments in (("wallet", "deposit", "alice", "1.00"), ("serve", "--port", "0"), ("restore", "payres.db")):
        refused = payres(*arguments, "--database", str(followed))
        assert refused.exit_code == 1
        assert "Litestream writes" in refused.output
    assert followed.read_bytes() == before


def test_doctor_says_when_litestream_brings_nothing_more(payres: Command, followed: Path) -> None:
    def finding() -> str:
        found = json.loads(payres("doctor", "--json", "--database", str(followed)).stdout)["findings"]
        (fix,) = [one["fix"] for one in found if one["subject"] == "standby"]
        return fix or ""

    assert finding() == ""
    os.utime(followed, (0, followed.stat().st_mtime - 600))
    assert finding().startswith("Restart litestream-follow")


def test_commands_change_nothing_where_only_reading_is_allowed(
    payres: Command, followed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAYRES_READ_ONLY", "true")
    refused = payres("wallet", "deposit", "alice", "1.00")
    assert (refused.exit_code, "run this on the primary server" in refused.output) == (1, True)
    assert "10.00" in payres("wallet", "show", "alice").output


def test_standby_becomes_the_database_of_a_server(payres: Command, followed: Path) -> None:
    assert payres("restore", str(followed), "--database", "promoted.db").exit_code == 0
    assert payres("wallet", "deposit", "alice", "1.00", "--database", "promoted.db").exit_code == 0
    logged = json.loads(payres("audit", "list", "--json", "--database", "promoted.db").stdout)
    assert "database.restore" in {entry["action"] for entry in logged["entries"]}


def test_server_that_was_replaced_stays_stopped_until_it_is_restored(payres: Command, followed: Path) -> None:
    def serve(base_url: str, exit_code: int = 3) -> str:
        refused = payres("serve", "--base-url", base_url, "--port", str(free_port()))
        assert refused.exit_code == exit_code
        return refused.output

    with answering("2026-01-01T00:00:00.000Z") as base_url:
        assert "It has taken this one's place" in serve(base_url)
    # The other server does not answer now, as during a restart.
    assert f"Another server has taken this one's place: {base_url} was" in serve(base_url)
    (finding,) = (line for line in payres("doctor").stdout.splitlines() if line.startswith("FIX"))
    assert "another server has taken this one's place" in finding
    assert "restored at 2026-01-01 00:00 UTC, as was found at " in finding
    assert "no server runs" not in payres("doctor").stdout
    deposit = payres("wallet", "deposit", "alice", "1.00")
    assert deposit.exit_code == 1
    assert "Leave this one stopped" in deposit.stderr
    assert payres("backup", "own.db").exit_code == 0
    assert payres("restore", "own.db").exit_code == 0
    assert payres("wallet", "deposit", "alice", "1.00").exit_code == 0
    with answering("2026-01-01T00:00:00.000Z") as base_url:
        assert "Stop that one for good" in serve(base_url, exit_code=1)


@pytest.mark.parametrize(
    ("there", "here", "exit_code", "advice"),
    [
        ("9999-01-01T00:00:00.000Z", "payres.db", 3, "leave this one stopped"),
        (None, "promoted.db", 1, "Stop that one for good"),
    ],
    ids=["the old one", "the new one"],
)
def test_server_does_not_start_beside_one_of_another_state(
    payres: Command, followed: Path, there: str | None, here: str, exit_code: int, advice: str
) -> None:
    assert payres("restore", str(followed), "--database", "promoted.db").exit_code == 0
    with answering(there) as base_url:
        port = str(free_port())
        refused = payres("serve", "--base-url", base_url, "--port", port, "--database", here)
    assert refused.exit_code == exit_code
    assert f"Another payres takes payments at {base_url}" in refused.output
    assert advice in refused.output
