"""Backups: proved copies of the database, made while the server goes on, and how one takes the database's place."""

import os
import sqlite3
import stat
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from payres.clock import SECOND
from payres.operator import audit
from payres.store.copies import SIDE_FILES, DatabaseOpen, copied, examine, exchange, first_fault, rename, side_file
from payres.store.migrations import (
    UnusableDatabase,
    first_difference,
    is_newest,
    migrate_copy,
    require_payres,
    version_of,
)
from payres.store.server_lock import refuse_linked, server_lock

PAUSE_MILLISECONDS = 5  # the server's commits get their turn; a gigabyte takes ten seconds or so


class BackupRefused(Exception):
    """Nothing was copied or replaced; the text says why and what to do."""


class Backup(msgspec.Struct, frozen=True):
    """A proved copy: its file, the version of the database in it, and its size."""

    path: Path
    version: int
    size: int


class Restored(msgspec.Struct, frozen=True):
    """A database that was put in place, with its version; `replaced` is the one before it, if there was one."""

    version: int
    replaced: Path | None


def make_backup(database: Path, destination: Path, overwrite: bool, now: int) -> Backup:
    """Copies the database, proves the copy and gives it its name. A directory gets a file named by the time.

    Raises BackupRefused, UnusableDatabase, sqlite3.Error, OSError. A copy that is not sound is kept as `.broken`.
    """
    target = destination / f"{database.stem}-{stamp(now)}{database.suffix}" if destination.is_dir() else destination
    refuse_linked(str(database))  # to read it is to work a log into it, which may be another name's
    _require_free(database, target, overwrite)
    with copied(database, beside=target, pause=PAUSE_MILLISECONDS) as partial:
        version = examine(partial, _payres_version)
        fault = examine(partial, _first_fault)
        if fault is not None:
            broken = side_file(target, ".broken")
            rename(partial, broken)
            raise BackupRefused(
                f"{database} is not sound: {fault}. There is no backup; {broken} is a copy to look into"
            )
        _require_free(database, target, overwrite)  # again, after what may have been minutes
        rename(partial, target)
        return Backup(target, version, target.stat().st_size)


def restore_backup(source: Path, database: Path, now: int) -> Restored:
    """Proves a copy of the backup and puts it in the database's place, of the newest version; keeps what was there.

    The new database has the owner, group and mode of the one before it; without one, root gives it to the owner of the
    directory. Raises BackupRefused, UnusableDatabase when a server has the database, OSError: then it is untouched.
    """
    database = database.resolve()  # a link to the database goes on leading to it
    if not source.is_file():
        raise BackupRefused(f"There is no file {source}")
    if database.exists() and source.samefile(database):
        raise BackupRefused(f"{source} is the database itself")
    if database.exists() and not os.access(database, os.W_OK):
        raise BackupRefused(f"{database} is read-only for this user; make it writable, or move it away, and try again")
    with server_lock(str(database)):
        kept = side_file(database, f".replaced-{stamp(now)}")
        for name in (kept, *(side_file(kept, suffix) for suffix in SIDE_FILES)):
            if os.path.lexists(name):
                raise BackupRefused(f"{name} exists already; try again in a second")
        try:
            with copied(source, beside=database, still=True, replacing=database) as partial:
                version = _prove(partial)
                was_there = exchange(database, partial, kept)
        except (sqlite3.Error, UnusableDatabase) as error:
            raise BackupRefused(f"{source} cannot be restored: {error}") from error
        except DatabaseOpen as error:
            raise BackupRefused(f"{error}; end what uses it (a command, Litestream) and try again") from error
    return Restored(version, kept if was_there else None)


def stamp(now: int) -> str:
    """A moment as it stands in the name of a file, to the second, in UTC."""
    return f"{datetime.fromtimestamp(now // SECOND, UTC):%Y%m%dT%H%M%SZ}"


def _require_free(database: Path, target: Path, overwrite: bool) -> None:
    """Refuses a name that is taken, or that a database in use has."""
    folder = target.parent
    if not folder.is_dir():
        raise BackupRefused(f"There is no directory {folder}")
    own = {side_file(database.resolve(), suffix) for suffix in ("", ".lock", *SIDE_FILES)}
    if target.resolve() in own:
        raise BackupRefused(f"{target} belongs to the database itself; choose another name")
    if os.path.lexists(target) and not stat.S_ISREG(target.lstat().st_mode):
        raise BackupRefused(f"{target} is not a regular file and is not replaced; choose another name")
    if target.exists() and not overwrite:
        raise BackupRefused(f"{target} exists already; choose another name, or replace it with --force")
    for suffix in SIDE_FILES:
        if side_file(target, suffix).exists():  # it would be taken for part of the copy
            raise BackupRefused(f"{side_file(target, suffix)} says that {target} is in use; choose another name")


def _prove(partial: Path) -> int:
    """The version that the copy had, once it is of the newest and proved. Raises BackupRefused, UnusableDatabase."""
    version = examine(partial, _payres_version)
    fault = examine(partial, _first_fault_of_file)
    if fault is None:
        migrate_copy(partial)
        fault = examine(partial, _first_fault)
    if fault is not None:
        raise BackupRefused(f"The backup is not sound: {fault}. Nothing was replaced; try another backup")
    return version


def _payres_version(tx: sqlite3.Connection) -> int:
    require_payres(tx)
    return version_of(tx)


def _first_fault(tx: sqlite3.Connection) -> str | None:
    """What is wrong with the books or the file; in a database of an older version, with the file alone."""
    try:
        if not is_newest(tx):
            return _first_fault_of_file(tx)
        difference = first_difference(tx)
        if difference is not None:
            return difference
        broken = audit.first_broken(audit.check(tx))
    except sqlite3.DatabaseError as error:
        return f"it cannot be read: {error}"
    return f"the invariant `{broken.name}` is broken: {broken.breaches[0]}" if broken else None


def _first_fault_of_file(tx: sqlite3.Connection) -> str | None:
    """What is wrong with the file or with its tables, of any version."""
    return first_fault(tx) or first_difference(tx)
