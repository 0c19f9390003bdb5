import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from click.testing import CliRunner, Result

from payres.cli import main
from payres.core.process.settings import Settings
from payres.core.store.connections import connect_writer
from payres.core.store.work import Environment, Work
from tests.helpers import set_system_config


class Command(Protocol):
    """Runs `payres` with these arguments on the database of the test."""

    def __call__(self, *arguments: str, input: str | None = None) -> Result: ...  # noqa: A002 - click's own name


# Makes the database, too.
CREATE = ("wallet", "create", "alice", "--asset", "USD", "--scale", "2", "--create")
# Runs a command with --json that must succeed, and returns the one object that it prints.
AsJson = Callable[..., Any]


def rows_in(text: str) -> list[list[str]]:
    """The non-empty cells of a table that a command printed."""
    return [re.split(" {2,}", line.strip()) for line in text.splitlines()]


def facts_in(text: str) -> dict[str, str]:
    """The values that a command printed for one thing, by label."""
    return {cells[0]: "  ".join(cells[1:]) for cells in rows_in(text)}


def rows_of(result: Result) -> list[list[str]]:
    return rows_in(result.stdout)


def facts_of(result: Result) -> dict[str, str]:
    return facts_in(result.stdout)


def one_sentence(result: Result) -> str:
    """The sentence of a command that failed and printed nothing else."""
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    return line


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of a database that does not exist yet, in an empty working directory and without PAYRES_* variables."""
    for name in [name for name in os.environ if name.startswith("PAYRES_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "payres.db"


@pytest.fixture
def etc(database: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that replaces /etc/payres in this test."""
    folder = database.parent / "etc"
    folder.mkdir()
    set_system_config(monkeypatch, folder / "payres.toml")
    return folder


@pytest.fixture
def payres(database: Path) -> Command:
    """Runs a command in this process; an exception that is not click's own fails the test."""

    def run(*arguments: str, input: str | None = None) -> Result:  # noqa: A002 - click's own name
        result = CliRunner().invoke(main, arguments, input=input, catch_exceptions=False)
        assert "Traceback" not in result.output
        return result

    return run


@pytest.fixture
def as_json(payres: Command) -> AsJson:
    def run(*arguments: str) -> Any:
        result = payres(*arguments, "--json")
        assert result.exit_code == 0, result.stderr
        printed = json.loads(result.stdout)
        assert isinstance(printed, dict)
        return printed

    return run


@pytest.fixture
def tx(database: Path) -> Iterator[Work]:
    """A connection to the database of the test, autocommitting as a server beside the commands would."""
    connection = connect_writer(str(database))
    yield Work(connection, Environment.of(Settings()))
    connection.close()
