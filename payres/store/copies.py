"""Whole copies of a database file, made while others write to it; and one file put in the place of another.

A copy is one file that needs no write-ahead log. It has a temporary name until it is proved, and is then renamed.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from shutil import copyfileobj
from tempfile import mkstemp
from time import sleep
from typing import BinaryIO, TypeVar

T = TypeVar("T")

PAGES_PER_STEP = 256
LOGS = ("-wal", "-journal")  # what a database is not whole without, when it was not closed
SIDE_FILES = (*LOGS, "-shm")  # what SQLite keeps beside a database that is open, or was not closed
HOLD_SECONDS = 1


class DatabaseOpen(Exception):
    """Another program has the database open."""


@contextmanager
def copied(
    source: Path, beside: Path, pause: int = 0, still: bool = False, replacing: Path | None = None
) -> Iterator[Path]:
    """A copy of what is committed now, under a temporary name beside `beside`: on the disk, with mode 0600.

    It is removed after the block unless it was renamed. `pause` milliseconds are slept after every megabyte, so that a
    server keeps disk and processor. `still` says that nobody writes to the source, of which nothing is then changed,
    and beside which nothing is made. A copy that is to replace a database belongs to whom that belongs to.
    Raises sqlite3.Error, OSError, DatabaseOpen when a source that should be still is not.
    """
    with _partial(beside, replacing) as (descriptor, partial):
        if still:
            _copy_still(source, partial)
        else:
            # A connection that could not write would leave the files behind that it makes beside a database.
            _copy_pages(f"{source.resolve().as_uri()}?mode=rw", partial, pause)
        os.fsync(descriptor)
        yield partial


def examine(path: Path, unit: Callable[[sqlite3.Connection], T]) -> T:
    """The result of a function that only reads a copy, which nobody else has open. Raises sqlite3.Error.

    The connection could write, or SQLite would leave out the CHECK constraints when it proves the file.
    """
    with closing(_connect(f"{path.resolve().as_uri()}?mode=rw")) as connection:
        connection.execute("PRAGMA query_only = ON")
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
    """Puts a copy in the place of a database. Whether there was one, of which `kept` is now a copy, whole with its log.

    At no moment is there no database, or half of one, or a `kept` that has the database's file or another one's log.
    Raises DatabaseOpen, when nothing was done, and OSError.
    """
    with ExitStack() as stack:

        def duplicate(file: BinaryIO) -> Path:
            return stack.enter_context(_duplicate(file, database))

        was_there = database.exists()
        # Whoever closes any descriptor of a file lets go of all locks that the process has on it (POSIX). So this one
        # is closed last. And the logs are copied before SQLite looks at them, because it removes what does not fit.
        old = stack.enter_context(database.open("rb")) if was_there else None
        logs = [
            (name, duplicate(stack.enter_context(side_file(database, name).open("rb")))) for name in _logs(database)
        ]
        is_whole = stack.enter_context(_held(database))
        copies = [] if is_whole else [(log, side_file(kept, suffix)) for suffix, log in logs]
        if old is not None:
            copies.append((duplicate(old), kept))
        for duplicated, name in copies:
            rename(duplicated, name)
        for suffix in SIDE_FILES:  # or the new database would be taken for what they belong to
            side_file(database, suffix).unlink(missing_ok=True)
        _sync_folder(database.parent)
        rename(copy, database)
    return was_there


def side_file(database: Path, suffix: str) -> Path:
    """The file of that suffix beside a database."""
    return database.with_name(database.name + suffix)


def entrust(descriptor: int, database: Path) -> None:
    """Gives a new file to whom the database belongs, or the directory where it is to be, if root makes it there.

    Raises OSError when this user may not; only the group is left as it is then.
    """
    owner = (database if database.exists() else database.parent).stat()
    own = os.fstat(descriptor)
    if (own.st_uid, own.st_gid) == (owner.st_uid, owner.st_gid) or not (database.exists() or os.geteuid() == 0):
        return
    try:
        os.fchown(descriptor, owner.st_uid, owner.st_gid)
    except PermissionError as error:
        if own.st_uid == owner.st_uid:
            return
        reason = "it belongs to another user, to whom this user cannot give a new file; run this as that user"
        raise PermissionError(error.errno, reason, str(database)) from error


@contextmanager
def _partial(beside: Path, replacing: Path | None) -> Iterator[tuple[int, Path]]:
    """A new file under a temporary name, with a descriptor of it; removed after the block unless it was renamed."""
    descriptor, name = mkstemp(prefix=f"{beside.name}.", suffix=".partial", dir=beside.parent)
    partial = Path(name)
    try:
        if replacing is not None:
            entrust(descriptor, replacing)
            if replacing.exists():
                old = replacing.stat()
                is_same_group = os.fstat(descriptor).st_gid == old.st_gid
                # What a group may do is for that group alone.
                os.fchmod(descriptor, old.st_mode & (0o777 if is_same_group else 0o707))
        yield descriptor, partial
    finally:
        os.close(descriptor)
        for suffix in ("", *SIDE_FILES):
            side_file(partial, suffix).unlink(missing_ok=True)


@contextmanager
def _duplicate(file: BinaryIO, database: Path) -> Iterator[Path]:
    """The bytes of a file under a temporary name beside a database, on the disk."""
    with _partial(database, database) as (descriptor, partial):
        _copy_bytes(file, descriptor)
        yield partial


def _copy_bytes(file: BinaryIO, descriptor: int) -> None:
    file.seek(0)
    with open(descriptor, "wb", closefd=False) as writer:
        copyfileobj(file, writer, 1024 * 1024)
    os.fsync(descriptor)


def _copy_pages(uri: str, partial: Path, pause: int) -> None:
    with closing(_connect(uri)) as reader, closing(_connect(partial.resolve().as_uri())) as writer:
        writer.execute("PRAGMA journal_mode = OFF")  # whatever interrupts this, the file is thrown away
        writer.execute("PRAGMA synchronous = OFF")
        # One snapshot for all steps. Without it every commit of the server would make the copy begin anew.
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        reader.backup(writer, pages=PAGES_PER_STEP, progress=lambda *_: sleep(pause / 1000))
        reader.execute("COMMIT")
        writer.execute("PRAGMA journal_mode = DELETE")  # the page copied says WAL, which asks for files beside it


def _copy_still(source: Path, partial: Path) -> None:
    """The copy of a file to which nobody writes, with what its log holds."""
    if all(side_file(source, suffix).exists() for suffix in ("-wal", "-shm")):
        # Someone may have it open. If not, reading leaves nothing behind that was not there.
        _copy_pages(f"{source.resolve().as_uri()}?mode=ro", partial, pause=0)
        return
    # Even to read, SQLite would make an index of the log beside the source. So the copy has the log worked into it.
    before = _state(source)
    for suffix in ("", *_logs(source)):
        descriptor = os.open(side_file(partial, suffix), os.O_WRONLY | os.O_CREAT, 0o600)
        with side_file(source, suffix).open("rb") as file, open(descriptor, "wb", closefd=True):
            _copy_bytes(file, descriptor)
    if _state(source) != before:
        raise DatabaseOpen(f"Another program has {source} open")
    with closing(_connect(partial.resolve().as_uri())) as writer:
        writer.execute("PRAGMA journal_mode = DELETE").fetchone()


def _state(database: Path) -> list[tuple[int, int, int] | None]:
    """What changes when someone writes to a database."""
    files = [side_file(database, suffix) for suffix in ("", *SIDE_FILES)]
    found = [file.stat() if file.exists() else None for file in files]
    return [(one.st_ino, one.st_size, one.st_mtime_ns) if one else None for one in found]


def _logs(database: Path) -> list[str]:
    return [suffix for suffix in LOGS if side_file(database, suffix).exists()]


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


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
