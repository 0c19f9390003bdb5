"""The database: one writer with group commit, and readers that never wait for it.

A unit of work is a plain function over one open transaction. Units for the writer queue up; all that are waiting run
inside one SQLite transaction, a savepoint each, and share one durable commit. Nobody is answered before that commit.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import aiosqlite

from payres.errors import Refusal, unavailable
from payres.store.migrations import migrate

T = TypeVar("T")
Transaction = sqlite3.Connection
Unit = Callable[[Transaction], Any]
Waiting = tuple[Unit, "asyncio.Future[Any]"]

MAX_UNITS_PER_COMMIT = 256
READERS = 2
BUSY_TIMEOUT_SECONDS = 5.0

log = logging.getLogger("payres.store")


class Database:
    """An open database file. Use `Database.open`, then `write` and `read` with plain functions, then `close`."""

    def __init__(self, path: str, writer: "Lane", readers: Sequence["Lane"]) -> None:
        self.path = path
        self._writer = writer
        self._readers = readers

    @classmethod
    async def open(cls, path: str) -> "Database":
        """Opens the file, creating or migrating it as needed.

        Raises payres.store.migrations.NewerDatabase when a later payres wrote it, sqlite3.Error when it cannot be used.
        """
        writer = Lane(await OwnedConnection.open(partial(connect_writer, path)), run_units)
        readers = [Lane(await OwnedConnection.open(partial(connect_reader, path)), run_reads) for _ in range(READERS)]
        return cls(path, writer, readers)

    async def write(self, unit: Callable[[Transaction], T]) -> T:
        """The unit's result, once the commit that holds its work is durable.

        What the unit raises is raised here and only its own work is undone. Raises the Refusal `unavailable` (503),
        with nothing kept, when the commit fails.
        """
        result: T = await self._writer.submit(unit)
        return result

    async def read(self, unit: Callable[[Transaction], T]) -> T:
        """The unit's result over one snapshot that holds all that was committed before this call."""
        lane = min(self._readers, key=Lane.queue_length)
        result: T = await lane.submit(unit)
        return result

    async def close(self) -> None:
        """Finishes what is queued and closes every connection. Closing twice does nothing."""
        for lane in (*self._readers, self._writer):
            await lane.close()


class OwnedConnection(aiosqlite.Connection):
    """aiosqlite's connection and thread, with whole functions run on it instead of one statement at a time."""

    def __init__(self, connector: Callable[[], sqlite3.Connection]) -> None:
        super().__init__(connector, iter_chunk_size=64)
        self._thread.daemon = True  # a crash of the loop must not leave the process hanging on this thread

    @classmethod
    async def open(cls, connector: Callable[[], sqlite3.Connection]) -> "OwnedConnection":
        """An open connection on a thread of its own. Raises what the connector raises."""
        connection = cls(connector)
        await connection
        return connection

    async def run(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """The function's result, computed on the connection's own thread."""
        result: T = await self._execute(function, self._conn)  # type: ignore[no-untyped-call]  # aiosqlite leaves it untyped
        return result


class Lane:
    """A queue in front of one connection: units that wait while it is busy are run together, in order."""

    def __init__(
        self, connection: OwnedConnection, run_together: Callable[[Sequence[Unit], Transaction], list[Any]]
    ) -> None:
        self._connection = connection
        self._run_together = run_together
        self._waiting: list[Waiting] = []
        self._drain: asyncio.Task[None] | None = None
        self._closed = False

    def queue_length(self) -> int:
        """How many units would run before a new one, the batch under way counting as one."""
        return len(self._waiting) + (self._drain is not None)

    async def submit(self, unit: Unit) -> Any:
        """The unit's result, or what it raised."""
        if self._closed:
            raise unavailable("The server is stopping; try again shortly", retry_after=5)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((unit, future))
        if self._drain is None:
            self._drain = asyncio.create_task(self._run_waiting())
        return await future

    async def _run_waiting(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:MAX_UNITS_PER_COMMIT], self._waiting[MAX_UNITS_PER_COMMIT:]
                try:
                    outcomes = await self._connection.run(partial(self._run_together, [unit for unit, _ in batch]))
                except Exception as error:
                    log.exception("the database thread failed a batch of %d units", len(batch))
                    outcomes = [error] * len(batch)
                for (_, future), outcome in zip(batch, outcomes, strict=True):
                    _resolve(future, outcome)
        finally:
            self._drain = None

    async def close(self) -> None:
        """Lets the queue run dry, then closes the connection."""
        if self._closed:
            return
        self._closed = True
        if self._drain is not None:
            await self._drain
        await self._connection.close()


def _resolve(future: "asyncio.Future[Any]", outcome: Any) -> None:
    if future.done():  # the one who asked has gone away; the work stands all the same
        return
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


def run_units(units: Sequence[Unit], connection: Transaction) -> list[Any]:
    """Runs the units in one transaction and commits once. Each outcome is a result or an exception.

    A unit that raises is rolled back to its savepoint. When the transaction itself is lost, every unit is.
    """
    try:
        connection.execute("BEGIN IMMEDIATE")
        outcomes = [_run_unit(unit, connection) for unit in units]
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        _roll_back(connection)
        log.error("a commit of %d units failed and nothing of it was kept: %s", len(units), error)  # noqa: TRY400
        return [unavailable("The server could not store this; nothing was changed. Try again shortly") for _ in units]
    return outcomes


def _run_unit(unit: Unit, connection: Transaction) -> Any:
    connection.execute("SAVEPOINT unit")
    try:
        outcome = unit(connection)
    except Exception as error:
        outcome = error
        # Some failures (disk full, I/O) end the whole transaction; then there is no savepoint and this raises in turn.
        connection.execute("ROLLBACK TO unit")
    connection.execute("RELEASE unit")
    return _storage_failure(outcome)


@contextmanager
def savepoint(tx: Transaction) -> Iterator[None]:
    """Undoes what the block did, and that alone, when it raises."""
    tx.execute("SAVEPOINT part")
    try:
        yield
    except BaseException:
        tx.execute("ROLLBACK TO part")
        tx.execute("RELEASE part")
        raise
    tx.execute("RELEASE part")


def run_reads(units: Sequence[Unit], connection: Transaction) -> list[Any]:
    """Runs the units over one snapshot. Each outcome is a result or an exception."""
    outcomes: list[Any] = []
    try:
        connection.execute("BEGIN")
        for unit in units:
            try:
                outcomes.append(unit(connection))
            except Exception as error:
                outcomes.append(_storage_failure(error))
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        _roll_back(connection)
        log.error("%d reads failed: %s", len(units), error)  # noqa: TRY400
        return [unavailable("The server could not read its database. Try again shortly") for _ in units]
    return outcomes


def _storage_failure(outcome: Any) -> Any:
    """A failure of storage as a Refusal; any other outcome as it is: a broken constraint is our fault and stays one."""
    if isinstance(outcome, sqlite3.OperationalError):
        log.error("storage failed a unit of work: %s", outcome)
        return unavailable("The server could not use its storage. Try again shortly")
    if isinstance(outcome, Exception) and not isinstance(outcome, Refusal):
        log.debug("a unit of work raised", exc_info=outcome)
    return outcome


def _roll_back(connection: Transaction) -> None:
    if connection.in_transaction:
        try:
            connection.execute("ROLLBACK")
        except sqlite3.Error:
            log.exception("the rollback failed too")


def connect_writer(path: str) -> sqlite3.Connection:
    """The one connection that writes; creates and migrates the file first."""
    if path != ":memory:":
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        if not Path(path).exists():
            Path(path).touch(mode=0o600)  # it will hold secrets: never world-readable, not even for a moment
    connection = _connect(path)
    try:
        connection.execute("PRAGMA journal_mode = WAL")  # readers go on while the writer commits
        connection.execute("PRAGMA synchronous = FULL")  # a commit survives power loss, not just a crash
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA journal_size_limit = 67108864")
        migrate(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def connect_reader(path: str) -> sqlite3.Connection:
    """A connection that cannot write."""
    connection = _connect(path)
    connection.execute("PRAGMA query_only = ON")
    return connection


def _connect(path: str) -> sqlite3.Connection:
    # isolation_level=None: transactions begin where the code says so, never behind its back.
    connection = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    connection.execute("PRAGMA cache_size = -8192")  # 8 MiB for each connection
    connection.execute("PRAGMA temp_store = MEMORY")
    return connection
