"""The lock of a database's one server: on a file beside the database, and gone with the process, however that ends."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from payres.store.migrations import UnusableDatabase


class DatabaseServed(UnusableDatabase):
    """A server has the database, or a restore or a migration; the text says what to do."""


@contextmanager
def server_lock(database: str) -> Iterator[None]:
    """Held for the block. Commands that work beside a server do not take it, but to migrate.

    Raises DatabaseServed at once when someone else holds it, OSError when the file cannot be made.
    """
    if database == ":memory:":
        yield
        return
    path = Path(f"{os.path.realpath(database)}.lock")  # one file by whatever name the database is called
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            # Not a lock of POSIX (fcntl): that is the process's, and two servers in one would not keep each other out.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DatabaseServed(f"A payres serves {database} or restores it: stop that one first") from error
        yield
    finally:
        os.close(descriptor)  # the file stays: whoever removes it may remove the one that the next has just locked
