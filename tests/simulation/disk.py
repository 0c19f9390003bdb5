"""The disk of a server: commits that fail in every way that a disk has, and what is on it after a kill."""

import asyncio
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from payres.core.store.database import OwnedConnection

if TYPE_CHECKING:
    from tests.simulation.server import Server

T = TypeVar("T")

BESIDE: Final = ("", "-wal", ".lock")
# Whether a commit is stored, and whether it is answered: with a success, with an error, or not at all.
FAILED, KEPT, REVIVED, LOST, UNANSWERED = (
    "failed commit",
    "failed commit that was kept",
    "kill after a failed commit that was kept",
    "kill before commit",
    "kill after commit",
)
SOON: Final = 300  # callbacks
RESTART_SECONDS: Final = 1.0  # until what supervises servers starts one again that ended by itself


class DiskError(sqlite3.OperationalError):
    """The error of SQLite when the disk does not confirm a write."""

    sqlite_errorcode = sqlite3.SQLITE_IOERR
    sqlite_errorname = "SQLITE_IOERR"


class _Writer(sqlite3.Connection):
    disk: "Disk"

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        return self.disk.commit(self) if sql == "COMMIT" else super().execute(sql, *values)

    def confirm(self) -> sqlite3.Cursor:
        return super().execute("COMMIT")


class Disk:
    """The files of one life of a server."""

    def __init__(self, server: "Server", path: Path) -> None:
        self.world, self.path, self._server = server.world, path, server
        self._ghost: bytes | None = None  # what a kill would bring back: a commit that was written but not confirmed
        self._opened = 0
        self.world.disks[str(path)] = self.world.disks[f"{path.absolute().as_uri()}?mode=rw"] = self

    def connect(self, real: Callable[..., sqlite3.Connection], path: str, **options: Any) -> sqlite3.Connection:
        """The first plain path is the writer's."""
        is_writer = not options.get("uri")
        connection: sqlite3.Connection = real(path, **options, **({"factory": _Writer} if is_writer else {}))
        if isinstance(connection, _Writer):
            connection.disk = self
        self._opened += 1
        draws = self.world.dice(f"sql {self.path.name} {self._opened}")
        connection.create_function("random", 0, lambda: draws.getrandbits(63))
        return connection

    def commit(self, connection: _Writer) -> sqlite3.Cursor:
        """Raises DiskError. A process that is killed at a commit learns nothing of it either way."""
        kind, number = self.world.strikes(f"commit {self._server.name}", self._server.commit_faults)
        if kind in (FAILED, KEPT, REVIVED):
            self._ghost = None if kind == FAILED else connection.serialize()
            if kind == REVIVED:
                self.world.after_steps(self.world.dice(f"{kind} {number}").randrange(SOON), self._kill)
            raise DiskError("disk I/O error (simulated)")
        if kind != LOST:
            done = connection.confirm()
            self._ghost = None
            if kind != UNANSWERED:
                return done
        self._kill()
        raise DiskError("the process is gone")

    def _kill(self) -> None:
        self._server.kill(RESTART_SECONDS)

    def leave_to(self, path: Path, *, is_replaced: bool) -> None:
        """Copies what is on the disk now for the server's next life, with a commit that was not confirmed unless all of
        it `is_replaced`."""
        for end in BESIDE:
            if Path(f"{self.path}{end}").exists():
                shutil.copyfile(f"{self.path}{end}", f"{path}{end}")
        if self._ghost is not None and not is_replaced:
            path.write_bytes(self._ghost)
            Path(f"{path}-wal").unlink(missing_ok=True)


class InlineConnection(OwnedConnection):
    """A database connection without its thread: a function runs in one step of the loop, some time later."""

    def __init__(self, raw: sqlite3.Connection) -> None:
        self._connection = raw

    def __del__(self) -> None:
        """There is no thread to end."""

    @classmethod
    async def open(cls, connector: Callable[[], sqlite3.Connection]) -> "InlineConnection":
        return cls(await asyncio.get_running_loop().run_in_executor(None, connector))

    async def run(self, function: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(None, function, self.raw)

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        await asyncio.sleep(0)
