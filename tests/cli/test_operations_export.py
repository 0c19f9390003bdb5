import csv
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import CREATE, Command
from tests.helpers import free_of_settings


@pytest.fixture(autouse=True)
def deposits(payres: Command) -> None:
    payres(*CREATE)
    payres("wallet", "deposit", "alice", "10.00")
    payres("wallet", "withdraw", "alice", "2.50")


def test_days_and_times_bound_an_export(payres: Command) -> None:
    def kinds(*options: str) -> list[str]:
        printed = payres("export", "ledger", "--wallet", "alice", *options).stdout
        return [row["kind"] for row in csv.DictReader(printed.splitlines())]

    assert kinds("--from", "2026-01-31") == ["deposit", "withdrawal"]
    assert kinds("--to", "2026-01-31T09:30:00+02:00") == []


def test_empty_export_has_its_header(payres: Command) -> None:
    assert payres("export", "payments").stdout.startswith('"direction","id","walletAddress","state",')


def test_export_needs_no_standard_error(database: Path) -> None:
    command = f"{sys.executable} -m payres export ledger --database {database} 2>&-"
    ran = subprocess.run(command, shell=True, stdout=subprocess.PIPE, text=True, check=False, env=free_of_settings())
    assert (ran.returncode, len(ran.stdout.splitlines())) == (0, 3)


def test_full_disk_is_an_error_in_a_sentence(payres: Command, database: Path) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "payres", "export", "ledger", "--database", str(database)]
        environment = free_of_settings()
        ran = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=environment)
    assert (ran.returncode, ran.stderr) == (1, "Error: Standard output: No space left on device\n")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("payments", "--from", "yesterday"), "“yesterday” is no day. Write it like 2026-11-24"),
        (("payments", "--json"), "use --format jsonl"),
        (("ledger", "--from", "2026-02-01", "--to", "2026-02-01"), "from must be before to"),
    ],
)
def test_mistake_is_explained_and_nothing_is_printed(payres: Command, options: tuple[str, ...], sentence: str) -> None:
    result = payres("export", *options)
    assert result.exit_code != 0
    assert sentence in result.stderr
    assert result.stdout == ""
