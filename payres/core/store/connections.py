"""Connections to the database file; the lock of its server; checks that its path still names the open file.

The lock is on a file beside the database and ends with the process.
"""

import fcntl
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from payres.core.store.migrations import (
    UnusableDatabase,
    check_unaltered,
    check_usable,
    is_outdated,
    migrate,
    require_payres,
)
from payres.core.store.runs import check_complete, has_log
from payres.core.store.work import FileGone

BUSY_TIMEOUT_SECONDS: Final = 4  # keeps responses below 5 s even then (Specification 9.1)
BESIDE: Final = ("-wal", "-shm")  # SQLite's files beside an open database


class DatabaseServed(UnusableDatabase):
    """A server, a restore or a migration is using the database; the message says what to do."""


def connect_writer(path: str, is_locked: bool = False, may_lack: bool = False) -> sqlite3.Connection:
    """A connection that writes; creates and migrates the file first.

    With `is_locked` the caller holds the server_lock, and the schema must be exactly that of payres. Without it, an
    older file is migrated under that lock. With `may_lack` commits may be missing, for a caller that only reads. Raises
    DatabaseServed if a server has it, LostCommits, UnusableDatabase, sqlite3.Error.
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
    check = _checker(path, is_locked, may_lack)

    def prepare(connection: sqlite3.Connection) -> None:
        check(connection)
        _prepare_writer(path, is_locked, connection)

    return _connect(path, prepare)


def connect_reader(path: str, cache_kib: int = 2048) -> sqlite3.Connection:
    """A read-only connection. Full table scans read each page once, and need little cache."""
    uri = f"{Path(path).absolute().as_uri()}?mode=rw"  # it must be there: no empty file takes its place
    return _connect(uri, lambda connection: connection.execute("PRAGMA query_only = ON"), cache_kib, is_uri=True)


def connect_standby(path: str) -> sqlite3.Connection:
    """A read-only connection to a file that another program writes. Use it only for one batch: see StandbyLane.

    Raises UnusableDatabase unless it is a database of this payres version, sqlite3.Error.
    """

    def prepare(connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA query_only = ON")  # also forbids temporary tables
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
    # isolation_level=None: transactions begin only where the code says so.
    connection = sqlite3.connect(
        path,
        timeout=BUSY_TIMEOUT_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
        uri=is_uri,
    )
    try:
        connection.execute(f"PRAGMA cache_size = -{cache_kib}")  # per connection; the system caches the file too
        connection.execute("PRAGMA temp_store = MEMORY")
        prepare(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare_writer(path: str, is_locked: bool, connection: sqlite3.Connection) -> None:
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
    """Migrates a file that no server has open: an older server would go on with statements for the old schema."""
    try:
        with server_lock(path):
            migrate(connection)
    except DatabaseServed as error:
        if is_outdated(connection):  # unless whoever held the lock has migrated it
            raise DatabaseServed(
                f"The database {path} is of an older version, and a payres serves it, or restores or migrates it:"
                " restart the server with this version first, then try again"
            ) from error


def _enter_wal(connection: sqlite3.Connection) -> None:
    """Switches to write-ahead logging, which the file remembers. Readers then continue while the writer commits.

    SQLite does not always wait for this lock: of two programs that open a new file at once, one would fail.
    """
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
        else:
            return
        connection.execute("BEGIN EXCLUSIVE")  # this does wait, up to the busy timeout
        connection.execute("COMMIT")


def require_complete(path: str) -> None:
    """Raises LostCommits if commits of a killed server are missing, UnusableDatabase, sqlite3.Error."""
    _connect(path, _checker(path, is_locked=False, may_lack=False)).close()


def _checker(path: str, is_locked: bool, may_lack: bool) -> Callable[[sqlite3.Connection], None]:
    """The checks of a file that is about to be opened, before anything changes it."""
    had_log = has_log(path)

    def check(connection: sqlite3.Connection) -> None:
        check_usable(connection)
        if path != ":memory:":
            # An older file would be migrated, after which its log could not be put back.
            is_read = may_lack and not is_outdated(connection)
            check_complete(connection, path, had_log, lambda: not is_locked and is_served(path), is_read)

    return check


@contextmanager
def server_lock(database: str) -> Iterator[None]:
    """Holds the lock for the block. Commands that run beside a server take it only to migrate.

    Raises DatabaseServed at once if it is taken, UnusableDatabase, OSError if the lock file cannot be created.
    """
    if database == ":memory:":
        yield
        return
    check_not_linked(database)
    real = Path(os.path.realpath(database))  # one lock for all symbolic links
    real.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(f"{real}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            # Not a POSIX lock (fcntl): those belong to the process and would not separate two servers in one process.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DatabaseServed(f"A payres serves {database} or restores it: stop that one first") from error
        yield
    finally:
        os.close(descriptor)  # the file stays: removing it could break the next holder's lock


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
    """When the file was last written, microseconds; for a standby, when Litestream last applied a change."""
    try:
        return os.stat(database).st_mtime_ns // 1000
    except OSError:  # Litestream has not restored it yet
        return None


def free_bytes(folder: Path) -> int:
    """The free disk space of a folder's file system."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def log_bytes(database: str) -> int:
    """The size of the write-ahead log, which grows for as long as a reader keeps one snapshot open."""
    try:
        return os.stat(f"{database}-wal").st_size
    except OSError:  # if it was removed, the next commit reports that
        return 0


def check_not_linked(database: str) -> None:
    """Raises UnusableDatabase if the file has hard links.

    Each name has its own lock and write-ahead log; a log left under one name would, when opened by that name, undo
    writes made under the other.
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
    """Remembers the files behind a path, and detects when they are moved, removed or replaced.

    SQLite and Litestream change these files only in place while someone has the database open.
    """

    def __init__(self, database: str) -> None:
        self._paths: list[str] = []
        self._files: dict[str, tuple[int, int]] = {}
        if database != ":memory:":
            real = os.path.realpath(database)  # SQLite resolves symbolic links for its side files
            # Not abspath: it would drop "link/..", which leads elsewhere.
            self._paths = [os.path.join(os.getcwd(), database), *(real + suffix for suffix in BESIDE)]

    def note(self) -> None:
        """Remembers the current files as the right ones. Raises OSError."""
        self._files = {path: _identity(path) for path in self._paths}

    def check(self) -> None:
        """Takes a few microseconds. Raises FileGone, and OSError if the files cannot be examined."""
        for path, identity in self._files.items():
            try:
                now = _identity(path)
            except (FileNotFoundError, NotADirectoryError) as error:
                raise FileGone(f"{path} is open but no longer exists: it was moved or removed") from error
            if now != identity:
                raise FileGone(f"{path} is no longer the open file, which was replaced")


def _identity(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino
