"""Copies of a database file, and the exchange of a database for a copy.

A copy is one file with mode 0600 that needs no write-ahead log. It has a temporary name until it is verified.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from glob import escape
from pathlib import Path
from shutil import copyfileobj
from tempfile import mkstemp
from time import sleep
from typing import BinaryIO, TypeVar

T = TypeVar("T")

PAGES_PER_STEP = 256
LOGS = ("-wal", "-journal")  # without its log, a database that was not closed is not whole
SIDE_FILES = (*LOGS, "-shm")  # what SQLite keeps beside a database that is open, or was not closed
LOCK_TIMEOUT_SECONDS = 1


class DatabaseOpen(Exception):
    """Another program has the database open."""


@contextmanager
def copied(source: Path, beside: Path, pause: int = 0, still: bool = False) -> Iterator[Path]:
    """A copy of what is committed now, under a temporary name beside `beside`; removed after the block if not renamed.

    `pause` milliseconds are slept after every megabyte, so that a server has disk and processor too. `still` says that
    nobody writes to the source; then nothing of it is changed, and no file is made beside it. Raises sqlite3.Error,
    OSError, DatabaseOpen when a source that should be still is not.
    """
    with _temporary(beside) as partial:
        if still:
            _copy_files(source, partial)
        else:
            _copy_pages(source, partial, pause)
        yield partial


def examine(path: Path, unit: Callable[[sqlite3.Connection], T]) -> T:
    """The result of a function that only reads a copy. Raises sqlite3.Error.

    The connection could write, or SQLite would leave out the CHECK constraints in its integrity check.
    """
    with closing(_connect(path)) as connection:
        connection.execute("PRAGMA query_only = ON")
        return unit(connection)


def change(path: Path, unit: Callable[[sqlite3.Connection], object]) -> None:
    """Commits what a function changes in a copy; it stays one file. Raises sqlite3.Error."""
    with closing(_connect(path)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        unit(connection)
        connection.execute("COMMIT")


def rename(partial: Path, destination: Path) -> None:
    """Gives a copy its name; both are on the disk when this returns. What had the name is replaced."""
    _sync(partial)
    os.replace(partial, destination)
    _sync(destination.parent)


def exchange(database: Path, copy: Path, kept: Path) -> bool:
    """Puts a copy in the place of a database. Whether there was one, of which `kept` is now a copy, whole with its log.

    At no moment is there no database, or half of one, or a `kept` that is a hard link or has another one's log. Raises
    DatabaseOpen, when nothing was done, and OSError.
    """
    suffixes = [suffix for suffix in (*LOGS, "") if side_file(database, suffix).exists()]
    with ExitStack() as stack:
        # Closing any descriptor of a file drops all locks that the process has on it (POSIX): these close last.
        old = {suffix: stack.enter_context(side_file(database, suffix).open("rb")) for suffix in suffixes}
        duplicates = {suffix: stack.enter_context(_temporary(database)) for suffix in suffixes}
        for suffix in filter(None, suffixes):  # before SQLite looks at a log, because it removes one that does not fit
            _copy_bytes(old[suffix], duplicates[suffix])
        with _locked(database) as is_whole:
            if "" in old:
                _copy_bytes(old[""], duplicates[""])
            for suffix in suffixes:
                if not (suffix and is_whole):
                    rename(duplicates[suffix], side_file(kept, suffix))
            for suffix in SIDE_FILES:  # or SQLite would take them for the new database's
                side_file(database, suffix).unlink(missing_ok=True)
            _sync(database.parent)
            rename(copy, database)
    return "" in old


def side_file(database: Path, suffix: str) -> Path:
    """The file of that suffix beside a database."""
    return database.with_name(database.name + suffix)


def remove_partial(database: Path, suffix: str) -> None:
    """Removes what copies left that were killed before they got their name, which is that of the database and a suffix;
    a * in it is any text. Nobody may be making such a copy."""
    for left in database.parent.glob(f"{escape(database.name)}{suffix}.????????.partial*"):
        left.unlink(missing_ok=True)


@contextmanager
def _temporary(beside: Path) -> Iterator[Path]:
    descriptor, name = mkstemp(prefix=f"{beside.name}.", suffix=".partial", dir=beside.parent)
    os.close(descriptor)
    try:
        yield Path(name)
    finally:
        for suffix in ("", *SIDE_FILES):
            side_file(Path(name), suffix).unlink(missing_ok=True)


def _copy_pages(source: Path, partial: Path, pause: int) -> None:
    with closing(_connect(source)) as reader, closing(_connect(partial)) as writer:
        writer.execute("PRAGMA journal_mode = OFF")  # if this is interrupted, the file is thrown away
        writer.execute("PRAGMA synchronous = OFF")
        # One snapshot for all steps. Without it every commit of the server would make the copy start over.
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        reader.backup(writer, pages=PAGES_PER_STEP, progress=lambda *_: sleep(pause / 1000))
        reader.execute("COMMIT")
        writer.execute("PRAGMA journal_mode = DELETE")  # the page copied says WAL, which asks for files beside it


def _copy_files(source: Path, partial: Path) -> None:
    """Even to read, SQLite would make files beside the source. So the copy is the one that works the log in."""
    before = _state(source)
    for suffix in ("", *LOGS):
        if side_file(source, suffix).exists():
            side_file(partial, suffix).touch(mode=0o600)
            with side_file(source, suffix).open("rb") as file:
                _copy_bytes(file, side_file(partial, suffix))
    if _state(source) != before:
        raise DatabaseOpen(f"Another program has {source} open")
    with closing(_connect(partial)) as writer:
        writer.execute("PRAGMA journal_mode = DELETE").fetchone()


def _copy_bytes(file: BinaryIO, target: Path) -> None:
    with target.open("wb") as writer:
        copyfileobj(file, writer, 1024 * 1024)


def _state(database: Path) -> list[tuple[int, int, int] | None]:
    """What changes when someone writes to a database."""
    files = [side_file(database, suffix) for suffix in ("", *SIDE_FILES)]
    found = [file.stat() if file.exists() else None for file in files]
    return [(one.st_ino, one.st_size, one.st_mtime_ns) if one else None for one in found]


def _connect(path: Path) -> sqlite3.Connection:
    # A connection that could not write would leave the files behind that it makes beside a database.
    uri = f"{path.resolve().as_uri()}?mode=rw"
    return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=LOCK_TIMEOUT_SECONDS)


@contextmanager
def _locked(database: Path) -> Iterator[bool]:
    """With the database locked; whether its log was worked into it, which cannot be when it is gone or damaged."""
    if not database.exists():
        yield False
        return
    with closing(_connect(database)) as connection:
        try:
            # Every program that has the file open in WAL mode keeps a lock on it that does not let this pass. One that
            # opened it just before waits, and then finds that the file has moved, before it could write anything.
            connection.execute("PRAGMA journal_mode = DELETE").fetchone()
            connection.execute("BEGIN EXCLUSIVE")
            is_whole = connection.execute("PRAGMA page_count").fetchone()[0] > 0
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorname.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                raise DatabaseOpen(f"Another program has {database} open") from error
            connection.close()
            is_whole = False
        yield is_whole


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
