"""The presence of a database under its path: that the files which are open are those that the next start would open."""

import os
from typing import Final

from payres.store.halts import FileGone

BESIDE: Final = ("-wal", "-shm")  # what SQLite keeps beside a database as long as someone has it open

Identity = tuple[int, int]


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
        """Takes some microseconds. Raises FileGone, and OSError when it cannot be told."""
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
