"""Whole copies of a database file, made while others write to it; and one file put in the place of another.

A copy is one file that needs no write-ahead log. It has a temporary name until it is proved, and is then renamed.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import mkstemp
from time import sleep
from typing import TypeVar

T = TypeVar("T")

PAGES_PER_STEP = 256
SIDE_FILES = ("-wal", "-shm", "-journal")  # what SQLite keeps beside a database that is open, or was not closed
HOLD_SECONDS = 1


class DatabaseOpen(Exception):  # noqa: N818 - names what was found
    """Another program has the database open."""


@contextmanager
def copied(source: Path, beside: Path, pause: int = 0, still: bool = False) -> Iterator[Path]:
    """A copy of what is committed now, under a temporary name beside `beside`: on the disk, with mode 0600.

    It is removed after the block unless it was renamed. `pause` milliseconds are slept after every megabyte, so that a
    server keeps disk and processor. `still` says that nobody writes to the source, of which nothing is then changed,
    not even the files beside it. Raises sqlite3.Error, OSError.
    """
    descriptor, name = mkstemp(prefix=f"{beside.name}.", suffix=".partial", dir=beside.parent)
    partial = Path(name)
    try:
        _copy(source, partial, pause, still)
        os.fsync(descriptor)
        yield partial
    finally:
        os.close(descriptor)
        partial.unlink(missing_ok=True)


def examine(path: Path, unit: Callable[[sqlite3.Connection], T]) -> T:
    """The result of a function that only reads a database to which nobody writes. Raises sqlite3.Error."""
    with closing(_open(path, still=True)) as connection:
        return unit(connection)


def first_fault(connection: sqlite3.Connection) -> str | None:
    """What is wrong with the file of any version: pages, indexes, constraints, references; or None."""
    (word,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if word != "ok":
        return str(word)
    dangling = connection.execute("PRAGMA foreign_key_check").fetchone()
    return f"a row of {dangling[0]} refers to a missing {dangling[2]}" if dangling else None


def rename(partial: Path, destination: Path) -> None:
    """Gives a copy its name, on the disk when this returns. What had the name is replaced."""
    os.replace(partial, destination)
    _sync_folder(destination.parent)


def exchange(database: Path, copy: Path, kept: Path) -> bool:
    """Puts a copy in the place of a database. Whether there was one, which is now `kept`, whole with its log.

    At no moment is there no database, or half of one. Raises DatabaseOpen, when nothing was done, and OSError.
    """
    left = [suffix for suffix in SIDE_FILES if side_file(database, suffix).exists()]
    for suffix in left:  # before SQLite looks at them, because it removes a log that does not fit its database
        os.link(side_file(database, suffix), side_file(kept, suffix))
    try:
        with _held(database) as is_whole:
            was_there = database.exists()
            if was_there:
                os.link(database, kept)
            for suffix in left:  # or the copy would be taken for what they belong to
                side_file(database, suffix).unlink(missing_ok=True)
            rename(copy, database)
    except DatabaseOpen:
        _forget(kept, left)
        raise
    if is_whole:
        _forget(kept, left)
    return was_there


def side_file(database: Path, suffix: str) -> Path:
    """The file of that suffix beside a database."""
    return database.with_name(database.name + suffix)


def _copy(source: Path, partial: Path, pause: int, still: bool) -> None:
    with closing(_open(source, still)) as reader, closing(_connect(partial.resolve().as_uri())) as writer:
        writer.execute("PRAGMA journal_mode = OFF")  # whatever interrupts this, the file is thrown away
        writer.execute("PRAGMA synchronous = OFF")
        # One snapshot for all steps. Without it every commit of the server would make the copy begin anew.
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        reader.backup(writer, pages=PAGES_PER_STEP, progress=lambda *_: sleep(pause / 1000))
        reader.execute("COMMIT")
        writer.execute("PRAGMA journal_mode = DELETE")  # the page copied says WAL, which asks for files beside it


def _open(path: Path, still: bool) -> sqlite3.Connection:
    """A connection that reads an existing file."""
    uri = path.resolve().as_uri()
    if still and not any(side_file(path, suffix).exists() for suffix in SIDE_FILES):
        return _connect(f"{uri}?mode=ro&immutable=1")
    # A connection that could not write would leave the files behind that it makes beside a database in WAL mode.
    return _connect(f"{uri}?mode={'ro' if still else 'rw'}")


def _connect(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=HOLD_SECONDS)


@contextmanager
def _held(database: Path) -> Iterator[bool]:
    """With the database locked; whether its log was worked into it, which cannot be when it is gone or damaged."""
    if not database.exists():
        yield False
        return
    with closing(_connect(f"{database.resolve().as_uri()}?mode=rw")) as connection:
        try:
            # Every program that has the file open in WAL mode keeps a lock on it that does not let this pass. Whoever
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


def _forget(kept: Path, suffixes: Sequence[str]) -> None:
    for suffix in suffixes:
        side_file(kept, suffix).unlink()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
