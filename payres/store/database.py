"""The database: one writer with group commit, and readers that never wait for it.

A unit of work is a plain function over one open transaction. Units for the writer queue up; all that are waiting run
inside one SQLite transaction and share one durable commit. Nobody is answered before that commit. `payres.store.lanes`
has the queues and says what runs on which thread, `payres.store.transactions` the transactions.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from functools import partial
from typing import Any, Final, TypeVar

from payres.errors import Unavailable
from payres.settings import Settings
from payres.store.connections import Presence, connect_reader, connect_standby, connect_writer
from payres.store.lanes import Lane, OwnedConnection, Queued, ReadLane, ThreadLane, WriteLane, units_of
from payres.store.migrations import UnusableDatabase
from payres.store.transactions import NOT_READ, Raised, Unit, run_reads
from payres.store.work import Environment, FailStop, Transaction, Work

T = TypeVar("T")

EXAMINERS: Final = 3  # connections for what takes long: one may be the background check's, one an export's
READ_ONLY: Final = (
    "This server is a read-only standby and stores nothing: ask the primary server, or try again once this one has"
    " taken its place"
)

log = logging.getLogger("payres.store")


class Database:
    """An open database file. Use `Database.open`, then `write` and `read` with plain functions, then `close`."""

    def __init__(self, path: str, writer: Lane, reader: Lane, examiners: Sequence[Lane]) -> None:
        self.path = path
        self._writer = writer
        self._reader = reader
        self._examiners = examiners

    @property
    def stopped(self) -> str | None:
        """Why nothing more is written, in words for callers; None as long as things are right."""
        return self._writer.stopped

    @property
    def waiting(self) -> int:
        """How many units wait for the writer."""
        return self._writer.waiting

    def notify(self, on_change: Callable[[Collection[str]], None]) -> None:
        """From now on calls this after each commit with what `Work.changed` names, which at least may have changed."""
        self._writer.on_change = on_change

    def fail_stop(self, cause: FailStop) -> None:
        """Writes nothing from now on: every unit gets Unavailable, and the file stays as it is. Reading goes on."""
        self._writer.fail_stop(cause)

    @classmethod
    async def open(cls, path: str, environment: Environment | None = None) -> "Database":
        """Opens the file, creating or migrating it as needed; units of work get their time and ids from `environment`.

        The caller holds the file's server_lock until it has closed the database. Raises UnusableDatabase when it is not
        this program's, sqlite3.Error when it cannot be used.
        """
        environment = environment or Environment.of(Settings())
        opened: list[OwnedConnection] = []
        presence = Presence(path)
        try:
            examiners = [partial(connect_reader, cache_kib=256)] * EXAMINERS
            for connect in (partial(connect_writer, is_locked=True), partial(connect_reader), *examiners):
                opened.append(await OwnedConnection.open(partial(connect, path)))
            if not environment.is_durable:
                await opened[0].run(lambda connection: connection.execute("PRAGMA synchronous = OFF"))
            presence.note()
        except BaseException:
            for connection in opened:
                await connection.close()
            raise
        writing, reading, *examining = opened
        writer = WriteLane(writing, environment, presence)
        reader = ReadLane(reading, environment, writer)
        return cls(path, writer, reader, [ThreadLane(one, environment, writer.fail_stop) for one in examining])

    @classmethod
    def open_standby(cls, path: str, environment: Environment) -> "Database":
        """A file that another program writes, to be read alone: every unit that would write gets Unavailable."""
        writer, reader, *examiners = (StandbyLane(path, environment) for _ in range(2 + EXAMINERS))
        writer.stopped = READ_ONLY
        return cls(path, writer, reader, examiners)

    async def write(self, unit: Callable[[Work], T]) -> T:
        """The unit's result, once the commit that holds its work is durable.

        What the unit raises is raised here and only its own work is undone. Raises Unavailable, with nothing stored,
        when the commit fails, when too many units wait, and always after a unit has raised FailStop.
        """
        result: T = await self._writer.submit(unit)
        return result

    async def read(self, unit: Callable[[Work], T], *, for_write: bool = False) -> T:
        """The unit's result over one snapshot that holds all that was committed before this call.

        What is read `for_write`, by a request that is to change something, goes before other reads.
        """
        result: T = await self._reader.submit(unit, first=for_write)
        return result

    async def examine(self, unit: Callable[[Work], T]) -> T:
        """Like `read`, on a connection for what takes long, which so delays no other read, nor others of its kind as
        long as one of these connections is free."""
        lane = min(self._examiners, key=lambda one: one.waiting + one.is_busy)
        result: T = await lane.submit(unit)
        return result

    async def close(self) -> None:
        """Finishes what is queued and closes every connection. Closing twice does nothing."""
        for lane in (self._reader, *self._examiners, self._writer):
            await lane.close()


class StandbyLane(Lane):
    """Runs units that read; the file is opened again for those that wait together.

    Litestream writes pages under SQLite's lock, but SQLite sees a change in the first page alone: a connection that
    stays open would mix new pages with its old ones. And until Litestream has written the first page, that says WAL,
    and any connection that is open has a lock for which Litestream waits.
    """

    def __init__(self, path: str, environment: Environment) -> None:
        super().__init__(environment, _warn)
        self._path = path

    async def run_together(self, batch: list[Queued]) -> list[Any]:
        return await asyncio.to_thread(self._run, units_of(batch))

    def _run(self, units: Sequence[Unit]) -> list[Any]:
        try:
            with closing(connect_standby(self._path)) as connection:
                return run_reads(units, connection, self._environment)
        except (UnusableDatabase, sqlite3.Error) as error:
            log.error("the standby's database cannot be read: %s", error)
            return [Raised(Unavailable(NOT_READ)) for _ in units]


def _warn(cause: FailStop) -> None:
    # It may pass: Litestream that died while it wrote leaves pages of two states, until it is started again.
    log.error("the standby's database cannot be right: %s", cause)


def answers(tx: Transaction) -> bool:
    """Whether the database can be read; raises when it cannot."""
    return tx.execute("SELECT count(*) FROM sqlite_master").fetchone() is not None
