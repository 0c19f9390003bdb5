"""Migrations: numbered SQL files that take a database from one `PRAGMA user_version` to the next.

A new database is made from `schema.sql` at once. A database with a higher version than this program knows is refused.
"""

import re
import sqlite3
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path


class UnusableDatabase(Exception):  # noqa: N818 - names what was found
    """The file is not one that this program may use; the text says why and what to do."""


class NewerDatabase(UnusableDatabase):
    """The file was written by a later payres; the text names both versions."""


class ForeignDatabase(UnusableDatabase):
    """The file is another program's."""


def migrate(connection: sqlite3.Connection) -> None:
    """Brings the database to the newest version, in one transaction. Raises UnusableDatabase, sqlite3.Error.

    Foreign keys must be off on this connection, or a step could not rebuild a table that others refer to; they are
    checked as a whole before the commit.
    """
    steps = migrations()
    newest = max(steps)
    if _version(connection) == newest:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        refuse_unusable(connection)
        found = _version(connection)  # again, now that no other process can be migrating
        scripts = [schema()] if found == 0 else [steps[n] for n in range(found + 1, newest + 1)]
        for script in scripts:
            execute_script(connection, script)
        if connection.execute("PRAGMA foreign_key_check").fetchone() is not None:
            raise sqlite3.IntegrityError("after the migration some rows would refer to rows that do not exist")
        connection.execute(f"PRAGMA user_version = {newest:d}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def refuse_unusable(connection: sqlite3.Connection) -> None:
    """Raises UnusableDatabase when a later payres or another program wrote the file; changes nothing."""
    # One statement, one snapshot: another payres may be making the tables at this moment.
    is_foreign = connection.execute(
        "SELECT user_version = 0 AND EXISTS (SELECT 1 FROM sqlite_master) FROM pragma_user_version"
    ).fetchone()[0]
    if is_foreign:
        raise ForeignDatabase("The file is a database of another program: name a file of its own for payres")
    found, newest = _version(connection), max(migrations())
    if found > newest:
        raise NewerDatabase(
            f"The database has version {found}, this payres knows versions up to {newest}: "
            "install the payres that wrote it, or restore a backup from before the upgrade"
        )


def schema() -> str:
    """The text of schema.sql: beside the package in a wheel, at the top of the tree in a checkout."""
    packaged = files("payres") / "schema.sql"
    if packaged.is_file():
        return packaged.read_text(encoding="utf-8")
    return (Path(__file__).parents[3] / "schema.sql").read_text(encoding="utf-8")


def migrations() -> dict[int, str]:
    """The migration scripts by the version they lead to."""
    return {int(_number(file)): file.read_text(encoding="utf-8") for file in files(__name__).iterdir() if _number(file)}


def execute_script(connection: sqlite3.Connection, script: str) -> None:
    """Runs the statements inside the open transaction; `executescript` would commit it first."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""
    connection.execute(statement)  # a last one without its semicolon is run or refused, not left out


def _number(file: Traversable) -> str:
    match = re.fullmatch(r"(\d{4})_\w+\.sql", file.name)
    return match[1] if match else ""


def _version(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version
