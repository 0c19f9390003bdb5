"""The lock of a database's one server: on a file beside the database, and gone with the process, however that ends."""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from payres.store.copies import entrust
from payres.store.migrations import UnusableDatabase


class DatabaseServed(UnusableDatabase):
    """A server has the database, or a restore or a migration; the text says what to do."""


class LinkedDatabase(UnusableDatabase):
    """The file has more than one name; the text says what to do."""


@contextmanager
def server_lock(database: str) -> Iterator[None]:
    """Held for the block. Commands that work beside a server do not take it, but to migrate.

    Raises DatabaseServed at once when someone else holds it, LinkedDatabase, OSError when the file cannot be made.
    """
    if database == ":memory:":
        yield
        return
    refuse_linked(database)
    real = Path(os.path.realpath(database))  # so that there is one lock by whatever symbolic link it is called
    real.parent.mkdir(parents=True, exist_ok=True)
    descriptor = _open_lock(real)
    try:
        try:
            # Not a lock of POSIX (fcntl): that is the process's, and two servers in one would not keep each other out.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DatabaseServed(f"A payres serves {database} or restores it: stop that one first") from error
        yield
    finally:
        os.close(descriptor)  # the file stays: whoever removes it may remove the one that the next has just locked


def refuse_linked(database: str) -> None:
    """Raises LinkedDatabase when the file has hard links.

    By each name it has another lock and another write-ahead log, and a log that one name left would undo, when it is
    next opened by that name, what was written by the other.
    """
    try:
        found = os.stat(database)
    except FileNotFoundError:
        return
    if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
        raise LinkedDatabase(
            f"The file {database} has {found.st_nlink} names, which are hard links: keep the one that the server used"
            f" last and remove the others, with their -wal and -shm; `find DIRECTORY -samefile {database}` shows them"
        )


def _open_lock(database: Path) -> int:
    """A descriptor of the lock's file. When root makes it, the database's own user can still take the lock later."""
    path = f"{database}.lock"
    try:
        # Only what is made here is given away, and not what someone else has put in its place.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return os.open(path, os.O_RDWR)
    if os.geteuid() == 0:
        entrust(descriptor, database)
    return descriptor
