"""The database: one writer with group commit, and readers that never wait for it.

A unit of work is a plain function over one open transaction. Units for the writer queue up; all that are waiting run
inside one SQLite transaction, a savepoint each, and share one durable commit. Nobody is answered before that commit.

When the disk is full (ENOSPC) or fails, a commit fails whole: its callers get Unavailable (503), nothing of it is kept,
and writing goes on when there is room again. What does not pass stops all writing (`payres.store.fail_stop`).
"""

import asyncio
import logging
import sqlite3
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import aiosqlite

from payres.errors import DomainError, Unavailable
from payres.limits import MAX_UNITS_PER_COMMIT, MAX_WAITING_UNITS
from payres.settings import Settings
from payres.store.connections import connect_reader, connect_writer
from payres.store.database_file import Presence
from payres.store.fail_stop import FailStop, damage
from payres.store.work import Transaction as Transaction
from payres.store.work import Work, World, world

T = TypeVar("T")
Unit = Callable[[Work], Any]
Waiting = tuple[Unit, "asyncio.Future[Any]"]

READERS = 2
NOT_STORED = "The server could not store this; nothing was changed. Try again shortly"
STOPPED_SECONDS = 60  # until a caller may ask whether an operator has looked

log = logging.getLogger("payres.store")


class Database:
    """An open database file. Use `Database.open`, then `write` and `read` with plain functions, then `close`."""

    def __init__(self, path: str, writer: "Lane", readers: Sequence["Lane"], examiner: "Lane") -> None:
        self.path = path
        self._writer = writer
        self._readers = readers
        self._examiner = examiner

    @property
    def stopped(self) -> str | None:
        """Why nothing more is written, in words for callers; None as long as things are right."""
        return self._writer.stopped

    def fail_stop(self, cause: FailStop) -> None:
        """Writes nothing from now on: every unit gets Unavailable, and the file stays as it is. Reading goes on."""
        self._writer.fail_stop(cause)

    @classmethod
    async def open(cls, path: str, around: World | None = None) -> "Database":
        """Opens the file, creating or migrating it as needed; units of work get their time and ids from `around`.

        The caller holds the file's server_lock until it has closed the database. Raises UnusableDatabase when it is not
        this program's, sqlite3.Error when it cannot be used.
        """
        around = around or world(Settings())
        lanes: list[Lane] = []
        presence = Presence(path)
        try:
            connection = await OwnedConnection.open(partial(connect_writer, path, is_locked=True))
            lanes.append(writer := Lane(connection, partial(run_units, around=around, presence=presence)))
            presence.note()
            for _ in range(READERS + 1):
                connection = await OwnedConnection.open(partial(connect_reader, path))
                lanes.append(Lane(connection, partial(run_reads, around=around), writer.fail_stop))
        except BaseException:
            for lane in lanes:
                await lane.close()
            raise
        return cls(path, writer, lanes[1:-1], lanes[-1])

    async def write(self, unit: Callable[[Work], T]) -> T:
        """The unit's result, once the commit that holds its work is durable.

        What the unit raises is raised here and only its own work is undone. Raises Unavailable, with nothing stored,
        when the commit fails, when too many units wait, and always after a unit has raised FailStop.
        """
        result: T = await self._writer.submit(unit)
        return result

    async def read(self, unit: Callable[[Work], T]) -> T:
        """The unit's result over one snapshot that holds all that was committed before this call."""
        lane = min(self._readers, key=Lane.delay)
        result: T = await lane.submit(unit)
        return result

    async def examine(self, unit: Callable[[Work], T]) -> T:
        """Like `read`, on a connection of its own for what takes long, which so delays no other read."""
        result: T = await self._examiner.submit(unit)
        return result

    async def close(self) -> None:
        """Finishes what is queued and closes every connection. Closing twice does nothing."""
        for lane in (*self._readers, self._examiner, self._writer):
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
        try:
            await connection
        except Exception:
            connection._thread.join()  # it is ending, and may not outlast the loop that it still reports to
            raise
        return connection

    async def run(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """The function's result, computed on the connection's own thread."""
        connection = self._conn  # here, because it raises when there is none any more

        def work() -> T:
            # aiosqlite logs what it runs, at DEBUG: of this it shows a name, of a function with arguments tokens too.
            return function(connection)

        result: T = await self._execute(work)  # type: ignore[no-untyped-call]  # aiosqlite leaves it untyped
        return result


class Lane:
    """A queue in front of one connection: units that wait while it is busy are run together, in order."""

    def __init__(
        self,
        connection: OwnedConnection,
        run_together: Callable[[Sequence[Unit], sqlite3.Connection], list[Any]],
        on_stop: Callable[[FailStop], None] | None = None,
    ) -> None:
        self._connection = connection
        self._run_together = run_together
        self._on_stop = on_stop or self.fail_stop
        self._waiting: list[Waiting] = []
        self._drain: asyncio.Task[None] | None = None
        self._running = False
        self._closing: asyncio.Task[None] | None = None
        self.stopped: str | None = None

    def fail_stop(self, cause: FailStop) -> None:
        """Runs nothing from now on."""
        if self.stopped is None:
            log.critical("WRITING HAS STOPPED, and an operator must look before it goes on: %s", cause)
            self.stopped = cause.message

    def delay(self) -> int:
        """How long a new unit would wait, in units, to choose a lane by; below zero when it joins some about to run.

        Joining them is best: one large batch costs less than two small ones, whose threads contend for the interpreter.
        """
        return len(self._waiting) + 1 if self._running else -len(self._waiting)

    async def submit(self, unit: Unit) -> Any:
        """The unit's result, or what it raised."""
        if self._closing is not None:
            raise Unavailable("The server is stopping; try again shortly", retry_after=5)
        if self.stopped is not None:
            raise Unavailable(self.stopped, retry_after=STOPPED_SECONDS)
        if len(self._waiting) >= MAX_WAITING_UNITS:
            raise Unavailable("The server has more work waiting than it can do; nothing was changed. Try again shortly")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((unit, future))
        if self._drain is None:
            self._drain = asyncio.create_task(self._run_waiting())
        return await future

    async def _run_waiting(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:MAX_UNITS_PER_COMMIT], self._waiting[MAX_UNITS_PER_COMMIT:]
                self._running = True
                try:
                    outcomes = await self._connection.run(partial(self._run_together, [unit for unit, _ in batch]))
                except (FailStop, NotBegun) as error:  # those behind would only wait for the same again
                    batch, self._waiting = batch + self._waiting, []
                    outcomes = [Raised(error)] * len(batch)
                except Exception as error:
                    log.exception("the database thread failed a batch of %d units", len(batch))
                    outcomes = [Raised(error)] * len(batch)
                finally:
                    self._running = False
                for (_, future), outcome in zip(batch, outcomes, strict=True):
                    _resolve(future, self._reported(outcome))
        finally:
            self._drain = None

    def _reported(self, outcome: Any) -> Any:
        """The outcome as its caller may know it."""
        if isinstance(outcome, Raised):
            if isinstance(outcome.error, FailStop):
                self._on_stop(outcome.error)
                return Raised(Unavailable(outcome.error.message, retry_after=STOPPED_SECONDS))
            if isinstance(outcome.error, NotBegun):
                return Raised(Unavailable(NOT_STORED))
        return outcome

    async def close(self) -> None:
        """Runs what is queued, then closes the connection. Closing again waits for the same end."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._finish())
        await asyncio.shield(self._closing)  # a caller that is cancelled must not leave it half closed

    async def _finish(self) -> None:
        if self._drain is not None:
            await self._drain
        await self._connection.close()


class NotBegun(Exception):
    """No transaction could begin: mostly because another program has held the lock for BUSY_TIMEOUT_SECONDS."""


class Raised:
    """What a unit raised; anything else, an exception too, is what it returned."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def _resolve(future: "asyncio.Future[Any]", outcome: Any) -> None:
    if future.done():  # the caller was cancelled; the work stands all the same
        return
    if not isinstance(outcome, Raised):
        future.set_result(outcome)
    elif isinstance(outcome.error, StopIteration):  # a future cannot carry one, and the caller would wait forever
        future.set_exception(RuntimeError("a unit of work raised StopIteration"))
    else:
        future.set_exception(outcome.error)


def run_units(
    units: Sequence[Unit], connection: sqlite3.Connection, around: World, presence: Presence | None = None
) -> list[Any]:
    """Runs the units in one transaction and commits once. Each outcome is a result or Raised.

    A unit that raises is rolled back to its savepoint. When the transaction itself is lost, every unit is. Raises
    FailStop, with nothing of any unit stored, when one raises it or finds damage, or the file is not present any more;
    NotBegun.
    """
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.Error as error:
        log.error("no transaction could begin: %s", error)  # noqa: TRY400
        raise damage(error) or NotBegun() from error
    try:
        outcomes = [_run_unit(unit, connection, around) for unit in units]
        if presence is not None:
            presence.check()
        connection.execute("COMMIT")
    except FailStop as cause:
        _empty_frames(cause)
        _roll_back(connection)
        raise
    except Exception as error:
        _roll_back(connection)
        if found := damage(error):
            raise found from error
        log.error("a commit of %d units failed and nothing of it was kept: %s", len(units), error)  # noqa: TRY400
        _overwrite(connection)
        return [Raised(Unavailable(NOT_STORED)) for _ in units]
    return outcomes


def _overwrite(connection: sqlite3.Connection) -> None:
    """Puts another commit where one that failed may stand whole in the log.

    When the disk does not confirm a commit, SQLite drops it, but its pages are written: should the process die before
    the next one, recovery would find them, and what callers heard has failed would have happened. It does no harm if
    this is not confirmed either: written is enough, unless the power fails as well.
    """
    try:
        connection.execute("BEGIN IMMEDIATE")
        touch(connection)
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        log.error("and the commit to overwrite it failed: %s", error)  # noqa: TRY400
        _roll_back(connection)


def _run_unit(unit: Unit, connection: sqlite3.Connection, around: World) -> Any:
    connection.execute("SAVEPOINT unit")
    try:
        outcome = _checked(unit(Work(connection, around)))
    except FailStop:
        raise
    except BaseException as error:  # even what would end a program must not end the thread with the work half done
        outcome = _raised(error)
        if isinstance(outcome.error, FailStop):
            raise outcome.error from error
        # Some failures (disk full, I/O) end the whole transaction; then there is no savepoint and this raises in turn.
        connection.execute("ROLLBACK TO unit")
    connection.execute("RELEASE unit")
    return outcome


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


def run_reads(units: Sequence[Unit], connection: sqlite3.Connection, around: World) -> list[Any]:
    """Runs the units over one snapshot. Each outcome is a result or Raised."""
    outcomes: list[Any] = []
    try:
        connection.execute("BEGIN")
        for unit in units:
            try:
                outcomes.append(_checked(unit(Work(connection, around))))
            except BaseException as error:
                outcomes.append(_raised(error))
        connection.execute("COMMIT")
    except Exception as error:
        _roll_back(connection)
        log.error("%d reads failed: %s", len(units), error)  # noqa: TRY400
        if cause := damage(error):
            return [Raised(cause)] * len(units)
        return [Raised(Unavailable("The server could not read its database. Try again shortly")) for _ in units]
    return outcomes


def _checked(result: Any) -> Any:
    # A cursor, or an iterator over one, is bound to a transaction that is about to end.
    if isinstance(result, Iterator):
        raise TypeError(f"a unit of work returned {type(result).__name__}, which would be read after its transaction")
    return result


def _raised(error: BaseException) -> Raised:
    """A failure of storage as Unavailable or FailStop; any other as it is: a broken constraint stays our fault."""
    _empty_frames(error)
    if cause := damage(error):
        return Raised(cause)
    if isinstance(error, sqlite3.OperationalError):
        log.error("storage failed a unit of work: %s", error)
        return Raised(Unavailable("The server could not use its storage. Try again shortly"))
    if not isinstance(error, DomainError):
        log.debug("a unit of work raised", exc_info=error)
    return Raised(error)


def _empty_frames(error: BaseException) -> None:
    """Frees what the frames of the traceback hold.

    A half-read cursor among it would hold the connection in its old snapshot as long as the exception lives: a reader
    would no longer see what is committed, and the writer could not begin once another program has written.
    """
    chain: list[BaseException | None] = [error]
    seen: set[int] = set()
    while chain:
        link = chain.pop()
        if link is not None and id(link) not in seen:
            seen.add(id(link))
            traceback.clear_frames(link.__traceback__)
            chain += [link.__cause__, link.__context__]


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        try:
            connection.execute("ROLLBACK")
        except sqlite3.Error:
            log.exception("the rollback failed too")


def answers(tx: Transaction) -> bool:
    """Whether the database can be read; raises when it cannot."""
    return tx.execute("SELECT count(*) FROM sqlite_master").fetchone() is not None


def touch(tx: Transaction) -> None:
    """Writes one page, with nothing changed in it, so that there is something to commit; raises when it cannot."""
    (version,) = tx.execute("PRAGMA user_version").fetchone()
    tx.execute(f"PRAGMA user_version = {version}")
