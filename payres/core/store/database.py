"""The database: one writer with group commit, and readers that never wait for it.

A unit of work is a plain function over one open transaction. Units for the writer queue up; all that are waiting run in
one SQLite transaction and share one durable commit. No caller gets a result before that commit. `lanes`
has the queues and threads, `transactions` the transactions.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

from payres.core.process.settings import Settings
from payres.core.protocol.errors import Unavailable
from payres.core.store.connections import Presence, connect_reader, connect_standby, connect_writer
from payres.core.store.lanes import Lane, OwnedConnection, Queued, ReadLane, WriteLane, units_of
from payres.core.store.lost_commits import HighWaterMark
from payres.core.store.migrations import UnusableDatabase
from payres.core.store.transactions import NOT_READ, Raised, Unit, run_reads
from payres.core.store.work import Environment, FailStop, Transaction, Work

T = TypeVar("T")

EXAMINERS: Final = 3  # connections for long reads, such as the background check and exports
READ_ONLY: Final = (
    "This server is a read-only standby and stores nothing: ask the primary server, or try again once this one has"
    " taken its place"
)


class Database:
    """An open database file. Use `Database.open`, then `write` and `read` with plain functions, then `close`."""

    def __init__(self, path: str, writer: Lane, reader: Lane, examiners: Sequence[Lane]) -> None:
        self.path = path
        self._writer = writer
        self._reader = reader
        self._examiners = examiners

    @property
    def stopped(self) -> str | None:
        """Why writing has stopped, in words for callers; None in normal operation."""
        return self._writer.stopped

    @property
    def waiting(self) -> int:
        """The number of units waiting for the writer."""
        return self._writer.waiting

    def notify(self, on_change: Callable[[Collection[str]], None]) -> None:
        """Calls `on_change` after each commit with the names in `Work.changed`, a superset of what changed."""
        self._writer.on_change = on_change

    def fail_stop(self, cause: FailStop) -> None:
        """Stops all writing: every later unit gets Unavailable, and the file stays unchanged. Reading continues."""
        self._writer.fail_stop(cause)

    @classmethod
    async def open(cls, path: str, environment: Environment | None = None) -> "Database":
        """Opens the file, creating or migrating it as needed. Units get their time and ids from `environment`.

        The caller holds the file's server_lock until it has closed the database. Raises UnusableDatabase if the file is
        not this program's, sqlite3.Error.
        """
        environment = environment or Environment.of(Settings())
        opened: list[OwnedConnection] = []
        presence = Presence(path)
        try:
            for connect in (partial(connect_writer, is_locked=True), connect_reader):
                opened.append(await OwnedConnection.open(partial(connect, path)))
            if environment.is_disposable:
                await opened[0].run(lambda connection: connection.execute("PRAGMA synchronous = OFF"))
            presence.note()
        except BaseException:
            for connection in opened:
                await connection.close()
            raise
        writing, reading = opened
        writer = WriteLane(writing, environment, presence)
        reader = ReadLane(reading, environment, writer)
        return cls(path, writer, reader, [ExamineLane(path, environment, writer.fail_stop) for _ in range(EXAMINERS)])

    @classmethod
    def open_standby(cls, path: str, environment: Environment) -> "Database":
        """Opens a file that another program writes, read-only: every unit for the writer gets Unavailable."""
        # This may pass: if Litestream died while writing, the pages are of two states until it is restarted.
        warn = partial(environment.reading.note, "the standby's database is inconsistent")
        writer, reader, *examiners = (StandbyLane(path, environment, warn) for _ in range(2 + EXAMINERS))
        writer.stopped = READ_ONLY
        return cls(path, writer, reader, examiners)

    async def watch_commits(self, token: str) -> None:
        """Notes how far commits get, so that the next start finds out if some of this run are missing.

        `token` is that of the run. Raises OSError.
        """
        assert isinstance(self._writer, WriteLane), "a standby stores nothing"
        await self._writer.watch(HighWaterMark(self.path, token))

    async def write(self, unit: Callable[[Work], T]) -> T:
        """The unit's result, once its commit is durable.

        If the unit raises, only its own changes are rolled back and its exception is raised here. Raises Unavailable,
        with nothing stored, if the commit fails or too many units wait, and always after a unit has raised FailStop.
        """
        result: T = await self._writer.submit(unit)
        return result

    async def read(self, unit: Callable[[Work], T], *, for_write: bool = False) -> T:
        """The unit's result on one snapshot that includes everything committed before this call.

        `for_write` reads, made by requests that will write, go before other reads.
        """
        result: T = await self._reader.submit(unit, first=for_write)
        return result

    async def examine(self, unit: Callable[[Work], T]) -> T:
        """Like `read`, on separate connections for long reads, so that they delay neither `read` nor, while a
        connection is free, each other."""
        lane = min(self._examiners, key=lambda one: one.waiting + one.is_busy)
        result: T = await lane.submit(unit)
        return result

    async def close(self) -> None:
        """Finishes the queued units and closes every connection. Idempotent."""
        for lane in (self._reader, *self._examiners, self._writer):
            await lane.close()


class ExamineLane(Lane):
    """Runs reads that may take long on a thread of its own, on a connection that the first of them opens."""

    def __init__(self, path: str, environment: Environment, on_stop: Callable[[FailStop], None]) -> None:
        super().__init__(environment, on_stop)
        self._path = path
        self._thread = ThreadPoolExecutor(1, "examine")
        self._connection: sqlite3.Connection | None = None

    async def run_together(self, batch: list[Queued]) -> list[Any]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, units_of(batch))

    def _run(self, units: Sequence[Unit]) -> list[Any]:
        try:
            if self._connection is None:
                self._connection = self.connect()
            return run_reads(units, self._connection, self._environment)
        except (UnusableDatabase, sqlite3.Error) as error:
            self._environment.reading.note(f"{self._path} is unreadable", error)
            return [Raised(Unavailable(NOT_READ)) for _ in units]

    def connect(self) -> sqlite3.Connection:
        return connect_reader(self._path, cache_kib=256)

    def disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _finish(self) -> None:
        await super()._finish()
        self.disconnect()
        self._thread.shutdown(wait=False)


class StandbyLane(ExamineLane):
    """Opens the file anew for each batch.

    Litestream writes pages under SQLite's lock, but SQLite notices only changes of the first page: a connection that
    stays open would mix new pages with cached old ones. And until Litestream has written the first page, which says
    WAL, any open connection holds a lock that Litestream waits for.
    """

    def connect(self) -> sqlite3.Connection:
        return connect_standby(self._path)

    def _run(self, units: Sequence[Unit]) -> list[Any]:
        try:
            return super()._run(units)
        finally:
            self.disconnect()


def answers(tx: Transaction) -> bool:
    """Whether the database can be read; raises if not."""
    return tx.execute("SELECT count(*) FROM sqlite_master").fetchone() is not None
