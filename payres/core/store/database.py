"""The database: units of work, read and written on lanes of their own.

Units that take microseconds run on the event loop's thread, because a switch to another thread would cost more. Waiting
for a lock, or for the disk to confirm a commit, happens on the connection's thread.

A unit of work is a plain function over one open transaction. Units for the writer queue up; all that are waiting run in
one SQLite transaction and share one durable commit. No caller gets a result before that commit. Lanes have the queues
and threads; `transactions.py` has the transactions.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import Any, Final, TypeVar

import aiosqlite

from payres.core.process.settings import Settings
from payres.core.protocol.errors import Unavailable
from payres.core.protocol.event_types import EVENT_TYPES
from payres.core.protocol.limits import MAX_UNITS_PER_COMMIT, MAX_WAITING_UNITS
from payres.core.store import connections, transactions
from payres.core.store.migrations import UnusableDatabase
from payres.core.store.runs import HighWaterMark, Position
from payres.core.store.work import Environment, FailStop, Transaction, Work

T = TypeVar("T")
Queued = tuple[transactions.Unit, "asyncio.Future[object]"]

STOPPED_SECONDS: Final = 60  # Retry-After while writing is stopped
# Each turn of the event loop runs all reads for writes and 8 others, but only 1 other while units write: a write takes
# several turns, and the reads in each of them delay it. At most 256 reads are left waiting.
READS_PER_TURN: Final = 8
MAX_LEFT_WAITING: Final = 256

log = logging.getLogger("payres.store")
EXAMINERS: Final = 3  # connections for long reads, such as the background check and exports
READ_ONLY: Final = (
    "This server is a read-only standby and stores nothing: ask the primary server, or try again once this one has"
    " taken its place"
)


class OwnedConnection(aiosqlite.Connection):
    """aiosqlite's connection and thread, running whole functions instead of single statements."""

    def __init__(self, connector: Callable[[], sqlite3.Connection]) -> None:
        super().__init__(connector, iter_chunk_size=64)
        self._thread.daemon = True  # a crashed event loop must not leave the process waiting for it

    @classmethod
    async def open(cls, connector: Callable[[], sqlite3.Connection]) -> "OwnedConnection":
        """An open connection on its own thread. Raises what the connector raises."""
        connection = cls(connector)
        try:
            await connection
        except Exception:
            connection._thread.join()  # it is ending, and still reports to the loop
            raise
        return connection

    @property
    def raw(self) -> sqlite3.Connection:
        """The connection, for use on another thread while its own is idle. Raises ValueError if closed."""
        return self._conn

    async def run(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """The function's result, computed on the connection's own thread."""
        connection = self.raw  # raises here if the connection is closed

        def work() -> T:
            # aiosqlite logs the repr of what it runs at DEBUG; a partial would show its arguments, tokens included.
            return function(connection)

        result: T = await self._execute(work)  # type: ignore[no-untyped-call]  # aiosqlite leaves it untyped
        return result


class Lane:
    """Two queues of units, which a subclass runs in batches. Units of the first queue go before the others."""

    def __init__(self, environment: Environment, on_stop: Callable[[FailStop], None] | None = None) -> None:
        self._environment = environment
        self._on_stop = on_stop or self.fail_stop
        self._first: list[Queued] = []
        self._queue: list[Queued] = []
        self._drain: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self.stopped: str | None = None
        self.on_change: Callable[[Collection[str]], None] = lambda changed: None

    def fail_stop(self, cause: FailStop) -> None:
        """Rejects all units from now on."""
        if self.stopped is None:
            log.critical("WRITING HAS STOPPED until an operator has looked: %s", cause)
            self.stopped = cause.message

    @property
    def waiting(self) -> int:
        """The number of waiting units."""
        return len(self._first) + len(self._queue)

    @property
    def is_busy(self) -> bool:
        """Whether units wait or run."""
        return self._drain is not None

    async def submit(self, unit: transactions.Unit, *, first: bool = False) -> Any:
        """The unit's result, or what it raised.

        `first` units go before the others, and their queue is limited separately.
        """
        if self._closing is not None:
            raise Unavailable("The server is stopping; try again shortly", retry_after=5)
        if self.stopped is not None:
            raise Unavailable(self.stopped, retry_after=STOPPED_SECONDS)
        if len(self._first) + (0 if first else len(self._queue)) >= MAX_WAITING_UNITS:
            raise Unavailable("The server has more work waiting than it can do; nothing was changed. Try again shortly")
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        (self._first if first else self._queue).append((unit, future))
        if self._drain is None:
            self._drain = asyncio.create_task(self._run_queue())
        return await future

    async def close(self) -> None:
        """Runs the queued units, then closes. Further calls wait for the same end."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._finish())
        await asyncio.shield(self._closing)  # a cancelled caller must not interrupt it

    async def run_together(self, batch: list[Queued]) -> list[object]:
        """The outcomes of a batch: results, or Raised. It may add more waiting units to the batch."""
        raise NotImplementedError

    def batch_size(self) -> int:
        """The maximum number of units in a batch, not counting the first queue."""
        return MAX_UNITS_PER_COMMIT  # applies to reads too, which share a snapshot

    def take(self, most: int) -> list[Queued]:
        """Takes the whole first queue, and up to `most` other units."""
        batch = self._first + self._queue[:most]
        self._first, self._queue = [], self._queue[most:]
        return batch

    async def _run_queue(self) -> None:
        try:
            while self._first or self._queue:
                batch = self.take(self.batch_size())
                try:
                    outcomes = await self.run_together(batch)
                except (FailStop, Unavailable) as error:  # the next batch would fail the same way
                    batch += self.take(self.waiting)
                    outcomes = [transactions.Raised(error)] * len(batch)
                except Exception as error:
                    log.exception("a batch of %d units failed in the database", len(batch))
                    outcomes = [transactions.Raised(error)] * len(batch)
                for (_, future), outcome in zip(batch, outcomes, strict=True):
                    self._answer(future, outcome)
                if self._first or self._queue:
                    await asyncio.sleep(0)  # the next batch is for the next turn of the loop
        finally:
            self._drain = None

    def _answer(self, future: "asyncio.Future[object]", outcome: object) -> None:
        """Passes the outcome to the caller, hiding internal details of a FailStop."""
        if not isinstance(outcome, transactions.Raised):
            if not future.done():  # else the caller was cancelled; its work is stored anyway
                future.set_result(outcome)
            return
        error = outcome.error
        if isinstance(error, FailStop):
            self._on_stop(error)
            error = Unavailable(error.message, retry_after=STOPPED_SECONDS)
        elif isinstance(error, StopIteration):  # a future cannot carry it: the caller would wait forever
            error = RuntimeError("a unit of work raised StopIteration")
        if not future.done():
            future.set_exception(error)

    async def _finish(self) -> None:
        if self._drain is not None:
            await self._drain


class ThreadLane(Lane):
    """Runs reads on the connection's thread, the only place that waits for locks."""

    def __init__(
        self, connection: OwnedConnection, environment: Environment, on_stop: Callable[[FailStop], None] | None = None
    ) -> None:
        super().__init__(environment, on_stop)
        self._connection = connection
        _set_lock_timeout(connection.raw, 0)

    async def run_together(self, batch: list[Queued]) -> list[object]:
        return await self.run_on_thread(partial(transactions.run_reads, units_of(batch), environment=self._environment))

    async def run_on_thread(self, run: Callable[[sqlite3.Connection], list[object]]) -> list[object]:
        """Runs a batch on the connection's thread, which may wait for other programs' locks."""

        def work(connection: sqlite3.Connection) -> list[object]:
            _set_lock_timeout(connection, round(connections.BUSY_TIMEOUT_SECONDS * 1000))
            try:
                return run(connection)
            finally:
                _set_lock_timeout(connection, 0)

        return await self._connection.run(work)

    async def _finish(self) -> None:
        await super()._finish()
        await self._connection.close()


class ReadLane(ThreadLane):
    """Runs reads that take microseconds, on one snapshot per turn of the event loop."""

    def __init__(self, connection: OwnedConnection, environment: Environment, writer: Lane) -> None:
        super().__init__(connection, environment, writer.fail_stop)
        self._writer = writer

    def batch_size(self) -> int:
        is_beside_writes = self._first or self._writer.is_busy
        return max(1 if is_beside_writes else READS_PER_TURN, len(self._queue) - MAX_LEFT_WAITING)

    async def run_together(self, batch: list[Queued]) -> list[object]:
        connection = self._connection.raw
        try:
            connection.execute("BEGIN")
            outcomes = transactions.attempt(units_of(batch), connection, self._environment)
            connection.execute("COMMIT")
        except (transactions.Unfinished, FailStop, sqlite3.Error):
            transactions.roll_back(connection)
            return await super().run_together(batch)
        self._environment.reading.end()
        return outcomes


class WriteLane(ThreadLane):
    """Runs writes: statements on the event loop's thread, their shared commit on the connection's thread."""

    def __init__(self, connection: OwnedConnection, environment: Environment, presence: connections.Presence) -> None:
        super().__init__(connection, environment)
        self._presence = presence
        self._mark: HighWaterMark | None = None

    async def watch(self, mark: HighWaterMark) -> None:
        """Notes the position of each commit from now on, and closes the mark at the end."""
        self._mark = mark

        def begin(connection: sqlite3.Connection) -> None:
            with suppress(sqlite3.Error):
                mark.note(Position.of(connection))
                # So that the database file itself says that a server runs.
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

        await self._connection.run(begin)

    async def run_together(self, batch: list[Queued]) -> list[object]:
        started = perf_counter()
        changed: list[str] = []
        try:
            outcomes = await self._run_and_commit(batch, changed)
        finally:
            metrics = self._environment.metrics
            metrics.batch_sizes.observe(len(batch))
            metrics.transaction_seconds.observe(perf_counter() - started)
        if changed:
            metrics.events.update(name for name in changed if name in EVENT_TYPES)
            self.on_change(dict.fromkeys(changed).keys())
        return outcomes

    async def _finish(self) -> None:
        await super()._finish()
        if self._mark is not None:
            self._mark.close()

    async def _run_and_commit(self, batch: list[Queued], changed: list[str]) -> list[object]:
        """`changed` collects the names of possible changes, including those of units rolled back."""
        connection = self._connection.raw
        try:
            connection.execute("BEGIN IMMEDIATE")
            outcomes, joining = list[object](), batch
            while joining:
                outcomes += transactions.attempt(units_of(joining), connection, self._environment, changed)
                await asyncio.sleep(0)  # lets units of the same turn join the commit
                joining = self.take(MAX_UNITS_PER_COMMIT - len(batch))
                batch += joining
        except (transactions.Unfinished, sqlite3.Error):
            transactions.roll_back(connection)
            run = partial(transactions.run_units, units_of(batch), changed=changed)
            return await self.run_on_thread(
                partial(run, environment=self._environment, presence=self._presence, mark=self._mark)
            )
        except FailStop:
            transactions.roll_back(connection)
            raise
        return await self._connection.run(
            partial(
                transactions.commit, outcomes, environment=self._environment, presence=self._presence, mark=self._mark
            )
        )


def units_of(batch: Sequence[Queued]) -> list[transactions.Unit]:
    """The units of a batch, in order."""
    return [unit for unit, _ in batch]


def _set_lock_timeout(connection: sqlite3.Connection, milliseconds: int) -> None:
    """Sets how long statements wait for other programs' locks; with 0 they fail at once."""
    connection.execute(f"PRAGMA busy_timeout = {milliseconds}")


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
    async def open(
        cls, path: str, environment: Environment | None = None, connection: type[OwnedConnection] = OwnedConnection
    ) -> "Database":
        """Opens the file, creating or migrating it as needed. Units get their time from `environment`.

        The caller holds the file's server_lock until it has closed the database. Raises UnusableDatabase if the file is
        not this program's, sqlite3.Error.
        """
        environment = environment or Environment.of(Settings())
        opened: list[OwnedConnection] = []
        presence = connections.Presence(path)
        try:
            for connect in (partial(connections.connect_writer, is_locked=True), connections.connect_reader):
                opened.append(await connection.open(partial(connect, path)))
            if environment.is_disposable:
                await opened[0].run(lambda connection: connection.execute("PRAGMA synchronous = OFF"))
            presence.note()
        except BaseException:
            for one in opened:
                await one.close()
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

    async def run_together(self, batch: list[Queued]) -> list[object]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, units_of(batch))

    def _run(self, units: Sequence[transactions.Unit]) -> list[object]:
        try:
            if self._connection is None:
                self._connection = self.connect()
            return transactions.run_reads(units, self._connection, self._environment)
        except (UnusableDatabase, sqlite3.Error) as error:
            self._environment.reading.note(f"{self._path} is unreadable", error)
            return [transactions.Raised(Unavailable(transactions.NOT_READ)) for _ in units]

    def connect(self) -> sqlite3.Connection:
        return connections.connect_reader(self._path, cache_kib=256)

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
        return connections.connect_standby(self._path)

    def _run(self, units: Sequence[transactions.Unit]) -> list[object]:
        try:
            return super()._run(units)
        finally:
            self.disconnect()


def answers(tx: Transaction) -> bool:
    """Whether the database can be read; raises if not."""
    return tx.execute("SELECT count(*) FROM sqlite_master").fetchone() is not None
