"""Databases of the newest version and of older ones, and versions after them that are made up."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path

import pytest

from payres.core.store import migrations
from tests.helpers import ROOT

NEWEST = max(migrations.migrations())
SCHEMA = migrations.schema()
FIRST_SCHEMA = (ROOT / "tests/version_19.sql").read_text(encoding="utf-8")


@contextmanager
def plain(path: str | Path) -> Iterator[sqlite3.Connection]:
    """A connection that payres did not prepare, without transactions of its own accord."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def make_newest(path: str | Path, *statements: str) -> None:
    """A database of the newest version that is not made up, with what the statements change in it."""
    with plain(path) as connection:
        connection.executescript(SCHEMA)
        connection.execute(f"PRAGMA user_version = {NEWEST}")
        for statement in statements:
            connection.execute(statement)


@cache
def _version(number: int) -> sqlite3.Connection:
    """An empty database of a version in memory, made of the one before."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    if number > migrations.FIRST:
        _version(number - 1).backup(connection)
    script = migrations.migrations()[number] if number > migrations.FIRST else FIRST_SCHEMA
    migrations.execute_script(connection, script)
    connection.execute(f"PRAGMA user_version = {number}")
    return connection


def make_version(connection: sqlite3.Connection, number: int) -> None:
    """Gives an empty database the schema of a version."""
    _version(number).backup(connection)


def make_up(patch: pytest.MonkeyPatch, folder: Path, *scripts: str) -> int:
    """Lets the program know more versions, by files in the folder; the number of the last."""
    folder.mkdir()
    versions = migrations.migrations() | dict(enumerate(scripts, NEWEST + 1))
    for number, script in versions.items():
        (folder / f"{number:04}_made_up.sql").write_text(script)
    patch.setattr(migrations, "FOLDER", folder)
    patch.setattr(migrations, "schema", lambda: "\n".join([SCHEMA, *scripts]))
    patch.setattr(migrations, "migrations", migrations.migrations.__wrapped__)
    return max(versions)
