import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from payres.store import connections as store
from payres.store.work import Transaction

Command = Callable[..., Result]
Json = Callable[..., Any]

CREATE = ("wallet", "create", "alice", "--asset", "USD", "--scale", "2")


def one_sentence(result: Result) -> str:
    assert result.exit_code == 1
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return line


@pytest.mark.parametrize(
    "arguments",
    [
        ("wallet", "list", "--database", "other/shop.db"),
        ("--database", "other/shop.db", "wallet", "list"),
        ("--database", "wrong.db", "wallet", "list", "--database", "other/shop.db"),
    ],
)
def test_database_is_taken_before_and_after_the_subcommand(payres: Command, arguments: tuple[str, ...]) -> None:
    payres(*CREATE, "--database", "other/shop.db")
    result = payres(*arguments)
    assert result.stdout == "http://127.0.0.1:8080/alice  0.00 USD\n"


def test_flag_counts_before_environment_before_file(
    payres: Command, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("payres.toml").write_text('database = "file.db"')
    payres(*CREATE)
    assert Path("file.db").exists()
    monkeypatch.setenv("PAYRES_DATABASE", "environment.db")
    payres(*CREATE)
    assert Path("environment.db").exists()
    payres(*CREATE, "--database", "flag.db")
    assert Path("flag.db").exists()
    assert not database.exists()


def test_bad_setting_is_one_sentence(payres: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAYRES_PORT", "many")
    assert "PAYRES_PORT = 'many'" in one_sentence(payres(*CREATE))
    monkeypatch.delenv("PAYRES_PORT")
    monkeypatch.setenv("PAYRES_COLOUR", "blue")
    assert "PAYRES_COLOUR (environment) is not a setting" in one_sentence(payres(*CREATE))


def test_file_that_is_no_database_is_one_sentence(payres: Command, database: Path) -> None:
    database.write_text("not a database, but long enough to be taken for one" * 10)
    assert one_sentence(payres("wallet", "list")) == (
        "Error: The database payres.db cannot be used: file is not a database"
    )


def test_newer_database_is_one_sentence(payres: Command, database: Path) -> None:
    connection = sqlite3.connect(database)
    connection.execute("PRAGMA user_version = 99999")
    connection.close()
    assert "The database has version 99999" in one_sentence(payres("wallet", "list"))


def test_path_that_cannot_be_made_is_one_sentence(payres: Command) -> None:
    Path("file").write_text("")
    assert one_sentence(payres(*CREATE, "--database", "file/shop.db")).startswith("Error: file")


def test_busy_database_is_one_sentence(payres: Command, tx: Transaction, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "BUSY_TIMEOUT_SECONDS", 0.01)
    tx.execute("BEGIN IMMEDIATE")
    assert one_sentence(payres(*CREATE)) == (
        "Error: The database payres.db cannot be used: another program holds it; try again"
    )
    tx.execute("ROLLBACK")


def test_refused_command_changes_nothing(payres: Command, as_json: Json) -> None:
    payres(*CREATE)
    one_sentence(payres("wallet", "create", "bob", "--asset", "E R", "--scale", "2"))
    assert [one["path"] for one in as_json("wallet", "list")["wallets"]] == ["alice"]


def test_what_a_command_commits_is_there_for_a_connection_that_is_open_already(
    payres: Command, tx: Transaction
) -> None:
    assert tx.execute("SELECT count(*) FROM wallet_address").fetchone() == (0,)
    payres(*CREATE)
    assert tx.execute("SELECT count(*) FROM wallet_address").fetchone() == (1,)
