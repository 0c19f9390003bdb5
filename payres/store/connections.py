"""Connections to the database file: how the one that writes and those that read are opened."""

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from payres.store.database_file import DatabaseServed, check_not_linked, is_followed, server_lock
from payres.store.migrations import (
    UnusableDatabase,
    check_unaltered,
    check_usable,
    is_outdated,
    migrate,
    require_payres,
)

BUSY_TIMEOUT_SECONDS: Final = 4  # so that even then an answer takes less than 5 (Specification 9.1)


def connect_writer(path: str, is_locked: bool = False) -> sqlite3.Connection:
    """A connection that writes; creates and migrates the file first. `is_locked`: the caller has the server_lock.

    Then its schema must be what payres made. Otherwise an older file is migrated under that lock.
    Raises DatabaseServed when a server has it, UnusableDatabase, sqlite3.Error.
    """
    if path != ":memory:":
        check_not_linked(path)
        if is_followed(path):
            raise UnusableDatabase(
                f"Litestream writes {path}, which is a standby of another server's database ({path}-txid says so):"
                " serve it with `payres serve --read-only`, or make a server's database of it with `payres restore`"
            )
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        if not Path(path).exists():
            Path(path).touch(mode=0o600)  # it will hold secrets: never world-readable, not even for a moment
    return _connect(path, partial(_prepare_writer, path, is_locked))


def connect_reader(path: str) -> sqlite3.Connection:
    """A connection that cannot write."""
    return _connect(path, lambda connection: connection.execute("PRAGMA query_only = ON"))


def connect_examiner(path: str) -> sqlite3.Connection:
    """A connection that cannot write, for what walks through whole tables and sees each page once."""

    def prepare(connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA cache_size = -256")

    return _connect(path, prepare)


def connect_standby(path: str) -> sqlite3.Connection:
    """A connection that cannot write, to a file that is not this server's own. It is for one moment: see StandbyLane.

    Raises UnusableDatabase unless it is a database of payres of this version, sqlite3.Error.
    """

    def prepare(connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA query_only = ON")  # what is for memory alone, a temporary table say, too
        require_payres(connection)
        if is_outdated(connection):
            raise UnusableDatabase(
                "The database is of an older version and is only read here: run the payres that writes it, or a copy of"
                " it would have to be migrated"
            )

    return _connect(f"{Path(path).absolute().as_uri()}?mode=ro", prepare, is_uri=True)


def _connect(path: str, prepare: Callable[[sqlite3.Connection], object], is_uri: bool = False) -> sqlite3.Connection:
    # isolation_level=None: transactions begin where the code says so, never behind its back.
    connection = sqlite3.connect(
        path,
        timeout=BUSY_TIMEOUT_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
        uri=is_uri,
    )
    try:
        connection.execute("PRAGMA cache_size = -2048")  # 2 MiB for each connection; the system caches the file too
        connection.execute("PRAGMA temp_store = MEMORY")
        prepare(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare_writer(path: str, is_locked: bool, connection: sqlite3.Connection) -> None:
    check_usable(connection)  # before anything touches a file that is not for us
    _enter_wal(connection)
    connection.execute("PRAGMA synchronous = FULL")  # a commit survives power loss, not just a crash
    connection.execute("PRAGMA journal_size_limit = 67108864")
    if is_locked or not is_outdated(connection):
        migrate(connection)
    else:
        _migrate_unserved(path, connection)
    if is_locked:
        check_unaltered(connection)
    connection.execute("PRAGMA foreign_keys = ON")


def _migrate_unserved(path: str, connection: sqlite3.Connection) -> None:
    """Migrates a file that no server has: one of the older version would go on with statements for another schema."""
    try:
        with server_lock(path):
            migrate(connection)
    except DatabaseServed as error:
        if not is_outdated(connection):  # who had the lock was just migrating it
            return
        raise DatabaseServed(
            f"The database {path} is of an older version, and a payres serves it, or restores or migrates it: restart"
            " the server with this version first, then try again"
        ) from error


def _enter_wal(connection: sqlite3.Connection) -> None:
    """Write-ahead logging, with which readers go on while the writer commits; the file remembers it.

    SQLite does not always wait for the lock that the first change takes, so two programs that open a new file at once
    would fail each other.
    """
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
        else:
            return
        connection.execute("BEGIN EXCLUSIVE")  # this does wait for the others, and raises when that takes too long
        connection.execute("COMMIT")
