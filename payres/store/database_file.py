"""The database's file: the lock of its one server, and that its path names it, and it alone.

The lock is on a file beside the database and is gone with the process, however that ends.
"""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from payres.store.migrations import UnusableDatabase
from payres.store.work import FileGone

BESIDE: Final = ("-wal", "-shm")  # what SQLite has beside a database that is open

Identity = tuple[int, int]


class DatabaseServed(UnusableDatabase):
    """A server has the database, or a restore or a migration; the text says what to do."""


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
        self._identities: list[Identity] = []
        if database != ":memory:":
            real = os.path.realpath(database)  # beside which the others are, when the path is a symbolic link
            # As it is written, after the working directory: "link/.." is where the link leads, but abspath drops both.
            self._paths = [os.path.join(os.getcwd(), database), *(real + suffix for suffix in BESIDE)]

    def note(self) -> None:
        """The files of now are the right ones. Raises OSError."""
        self._identities = [_identity(path) for path in self._paths]

    def check(self) -> None:
        """Takes some microseconds. Raises FileGone, and OSError when that cannot be seen."""
        for path, identity in zip(self._paths, self._identities, strict=True):
            try:
                now = _identity(path)
            except (FileNotFoundError, NotADirectoryError) as error:
                raise FileGone(f"{path} is open and no longer there: it was moved or removed") from error
            if now != identity:
                raise FileGone(f"{path} is not the file that is open: that one was replaced")


def _identity(path: str) -> Identity:
    found = os.stat(path)
    return found.st_dev, found.st_ino
