"""Migrations: numbered SQL files in this folder that take a database from one `PRAGMA user_version` to the next.

A new database is created from `schema.sql`. A version higher than the newest known is an error. Before an older
database is changed, its tables are copied without rows and migrated, which must give `schema.sql`; then it is copied.

A change of `schema.sql` needs a new file with the statements that make the change.
"""

import logging
import re
import sqlite3
from contextlib import closing
from functools import cache, lru_cache
from pathlib import Path
from typing import Final

from payres.core.protocol.visible import as_read
from payres.core.store.copies import copied, examine, remove_partial, rename, side_file

log = logging.getLogger("payres.store")

FOLDER = Path(__file__).parent
FIRST: Final = 19  # the oldest version that is migrated; lower ones were never released

Definitions = dict[tuple[str, str], str]  # definitions by kind and name
_OF_LITESTREAM = {("table", "_litestream_seq"), ("table", "_litestream_lock")}  # Litestream adds these
_NO_MATTER = re.compile('--.*|"')  # comments, and SQLite's quotes around renamed tables
_STEP = re.compile(r"(\d{4})_\w+\.sql")


class UnusableDatabase(Exception):
    """This program must not use the file: another program's, newer, altered, damaged or in use.

    The text says which, and what to do.
    """


def migrate(connection: sqlite3.Connection, keep_copy: bool = True) -> None:
    """Migrates the database to the newest version, in one transaction. Raises UnusableDatabase, sqlite3.Error.

    Foreign keys must be off on this connection, so that a step can rebuild a referenced table; they are all checked
    before the commit. An older database must be unaltered, and if it is a file, a verified copy is stored beside it.
    """
    steps = migrations()
    newest = max(steps)
    if version_of(connection) == newest:
        return
    connection.execute("BEGIN IMMEDIATE")
    kept: Path | None = None
    try:
        check_usable(connection)
        found = version_of(connection)  # again: another process may have migrated it before the lock
        check_unaltered(connection)
        if keep_copy and 0 < found < newest:
            kept = _keep_copy(connection, newest)
        for script in [schema()] if found == 0 else [steps[n] for n in range(found + 1, newest + 1)]:
            execute_script(connection, script)
        if connection.execute("PRAGMA foreign_key_check").fetchone() is not None:
            raise sqlite3.IntegrityError("after the migration some rows would refer to rows that do not exist")
        connection.execute(f"PRAGMA user_version = {newest:d}")
        connection.execute("COMMIT")
    except BaseException as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if kept is not None and isinstance(error, sqlite3.Error):
            sentence = f"the migration to version {newest} failed and nothing was changed; {kept} is a copy: {error}"
            raise type(error)(sentence) from error
        raise
    if found > 0:
        message = f"Migrated the database from version {found} to {newest}"
        # A warning, because commands have no log, and logging prints warnings to standard error.
        log.warning(message if kept is None else f"{message}; {kept} is a copy from before")


def migrate_copy(path: Path) -> None:
    """Migrates a copy of a database, which remains one file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate(connection, keep_copy=False)


def check_usable(connection: sqlite3.Connection) -> None:
    """Raises UnusableDatabase if another program wrote the file, or a payres too old or new. Changes nothing."""
    # One statement, one snapshot: another payres may be creating the tables right now.
    is_foreign = connection.execute(
        "SELECT user_version = 0 AND EXISTS (SELECT 1 FROM sqlite_master) FROM pragma_user_version"
    ).fetchone()[0]
    if is_foreign:
        raise UnusableDatabase("The file is a database of another program: name a file of its own for payres")
    found, newest = version_of(connection), max(migrations())
    if found < 0:
        raise UnusableDatabase(f"The database has version {found}, which no payres writes: restore a backup of it")
    if 0 < found < FIRST:
        raise UnusableDatabase(
            f"The database has version {found}, and this payres knows versions from {FIRST} on: open it once with the"
            " last development version that knew it, then try again"
        )
    if found > newest:
        raise UnusableDatabase(
            f"The database has version {found}, this payres knows versions up to {newest}: "
            "install the payres that wrote it, or restore a backup from before the upgrade"
        )


def require_payres(connection: sqlite3.Connection) -> None:
    """Raises UnusableDatabase unless this payres or an earlier one made the database."""
    check_usable(connection)
    tables = "SELECT count(*) FROM sqlite_schema WHERE name IN ('account', 'transfer', 'wallet_address')"
    if version_of(connection) == 0 or connection.execute(tables).fetchone() != (3,):
        raise UnusableDatabase("The file is not a database of payres")


def check_unaltered(connection: sqlite3.Connection) -> None:
    """Raises UnusableDatabase unless the database, which is not newer, has the schema of its version."""
    difference = first_difference(connection)
    if difference is not None:
        raise UnusableDatabase(f"The database is not as payres made it: {difference}. Undo that, or restore a backup")


def first_fault(connection: sqlite3.Connection) -> str | None:
    """The first fault of a file of any version, in pages, indexes, constraints, references or schema; or None."""
    (word,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if word != "ok":
        return str(word)
    dangling = connection.execute("PRAGMA foreign_key_check").fetchone()
    if dangling:
        return f"a row of {dangling[0]} refers to a missing {dangling[2]}"
    return first_difference(connection)


def first_difference(connection: sqlite3.Connection) -> str | None:
    """The first table, index, trigger or view that is missing, unknown or different, if need be after the migration; or
    None."""
    version = version_of(connection)
    if version == 0:
        return None
    expected = _schema_made_by(schema())
    try:
        found = _migrated_schema(connection) if version < max(migrations()) else _schema_of(connection)
    except sqlite3.Error as error:
        return f"its tables cannot be migrated from version {version}: {error}"
    for kind, name in sorted(expected.keys() | found.keys(), key=lambda key: (key[0] != "table", key)):
        if (kind, name) not in found:
            return f"the {kind} {name!r} is missing"
        if (kind, name) not in expected:
            return f"the {kind} {name!r} is not one of payres"
        if found[kind, name] != expected[kind, name]:
            return f"the {kind} {name!r} is not the one that payres made"
    return None


@cache
def schema() -> str:
    """The text of schema.sql: next to the package in a wheel, at the top of the tree in a checkout."""
    packaged, in_checkout = (Path(__file__).parents[up] / "schema.sql" for up in (3, 4))
    return (packaged if packaged.is_file() else in_checkout).read_text(encoding="utf-8")


@cache
def migrations() -> dict[int, str]:
    """The scripts by the version that they lead to, in order."""
    named = ((_STEP.fullmatch(file.name), file) for file in sorted(FOLDER.iterdir()))
    return {int(match[1]): file.read_text(encoding="utf-8") for match, file in named if match}


def version_of(connection: sqlite3.Connection) -> int:
    """The version of the database; 0 if it is empty."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def is_outdated(connection: sqlite3.Connection) -> bool:
    """Whether an earlier payres made the database, so that opening it for writing would migrate it."""
    return 0 < version_of(connection) < max(migrations())


def execute_script(connection: sqlite3.Connection, script: str) -> None:
    """Runs the statements in the open transaction; `executescript` would commit it first. They may call `as_read`."""
    connection.create_function("as_read", 1, as_read, deterministic=True)
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if ";" in line and sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""
    connection.execute(statement)  # a last statement without a semicolon is not skipped


@lru_cache(maxsize=1)
def _schema_made_by(script: str) -> Definitions:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as fresh:
        execute_script(fresh, script)
        return _schema_of(fresh)


def _migrated_schema(connection: sqlite3.Connection) -> Definitions:
    """The schema that the migration of a database will give, found without its rows. Raises sqlite3.Error."""
    found = version_of(connection)
    ours = "sql <> '' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    made = connection.execute(f"SELECT sql FROM sqlite_schema WHERE {ours} ORDER BY type <> 'table'").fetchall()
    steps = [script for version, script in migrations().items() if version > found]
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as empty:
        for script in [*(statement for (statement,) in made), *steps]:
            execute_script(empty, script)
        return _schema_of(empty)


def _schema_of(connection: sqlite3.Connection) -> Definitions:
    """The schema without objects of SQLite and Litestream, comments and spaces, which depend on a column's age."""
    rows = connection.execute(
        "SELECT type, name, coalesce(sql, '') FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    )
    ours = (row for row in rows if row[:2] not in _OF_LITESTREAM)
    return {(kind, name): _compared(sql) for kind, name, sql in ours}


@lru_cache(maxsize=1024)  # what is expected and what is found are mostly the same texts
def _compared(sql: str) -> str:
    return "".join(_NO_MATTER.sub("", sql).split())


def _keep_copy(connection: sqlite3.Connection, newest: int) -> Path:
    """A verified copy beside the database. The connection's lock keeps all writers out.

    Replaces the copy of an earlier attempt at this migration, and deletes the leftovers of killed attempts: a server
    that restarts again and again must not fill the disk.
    """
    database = Path(connection.execute("SELECT file FROM pragma_database_list WHERE name = 'main'").fetchone()[0])
    kept = side_file(database, f".before-version-{newest}")
    remove_partial(database, ".before-version-*")
    with copied(database, beside=kept) as partial:
        fault = examine(partial, first_fault)
        if fault is not None:
            raise UnusableDatabase(f"The database is damaged and was not migrated: {fault}. Restore a backup of it")
        rename(partial, kept)
    return kept
