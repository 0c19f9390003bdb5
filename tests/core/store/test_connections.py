import os
import sqlite3
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from payres.application import create_app
from payres.cli import main
from payres.core.process.settings import Settings
from payres.core.store import connections
from payres.core.store.connections import DatabaseServed, connect_writer, server_lock
from payres.core.store.migrations import UnusableDatabase, migrate, version_of
from tests.versions import make_newest

pytestmark = pytest.mark.usefixtures("made_anew")


def test_a_link_to_the_database_is_the_same_database(tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "payres.db")
    with server_lock(str(link)), pytest.raises(DatabaseServed):
        server_lock(str(tmp_path / "payres.db")).__enter__()


@pytest.mark.parametrize("name", ["payres.db", "other.db", "symbolic.db"])
def test_database_with_two_names_is_refused_by_each(tmp_path: Path, name: str) -> None:
    database = tmp_path / "payres.db"
    connect_writer(str(database)).close()
    os.link(database, tmp_path / "other.db")
    (tmp_path / "symbolic.db").symlink_to(database)
    before = database.read_bytes()
    path = str(tmp_path / name)
    with pytest.raises(match=r"has 2 names, which are hard links: .* remove the others"):
        server_lock(path).__enter__()
    with pytest.raises(UnusableDatabase, match="has 2 names, which are hard links"):
        connect_writer(path)
    assert database.read_bytes() == before
    assert {file.name for file in tmp_path.iterdir()} == {"payres.db", "other.db", "symbolic.db"}
    (tmp_path / "other.db").unlink()
    with server_lock(str(database)):
        connect_writer(str(database)).close()


def test_databases_in_memory_are_not_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with server_lock(":memory:"), server_lock(":memory:"):
        assert list(tmp_path.iterdir()) == []


@pytest.fixture
def older(tmp_path: Path, second_version: int) -> str:
    """A database that an earlier payres left, whose version is one below the newest."""
    database = str(tmp_path / "payres.db")
    make_newest(database)
    assert version(database) == second_version - 1
    return database


def version(database: str) -> int:
    with closing(sqlite3.connect(database)) as connection:
        return version_of(connection)


def test_older_database_is_not_migrated_under_a_server_and_a_command_says_to_restart_that_first(
    older: str, tmp_path: Path, second_version: int
) -> None:
    command = ["wallet", "list", "--database", older]
    with server_lock(older):
        refused = CliRunner().invoke(main, command)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr == (
        f"Error: The database {older} is of an older version, and a payres serves it, or restores or migrates it:"
        " restart the server with this version first, then try again\n"
    )
    assert version(older) == second_version - 1
    assert {file.name for file in tmp_path.iterdir()} <= {
        *("payres.db", "payres.db-shm", "payres.db-wal", "payres.db.lock")
    }
    assert (CliRunner().invoke(main, command).exit_code, version(older)) == (0, second_version)


def test_lock_is_held_while_a_command_migrates_and_no_longer(older: str, monkeypatch: pytest.MonkeyPatch) -> None:
    held = []

    def migrate_and_try(connection: sqlite3.Connection) -> None:
        with pytest.raises(DatabaseServed):
            server_lock(older).__enter__()
        held.append(True)
        migrate(connection)

    monkeypatch.setattr(connections, "migrate", migrate_and_try)
    with closing(connect_writer(older)), server_lock(older):
        assert held == [True]


def test_one_that_was_migrated_while_the_lock_was_tried_is_opened(
    older: str, second_version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lock_of_one_who_migrates(path: str) -> AbstractContextManager[None]:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            migrate(other)
        raise DatabaseServed("someone migrates it")

    monkeypatch.setattr(connections, "server_lock", lock_of_one_who_migrates)
    with closing(connect_writer(older)) as connection:
        assert version_of(connection) == second_version


async def test_server_migrates_under_the_lock_that_it_has(older: str, second_version: int) -> None:
    app = create_app(Settings(database=older))
    async with app.router.lifespan_context(app):
        assert version(older) == second_version
