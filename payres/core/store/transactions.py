"""Units of work, run together in one transaction.

Usually `attempt` runs them on the event loop's thread, where a statement takes microseconds, and `commit` makes them
durable on the connection's thread, where waiting for the disk blocks nobody. On any trouble, `run_units` and
`run_reads` run them again on that thread. So a unit may run twice: its only side effects are rows.

If the disk is full (ENOSPC) or fails, the whole commit fails: its callers get Unavailable (503), nothing is stored, and
writing continues once there is room. Permanent faults stop all writing (`payres.core.store.work`).
"""

import logging
import sqlite3
import traceback
from collections.abc import Callable, Sequence
from typing import Final

from payres.core.protocol.errors import Unavailable
from payres.core.store.connections import Presence
from payres.core.store.runs import HighWaterMark, Position
from payres.core.store.work import Environment, FailStop, Failures, Transaction, Work, damage

Unit = Callable[[Work], object]

NOT_STORED: Final = "The server could not store this; nothing was changed. Try again shortly"
NOT_READ: Final = "The server could not read its database. Try again shortly"

log = logging.getLogger("payres.store")


class Unfinished(Exception):
    """The units were interrupted with nothing stored, and must run again on the connection's thread."""


class Raised:
    """An exception that a unit raised, as opposed to one that it returned."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def attempt(
    units: Sequence[Unit], connection: sqlite3.Connection, environment: Environment, changed: list[str] | None = None
) -> list[object]:
    """Runs the units in the open transaction without savepoints. Each outcome is a result or Raised.

    `changed` collects the names of changes. A unit that raises before any change needs no rollback. Raises Unfinished
    if a unit raises after a change, or storage fails; FailStop if a unit does.
    """
    outcomes: list[object] = []
    for unit in units:
        changes = connection.total_changes
        try:
            outcomes.append(_checked(unit(Work(connection, environment, changed))))
        except BaseException as error:
            _empty_frames(error)
            if isinstance(error, FailStop):
                raise
            if isinstance(error, sqlite3.Error) or connection.total_changes != changes:
                raise Unfinished from error
            outcomes.append(Raised(error))
    return outcomes


def run_units(
    units: Sequence[Unit],
    connection: sqlite3.Connection,
    environment: Environment,
    presence: Presence,
    changed: list[str],
    mark: HighWaterMark | None = None,
) -> list[object]:
    """Runs the units in one transaction, with a savepoint each, and one commit. Each outcome is a result or Raised.

    A unit that raises is rolled back to its savepoint; if the transaction itself is lost, all units are. Raises
    FailStop, with nothing stored, if a unit raises it or finds damage, or the file is gone; Unavailable if no
    transaction can begin, usually because another program has held the lock for BUSY_TIMEOUT_SECONDS.
    """
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.Error as error:
        environment.writing.note("no transaction could be started", error)
        raise damage(error) or Unavailable(NOT_STORED) from error
    try:
        outcomes = [_run_unit(unit, connection, environment, changed) for unit in units]
    except Exception as error:
        return _failed(error, connection, environment, len(units))
    return commit(outcomes, connection, environment, presence, mark)


def commit(
    outcomes: list[object],
    connection: sqlite3.Connection,
    environment: Environment,
    presence: Presence,
    mark: HighWaterMark | None,
) -> list[object]:
    """Commits. Returns the outcomes, or if the commit fails, Unavailable for each unit. Raises FailStop."""
    try:
        presence.check()
        reached = None if mark is None else Position.of(connection)  # before COMMIT, when no lock must be taken for it
        connection.execute("COMMIT")
    except Exception as error:
        return _failed(error, connection, environment, len(outcomes))
    if mark is not None and reached is not None:
        mark.note(reached)
    environment.writing.end()
    return outcomes


def _failed(error: Exception, connection: sqlite3.Connection, environment: Environment, units: int) -> list[object]:
    """Rolls back. Returns Unavailable for each unit. Raises FailStop."""
    _empty_frames(error)
    roll_back(connection)
    if isinstance(error, FailStop):
        raise error
    if found := damage(error):
        raise found from error
    environment.writing.note("a commit failed, and nothing of it was stored", error)
    _overwrite(connection, environment)
    return [Raised(Unavailable(NOT_STORED)) for _ in range(units)]


def _overwrite(connection: sqlite3.Connection, environment: Environment) -> None:
    """Overwrites a failed commit, which may be complete in the log, by another.

    If the disk does not confirm a commit, SQLite drops it, but its pages may be written: if the process died before the
    next commit, recovery would restore work that callers were told had failed. This commit need not be confirmed
    either: being written is enough, unless the power fails too.
    """
    try:
        connection.execute("BEGIN IMMEDIATE")
        touch(connection)
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        environment.writing.note("the commit to overwrite a failed one failed too", error)
        roll_back(connection)


def _run_unit(unit: Unit, connection: sqlite3.Connection, environment: Environment, changed: list[str]) -> object:
    connection.execute("SAVEPOINT unit")
    try:
        outcome = _checked(unit(Work(connection, environment, changed)))
    except FailStop:
        raise
    except BaseException as error:  # even SystemExit must not end the thread with the work half done
        outcome = _raised(error, environment.writing)
        if isinstance(outcome.error, FailStop):
            raise outcome.error from error
        # Some failures (disk full, I/O) end the whole transaction; then there is no savepoint, and this raises too.
        connection.execute("ROLLBACK TO unit")
    connection.execute("RELEASE unit")
    return outcome


def run_reads(units: Sequence[Unit], connection: sqlite3.Connection, environment: Environment) -> list[object]:
    """Runs the units on one snapshot. Each outcome is a result or Raised."""
    outcomes: list[object] = []
    try:
        connection.execute("BEGIN")
        for unit in units:
            try:
                outcomes.append(_checked(unit(Work(connection, environment))))
            except BaseException as error:
                outcomes.append(_raised(error, environment.reading))
        connection.execute("COMMIT")
    except Exception as error:
        roll_back(connection)
        environment.reading.note("reads failed", error)
        if cause := damage(error):
            return [Raised(cause)] * len(units)
        return [Raised(Unavailable(NOT_READ)) for _ in units]
    environment.reading.end()
    return outcomes


def _checked(result: object) -> object:
    # A cursor, or an iterator over one, would be read after its transaction.
    if hasattr(result, "__next__"):  # an Iterator; ten times as fast as isinstance
        raise TypeError(f"a unit of work returned {type(result).__name__}, which would be read after its transaction")
    return result


def _raised(error: BaseException, failures: Failures) -> Raised:
    """Storage errors become Unavailable or FailStop; others stay, and whoever asked rejects or logs them."""
    _empty_frames(error)
    if cause := damage(error):
        return Raised(cause)
    if isinstance(error, sqlite3.OperationalError):
        failures.note("a unit of work failed in storage", error)
        return Raised(Unavailable("The server could not use its storage. Try again shortly"))
    return Raised(error)


def _empty_frames(error: BaseException) -> None:
    """Clears the frames of the traceback.

    A half-read cursor in one would keep the connection in its old snapshot as long as the exception lives: a reader
    would miss later commits, and the writer could not begin once another program has written.
    """
    chain: list[BaseException | None] = [error]
    seen: set[int] = set()
    while chain:
        link = chain.pop()
        if link is not None and id(link) not in seen:
            seen.add(id(link))
            traceback.clear_frames(link.__traceback__)
            chain += [link.__cause__, link.__context__]


def roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        try:
            connection.execute("ROLLBACK")
        except sqlite3.Error:
            log.exception("the rollback failed too")


def touch(tx: Transaction) -> None:
    """Rewrites one page unchanged, so that there is something to commit. Raises if it cannot."""
    (version,) = tx.execute("PRAGMA user_version").fetchone()
    tx.execute(f"PRAGMA user_version = {version}")
