"""What a power cut leaves of a database: its file and its write-ahead log as they are on the disk at one moment.

Two files cannot be copied at one moment while a server writes to them. But SQLite says in the shared index of the log
what it does, so that copies which no power cut could have left are thrown away and made again.
"""

import shutil
import struct
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal

from payres.core.store.copies import side_file
from tests.crash.server import FILES

Order = Literal["database first", "log first"]
Damage = Literal["none", "cut", "zeros", "noise"]

# https://www.sqlite.org/walformat.html: two headers of 48 bytes, then how much of the log has been written into the
# database and how much may have been; the log itself has a header, and one before each page.
INDEX_HEADER = struct.Struct("=IIIBBHIIIIIIII")
BACKFILLED, ATTEMPTED = 96, 128
LOG_HEADER, FRAME_HEADER = 32, 24
MOST_TRIES = 50
LONGEST_DAMAGE = 3 * 4096


@dataclass(frozen=True)
class Index:
    """The generation of the log, its committed frames, those that may be in the database, and the bytes of a page."""

    salt: tuple[int, int]
    committed: int
    attempted: int
    page: int

    def end(self, frames: int) -> int:
        """The length of a log of so many frames."""
        return LOG_HEADER + frames * (FRAME_HEADER + self.page)


@dataclass(frozen=True)
class Remains:
    """What is left: `whole` when nothing is lost that was committed when the copy began."""

    database: Path
    whole: bool
    damage: Damage
    order: Order


def cut_power(database: Path, folder: Path, chance: Random) -> Remains:
    """A copy in a new folder of what a power cut might leave, drawn by chance."""
    folder.mkdir()
    order: Order = chance.choice(("database first", "log first"))
    copy = folder / database.name
    for _ in range(MOST_TRIES):
        with FILES:  # this process must have no connection to what it opens and closes by hand
            before = _read_index(database)
            _copy(database, copy, order)
            after = _read_index(database)
        # A log that began anew lacks what the older file does not have yet. And what goes from the log into the file
        # was on the disk in the log before, so a younger file may have nothing of frames that an older log lacks.
        if before.salt == after.salt and (order == "database first" or before.attempted == after.attempted):
            return _damaged(copy, before, after, order, chance)
    raise AssertionError("the log is worked into the database all the time")


def _copy(database: Path, copy: Path, order: Order) -> None:
    log, copied_log = side_file(database, "-wal"), side_file(copy, "-wal")
    files = [(database, copy), (log, copied_log)]
    for source, destination in files if order == "database first" else reversed(files):
        shutil.copyfile(source, destination)


def _damaged(copy: Path, before: Index, after: Index, order: Order, chance: Random) -> Remains:
    """The copy, its log with an end that never reached the disk: gone, not written, or with something else in it."""
    log = side_file(copy, "-wal")
    durable, written = before.end(before.committed), log.stat().st_size
    # What has gone into the database was on the disk for sure, also what was committed while the files were copied.
    in_database = before.end(max(before.attempted, after.attempted))
    earliest = in_database if chance.random() < 0.5 else max(in_database, durable)
    damage: Damage = chance.choice(("none", "cut", "zeros", "noise"))
    if damage == "none" or earliest >= written:
        return Remains(copy, True, "none", order)
    at = chance.randint(earliest, min(written, max(after.end(after.committed), earliest)))
    with log.open("r+b") as file:
        if damage == "cut":
            file.truncate(at)
        else:
            length = min(chance.randint(1, LONGEST_DAMAGE), written - at)
            file.seek(at)
            file.write(bytes(length) if damage == "zeros" else chance.randbytes(length))
    return Remains(copy, at >= durable, damage, order)


def _read_index(database: Path) -> Index:
    """The index of a log, which its writer changes while it is read: so both copies of its header must say the same."""
    for _ in range(10_000):
        shared = side_file(database, "-shm").read_bytes()
        first, second = shared[: INDEX_HEADER.size], shared[INDEX_HEADER.size : 2 * INDEX_HEADER.size]
        if first == second:
            *_, page, committed, _, _, _, salt_one, salt_two, _, _ = INDEX_HEADER.unpack(first)
            (attempted,) = struct.unpack_from("=I", shared, ATTEMPTED)
            (backfilled,) = struct.unpack_from("=I", shared, BACKFILLED)
            return Index((salt_one, salt_two), committed, max(attempted, backfilled), 65536 if page == 1 else page)
    raise AssertionError("the index of the log never comes to rest")
