"""Copies of a database file, and replacing a database by a copy.

A copy is one file with mode 0600 that needs no write-ahead log. It has a temporary name until it is verified.
"""

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from glob import escape
from pathlib import Path
from shutil import copyfileobj
from tempfile import mkstemp
from time import sleep
from typing import BinaryIO, TypeVar

T = TypeVar("T")
StepNote = Callable[[str, int, int], object]  # gets the step, how much of it is done, and of how much

PAGES_PER_STEP = 256
LOGS = ("-wal", "-journal")  # an unclosed database is incomplete without its log
SIDE_FILES = (*LOGS, "-shm")  # SQLite's files beside an open or unclosed database
LOCK_TIMEOUT_SECONDS = 1


class DatabaseOpen(Exception):
    """Another program has the database open."""


@contextmanager
def copied(
    source: Path, beside: Path, pause: int = 0, still: bool = False, note: StepNote = lambda *_: None
) -> Iterator[Path]:
    """A copy of the committed state, under a temporary name next to `beside`; deleted after the block unless renamed.

    Sleeps `pause` milliseconds after every megabyte, to leave disk and CPU to a server. `still` promises that nobody
    writes to the source; then the source is not changed and no files are created beside it. Raises sqlite3.Error,
    OSError, DatabaseOpen if a `still` source is in use.
    """
    with _temporary(beside) as partial:
        if still:
            _copy_files(source, partial)
        else:
            _copy_pages(source, partial, pause, note)
        yield partial


def examine(path: Path, unit: Callable[[sqlite3.Connection], T]) -> T:
    """The result of a function that only reads a copy. Raises sqlite3.Error.

    Not opened read-only, because SQLite's integrity check would then skip the CHECK constraints.
    """
    with closing(_connect(path)) as connection:
        connection.execute("PRAGMA query_only = ON")
        return unit(connection)


def compare(path: Path, other: Path, unit: Callable[[sqlite3.Connection], T]) -> T:
    """The result of a function that reads a copy as `main` and another one as `old`. Raises sqlite3.Error."""
    with closing(_connect(path)) as connection:
        connection.execute("ATTACH ? AS old", (str(other),))
        connection.execute("PRAGMA query_only = ON")
        return unit(connection)


def change(path: Path, unit: Callable[[sqlite3.Connection], object]) -> None:
    """Commits the changes of a function to a copy, which remains one file. Raises sqlite3.Error."""
    with closing(_connect(path)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        unit(connection)
        connection.execute("COMMIT")


def rename(partial: Path, destination: Path) -> None:
    """Gives a copy its name, durably. Replaces a file of that name."""
    _sync(partial)
    os.replace(partial, destination)
    _sync(destination.parent)


def swap_files(database: Path, copy: Path, kept: Path) -> bool:
    """Puts a copy in the place of a database, and a complete copy of the old database at `kept`. Whether there was one.

    At every moment there is one complete database, and `kept` is never a hard link nor has another database's log.
    Raises DatabaseOpen with nothing changed, OSError.
    """
    suffixes = [suffix for suffix in (*LOGS, "") if side_file(database, suffix).exists()]
    with ExitStack() as stack:
        # Closing any descriptor of a file drops all POSIX locks of the process on it, so these are closed last.
        old = {suffix: stack.enter_context(side_file(database, suffix).open("rb")) for suffix in suffixes}
        duplicates = {suffix: stack.enter_context(_temporary(database)) for suffix in suffixes}
        for suffix in filter(None, suffixes):  # before SQLite opens it: it would delete a log that does not match
            _copy_bytes(old[suffix], duplicates[suffix])
        with _locked(database) as is_whole:
            if "" in old:
                _copy_bytes(old[""], duplicates[""])
            for suffix in suffixes:
                if not (suffix and is_whole):
                    rename(duplicates[suffix], side_file(kept, suffix))
            for suffix in SIDE_FILES:  # or SQLite would apply them to the new database
                side_file(database, suffix).unlink(missing_ok=True)
            _sync(database.parent)
            rename(copy, database)
    return "" in old


def side_file(database: Path, suffix: str) -> Path:
    """The file with that suffix beside a database."""
    return database.with_name(database.name + suffix)


def remove_partial(database: Path, suffix: str) -> None:
    """Deletes partial copies left by killed processes. Their names are the database's with `suffix`, in which * matches
    any text. No such copy may be in progress."""
    for left in database.parent.glob(f"{escape(database.name)}{suffix}.????????.partial*"):
        left.unlink(missing_ok=True)


@contextmanager
def copies_into(folder: Path, database: Path, suffix: str) -> Iterator[None]:
    """Holds a lock of the folder while copies are made in it, by any number of processes. The first of them removes
    partial copies as `remove_partial` does. Raises OSError if there is no such folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # another has the lock; or the file system has none, and what was left stays
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_partial(database, suffix)
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _temporary(beside: Path) -> Iterator[Path]:
    descriptor, name = mkstemp(prefix=f"{beside.name}.", suffix=".partial", dir=beside.parent)
    os.close(descriptor)
    try:
        yield Path(name)
    finally:
        for suffix in ("", *SIDE_FILES):
            side_file(Path(name), suffix).unlink(missing_ok=True)


def _copy_pages(source: Path, partial: Path, pause: int, note: StepNote) -> None:
    def progress(_: int, left: int, pages: int) -> None:
        note("Copying", pages - left, pages)
        sleep(pause / 1000)

    with closing(_connect(source)) as reader, closing(_connect(partial)) as writer:
        writer.execute("PRAGMA journal_mode = OFF")  # an interrupted copy is deleted
        writer.execute("PRAGMA synchronous = OFF")
        # One snapshot for all steps: otherwise every commit of the server would restart the copy.
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        reader.backup(writer, pages=PAGES_PER_STEP, progress=progress)
        reader.execute("COMMIT")
        writer.execute("PRAGMA journal_mode = DELETE")  # the copied header says WAL, which needs side files


def _copy_files(source: Path, partial: Path) -> None:
    """Copies whole files, because SQLite creates files even to read. The log is checkpointed in the copy."""
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
    """Changes whenever someone writes to the database."""
    files = [side_file(database, suffix) for suffix in ("", *SIDE_FILES)]
    found = [file.stat() if file.exists() else None for file in files]
    return [(one.st_ino, one.st_size, one.st_mtime_ns) if one else None for one in found]


def _connect(path: Path) -> sqlite3.Connection:
    # A read-only connection would leave its side files behind.
    uri = f"{path.resolve().as_uri()}?mode=rw"
    return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=LOCK_TIMEOUT_SECONDS)


@contextmanager
def _locked(database: Path) -> Iterator[bool]:
    """Locks the database. Yields whether its log was checkpointed into it; False if it is missing or damaged."""
    if not database.exists():
        yield False
        return
    with closing(_connect(database)) as connection:
        try:
            # Every program with the file open in WAL mode holds a lock that makes this fail. One that has just opened
            # it waits, and finds that the file was replaced before it can write.
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
