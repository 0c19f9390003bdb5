"""Connections to the database file; the lock of its one server; and that its path names it, and it alone.

The lock is on a file beside the database and is gone with the process, however that ends.
"""

import fcntl
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from payres.store.migrations import (
    UnusableDatabase,
    check_unaltered,
    check_usable,
    is_outdated,
    migrate,
    require_payres,
)
from payres.store.work import FileGone

BUSY_TIMEOUT_SECONDS: Final = 4  # so that even then an answer takes less than 5 (Specification 9.1)
BESIDE: Final = ("-wal", "-shm")  # what SQLite has beside a database that is open


class DatabaseServed(UnusableDatabase):
    """A server has the database, or a restore or a migration; the text says what to do."""


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


def connect_reader(path: str, cache_kib: int = 2048) -> sqlite3.Connection:
    """A connection that cannot write. What walks through whole tables sees each page once, and needs little cache."""
    return _connect(path, lambda connection: connection.execute("PRAGMA query_only = ON"), cache_kib)


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


def _connect(
    path: str, prepare: Callable[[sqlite3.Connection], object], cache_kib: int = 2048, is_uri: bool = False
) -> sqlite3.Connection:
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
        connection.execute(f"PRAGMA cache_size = -{cache_kib}")  # for each connection; the system caches the file too
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
        if is_outdated(connection):  # and not migrated meanwhile by whoever had the lock
            raise DatabaseServed(
                f"The database {path} is of an older version, and a payres serves it, or restores or migrates it:"
                " restart the server with this version first, then try again"
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


@contextmanager
def server_lock(database: str) -> Iterator[None]:
    """Held for the block. Commands that work beside a server take it only to migrate.

    Raises DatabaseServed at once when someone else holds it, UnusableDatabase, OSError when the file cannot be made.
    """
    if database == ":memory:":
        yield
        return
    check_not_linked(database)
    real = Path(os.path.realpath(database))  # so that there is one lock whichever symbolic link names it
    real.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(f"{real}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            # Not a lock of POSIX (fcntl): that is the process's, and two servers in one would not keep each other out.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DatabaseServed(f"A payres serves {database} or restores it: stop that one first") from error
        yield
    finally:
        os.close(descriptor)  # the file stays: removing it could remove the one that the next has just locked


def is_served(database: str) -> bool:
    """Whether a server has the database. Raises OSError, UnusableDatabase."""
    try:
        with server_lock(database):
            return False
    except DatabaseServed:
        return True


def is_followed(database: str) -> bool:
    """Whether Litestream writes the file, following another server's database (`litestream restore -f`)."""
    return os.path.exists(f"{database}-txid")


def changed_at(database: str) -> int | None:
    """When the file was last written, microseconds; of a standby's, when Litestream brought the last change."""
    try:
        return os.stat(database).st_mtime_ns // 1000
    except OSError:  # Litestream has not restored it yet
        return None


def free_bytes(folder: Path) -> int:
    """What may still be written to the disk of a folder."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def log_bytes(database: str) -> int:
    """The size of the write-ahead log, which grows for as long as somebody reads one state of the database."""
    try:
        return os.stat(f"{database}-wal").st_size
    except OSError:  # it has gone, of which the next commit says more
        return 0


def check_not_linked(database: str) -> None:
    """Raises UnusableDatabase when the file has hard links.

    By each name it has another lock and another write-ahead log, and a log that one name left would undo, when it is
    next opened by that name, what was written by the other.
    """
    try:
        found = os.stat(database)
    except FileNotFoundError:
        return
    if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
        raise UnusableDatabase(
            f"The file {database} has {found.st_nlink} names, which are hard links: keep the one that the server used"
            f" last and remove the others, with their -wal and -shm; `find DIRECTORY -samefile {database}` shows them"
        )


class Presence:
    """Remembers which files a path names, and sees when it names others or none.

    SQLite, and Litestream with it, change these files in place as long as someone has the database open.
    """

    def __init__(self, database: str) -> None:
        self._paths: list[str] = []
        self._files: dict[str, tuple[int, int]] = {}
        if database != ":memory:":
            real = os.path.realpath(database)  # beside which the others are, when the path is a symbolic link
            # As it is written, after the working directory: "link/.." is where the link leads, but abspath drops both.
            self._paths = [os.path.join(os.getcwd(), database), *(real + suffix for suffix in BESIDE)]

    def note(self) -> None:
        """The files of now are the right ones. Raises OSError."""
        self._files = {path: _identity(path) for path in self._paths}

    def check(self) -> None:
        """Takes some microseconds. Raises FileGone, and OSError when that cannot be seen."""
        for path, identity in self._files.items():
            try:
                now = _identity(path)
            except (FileNotFoundError, NotADirectoryError) as error:
                raise FileGone(f"{path} is open and no longer there: it was moved or removed") from error
            if now != identity:
                raise FileGone(f"{path} is not the file that is open: that one was replaced")


def _identity(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino
