"""SQL of the server's runs, and the commits that are missing after a kill.

After a kill the newest commits are only in the log. If that is gone, SQLite opens the database without a word. So each
run of the server has a token, in its row and in the lock file; the lock file also has the position that its commits
have reached, and in a second place that of the commands which ran meanwhile. It is written after each commit and not
synced, so a power cut can leave an older position, never one that the log does not have.

A log may be gone rightfully: a command or another program that had the database open has applied it. Then the database
has the position. Whoever opens a database without its server, and finds nothing missing, removes the token of the run.
"""

import fcntl
import logging
import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from payres.core.store.migrations import UnusableDatabase
from payres.core.store.work import Transaction

# The last sign of life. Rows that commands write without a server are excluded.
_END = """
UPDATE server_run SET killed_after = max(
  coalesce((SELECT created_at FROM transfer WHERE kind IN ('payment', 'exchange') AND refund_id IS NULL
    ORDER BY id DESC LIMIT 1), 0),
  coalesce((SELECT created_at FROM event WHERE type GLOB '*_payment.*' ORDER BY sequence DESC LIMIT 1), 0),
  coalesce((SELECT checked_at FROM ledger_check), 0)
) WHERE killed_after IS NULL
"""
log = logging.getLogger("payres.store")
_POSITION: Final = (
    "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'event'), 0),"
    " coalesce((SELECT max(id) FROM transfer), 0), coalesce((SELECT max(id) FROM audit), '-')"
)
_MARK_BYTES: Final = 512  # a mark is shorter; a write within one sector of a disk is not torn


def begin(tx: Transaction, token: str | None) -> bool:
    """Starts a run, with the token of its lock file. Whether the last one was killed."""
    was_killed = note_kill(tx)
    if not was_killed:
        tx.execute("INSERT INTO server_run DEFAULT VALUES")
    tx.execute("UPDATE server_run SET token = ? WHERE killed_after IS NULL", (token,))
    return was_killed


def note_kill(tx: Transaction) -> bool:
    """If the last run was killed, stores its last sign of life and starts another. Whether it was.

    Call it at the server's start, and before commands write rows that look like a sign of life.
    """
    was_killed = tx.execute(_END).rowcount > 0
    if was_killed:
        tx.execute("INSERT INTO server_run DEFAULT VALUES")
    return was_killed


def end(tx: Transaction) -> None:
    """Ends the current run cleanly."""
    tx.execute("DELETE FROM server_run WHERE killed_after IS NULL")


class LostCommits(UnusableDatabase):
    """Commits of a killed server are missing, or may be."""


class Position(NamedTuple):
    """How far commits have got: the last event, transfer and change by an operator. Each only grows."""

    event: int
    transfer: int
    change: str

    @classmethod
    def of(cls, tx: Transaction) -> "Position":
        return cls(*tx.execute(_POSITION).fetchone())

    def has(self, other: "Position") -> bool:
        """Whether nothing of the other position is missing here."""
        return self.event >= other.event and self.transfer >= other.transfer and self.change >= other.change


class HighWaterMark:
    """The token of a run and the position of its last commit, in the lock file of the database."""

    def __init__(self, database: str, token: str) -> None:
        self._token = token
        self._file = os.open(_lock_file(database), os.O_WRONLY | os.O_CREAT, 0o600)
        self._last: Position | None = None

    def note(self, position: Position) -> None:
        """Writes the position; an error leaves the one before."""
        if position != self._last:
            with suppress(OSError):
                _write_mark(self._file, self._token, position, 0)
                self._last = position

    def close(self) -> None:
        """The mark stays. It means nothing once the run has ended in the database."""
        os.close(self._file)


def check_complete(
    connection: sqlite3.Connection, database: str, had_log: bool, is_running: Callable[[], bool], may_lack: bool
) -> None:
    """Raises LostCommits if commits of a killed server are missing, or warns if they `may_lack`.

    Nothing is changed then, so that the log can be put back. `had_log` is whether there was one before SQLite opened
    the database.
    """
    token = token_of(connection)
    if token is None or is_running():  # asked after the token was read, which may be a new server's
        return
    lost, warning = _missing(connection, database, token, had_log)
    if lost is not None and not may_lack:
        raise LostCommits(lost)
    if lost is not None or warning is not None:
        # Commands have no log; logging prints warnings to standard error.
        log.warning("%s", lost or warning)
    if lost is None:
        with suppress(sqlite3.OperationalError):  # read-only, or locked by another program
            connection.execute("UPDATE server_run SET token = NULL WHERE token = ?", (token,))


def note_command(tx: Transaction, database: str) -> None:
    """Writes the position that a command has reached beside the server whose run it is."""
    with suppress(OSError, sqlite3.Error):
        token = token_of(tx)
        if token is not None:
            with open(_lock_file(database), "r+b") as file:
                fcntl.lockf(file, fcntl.LOCK_EX, _MARK_BYTES, _MARK_BYTES)  # or an earlier command could be the last
                _write_mark(file.fileno(), token, Position.of(tx), _MARK_BYTES)


def remove_token(tx: Transaction) -> None:
    """Removes the token of an unfinished run from a database that needs no log."""
    if _has_tokens(tx):
        tx.execute("UPDATE server_run SET token = NULL WHERE token NOTNULL")


def remove_token_if_complete(tx: Transaction, database: str, had_log: bool) -> None:
    """The same in a copy of the database with its log, if nothing is missing. See check_complete."""
    token = token_of(tx)
    if token is not None and _missing(tx, database, token, had_log)[0] is None:
        remove_token(tx)


def has_log(database: str) -> bool:
    """Whether there is a write-ahead log that is not empty."""
    try:
        return os.stat(f"{os.path.realpath(database)}-wal").st_size > 0
    except OSError:
        return False


def _missing(connection: Transaction, database: str, token: str, had_log: bool) -> tuple[str | None, str | None]:
    """What is missing; or if nothing is known to be, possibly a warning."""
    log, here, reached = f"{database}-wal", Position.of(connection), _read_mark(database, token)
    if reached is not None and not here.has(reached):
        events, transfers = max(reached.event - here.event, 0), max(reached.transfer - here.transfer, 0)
        changes = "" if here.change >= reached.change else ", and the last changes by operators"
        return (
            f"{database} lacks commits of the server that was killed (events: {events}, transfers: {transfers}"
            f"{changes}), because its write-ahead log {log} was removed or replaced. {_what_to_do(database, log)}"
        ), None
    if had_log:
        return None, None
    if reached is not None:
        sentence = f"the server was killed, and {log} is gone or empty. No event, no transfer and no operator's change"
        return None, f"{sentence} is missing, but what clients asked for just before may be, such as quotes"
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":  # made by VACUUM INTO
        return None, None
    if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = '_litestream_seq'").fetchone():
        return None, f"{database} is a copy by Litestream: `payres restore` puts copies in place, with what that ends"
    return (
        f"{database} is of a server that was running, and its write-ahead log {log} is missing: its newest commits may"
        f" be in that alone, unless it is a copy by SQLite's .backup. {_what_to_do(database, log)}"
    ), None


def _what_to_do(database: str, log: str) -> str:
    return (
        f"Put {log} of that server back, then start again; until then nothing is changed here. If it is lost, put a"
        f" backup in place with `payres restore BACKUP`, or go on without what is missing with `payres restore"
        f" {database}`: docs/how-to/backup.md#after-a-loss says what that means"
    )


def token_of(tx: Transaction) -> str | None:
    """The token of the unfinished run."""
    if not _has_tokens(tx):
        return None
    row = tx.execute("SELECT token FROM server_run WHERE killed_after IS NULL AND token NOTNULL").fetchone()
    return None if row is None else str(row[0])


def _has_tokens(connection: Transaction) -> bool:
    found = connection.execute("SELECT 1 FROM pragma_table_info('server_run') WHERE name = 'token'").fetchone()
    return found is not None


def _read_mark(database: str, token: str) -> Position | None:
    """The position that the run has reached, by the server or by commands, if the lock file has it."""
    positions = []
    with suppress(OSError), open(_lock_file(database), "rb") as file:
        for mark in (file.read(_MARK_BYTES), file.read(_MARK_BYTES)):
            with suppress(ValueError):
                found, event, transfer, change = mark.decode("ascii").split()
                if found == token:
                    positions.append(Position(int(event), int(transfer), change))
    return Position(*map(max, zip(*positions, strict=True))) if positions else None


def _write_mark(file: int, token: str, position: tuple[int, int, str], offset: int) -> None:
    event, transfer, change = position
    os.pwrite(file, f"{token} {event} {transfer} {change}".ljust(_MARK_BYTES).encode(), offset)


def _lock_file(database: str) -> str:
    return f"{os.path.realpath(database)}.lock"
