"""Units of work, run together in one transaction of a connection.

Mostly `attempt` runs them on the event loop's own thread, where a statement takes microseconds, and `commit` makes them
durable on the connection's thread, where waiting for the disk delays nobody. What does not go smoothly is done again by
`run_units` and `run_reads` on that thread. So a unit may run twice: it changes nothing but rows.

When the disk is full (ENOSPC) or fails, a commit fails whole: its callers get Unavailable (503), nothing of it is kept,
and writing goes on when there is room again. What does not pass stops all writing (`payres.store.work`).
"""

import logging
import sqlite3
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Final

from payres.errors import DomainError, Unavailable
from payres.store.connections import Presence
from payres.store.work import Environment, FailStop, Transaction, Work, damage

Unit = Callable[[Work], Any]

NOT_STORED: Final = "The server could not store this; nothing was changed. Try again shortly"
NOT_READ: Final = "The server could not read its database. Try again shortly"

log = logging.getLogger("payres.store")


class Unfinished(Exception):
    """Units were given up in the middle, with nothing of them kept: to be run again on the connection's thread."""


class Raised:
    """What a unit raised; anything else, an exception too, is what it returned."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def attempt(
    units: Sequence[Unit], connection: sqlite3.Connection, environment: Environment, changed: list[str] | None = None
) -> list[Any]:
    """Runs the units inside the open transaction, without savepoints. Each outcome is a result or Raised.

    `changed` gets what they say has changed.

    A unit that raises with nothing changed needs no undoing. Raises Unfinished when one raises with something changed,
    or storage fails it; FailStop when a unit does.
    """
    outcomes: list[Any] = []
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
            outcomes.append(_raised(error))
    return outcomes


def run_units(
    units: Sequence[Unit],
    connection: sqlite3.Connection,
    environment: Environment,
    presence: Presence,
    changed: list[str],
) -> list[Any]:
    """Runs the units in one transaction, a savepoint each, and commits once. Each outcome is a result or Raised.

    A unit that raises is rolled back to its savepoint. When the transaction itself is lost, every unit is. Raises
    FailStop, with nothing of any unit stored, when one raises it or finds damage, or the file is not present any more;
    Unavailable when no transaction can begin, mostly because another program has the lock for BUSY_TIMEOUT_SECONDS.
    """
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.Error as error:
        log.error("no transaction could begin: %s", error)
        raise damage(error) or Unavailable(NOT_STORED) from error
    try:
        outcomes = [_run_unit(unit, connection, environment, changed) for unit in units]
    except Exception as error:
        return _failed(error, connection, len(units))
    return commit(outcomes, connection, presence)


def commit(outcomes: list[Any], connection: sqlite3.Connection, presence: Presence) -> list[Any]:
    """Commits what units did; their outcomes, or for all of them that nothing was stored. Raises FailStop."""
    try:
        presence.check()
        connection.execute("COMMIT")
    except Exception as error:
        return _failed(error, connection, len(outcomes))
    return outcomes


def _failed(error: Exception, connection: sqlite3.Connection, units: int) -> list[Any]:
    """Rolls back; for each unit that nothing was stored. Raises FailStop."""
    _empty_frames(error)
    roll_back(connection)
    if isinstance(error, FailStop):
        raise error
    if found := damage(error):
        raise found from error
    log.error("a commit of %d units failed and nothing of it was kept: %s", units, error)
    _overwrite(connection)
    return [Raised(Unavailable(NOT_STORED)) for _ in range(units)]


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
        log.error("and the commit to overwrite it failed: %s", error)
        roll_back(connection)


def _run_unit(unit: Unit, connection: sqlite3.Connection, environment: Environment, changed: list[str]) -> Any:
    connection.execute("SAVEPOINT unit")
    try:
        outcome = _checked(unit(Work(connection, environment, changed)))
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


def run_reads(units: Sequence[Unit], connection: sqlite3.Connection, environment: Environment) -> list[Any]:
    """Runs the units over one snapshot. Each outcome is a result or Raised."""
    outcomes: list[Any] = []
    try:
        connection.execute("BEGIN")
        for unit in units:
            try:
                outcomes.append(_checked(unit(Work(connection, environment))))
            except BaseException as error:
                outcomes.append(_raised(error))
        connection.execute("COMMIT")
    except Exception as error:
        roll_back(connection)
        log.error("%d reads failed: %s", len(units), error)
        if cause := damage(error):
            return [Raised(cause)] * len(units)
        return [Raised(Unavailable(NOT_READ)) for _ in units]
    return outcomes


def _checked(result: Any) -> Any:
    # A cursor, or an iterator over one, is bound to a transaction that is about to end.
    if hasattr(result, "__next__"):  # an Iterator, at a tenth of what isinstance takes
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


def roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        try:
            connection.execute("ROLLBACK")
        except sqlite3.Error:
            log.exception("the rollback failed too")


def touch(tx: Transaction) -> None:
    """Writes one page, with nothing changed in it, so that there is something to commit; raises when it cannot."""
    (version,) = tx.execute("PRAGMA user_version").fetchone()
    tx.execute(f"PRAGMA user_version = {version}")
