"""Backups: verified copies of the database, made while the server runs, and restores from them."""

import glob
import logging
import os
import sqlite3
import stat
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from payres.core.protocol.clock import SECOND
from payres.core.protocol.wire import Resource
from payres.core.store import audit, copies
from payres.core.store.connections import check_not_linked, is_followed, require_complete, server_lock
from payres.core.store.events import last_sequence
from payres.core.store.migrations import (
    UnusableDatabase,
    first_fault,
    is_outdated,
    migrate_copy,
    require_payres,
    version_of,
)
from payres.core.store.runs import LostCommits, has_log, remove_token, remove_token_if_complete
from payres.core.store.work import Work
from payres.operator.store.events import continue_after
from payres.operator.store.invariants import note_check
from payres.operator.store.restored_rights import (
    EndedRight,
    end_by_restore,
    is_restored,
    is_same_database,
    lost_transfers,
    lost_wallets,
    restored_rights,
)
from payres.operator.upkeep import invariant_checks

PAUSE_MILLISECONDS = 5  # lets the server commit; copying a gigabyte takes about ten seconds
BROKEN = ".broken"


log = logging.getLogger("payres.backup")


class BackupError(Exception):
    """Nothing was copied or replaced; the text says why and what to do."""


class UnsoundCopy(BackupError):
    """A copy failed its verification, by this fault, and is named `.broken`."""

    def __init__(self, database: Path, fault: str, broken: Path) -> None:
        super().__init__(f"{database} is not sound: {fault}. There is no backup; {broken} is a copy to look into")
        self.fault = fault


class Backup(msgspec.Struct, frozen=True):
    """A verified copy: its file, its schema version, its size in bytes, and when its ledger was checked, None for an
    older schema version."""

    path: Path
    version: int
    size: int
    checked_at: int | None = None


class Comparison(msgspec.Struct, frozen=True):
    """What was ended in another state of the database since the backup and is valid again, and the sequence of that
    state's last event; or why that is not known. One that `was_restored` since knows nothing of what was before it.
    `lost` is the number of transfers that the backup lacks, and the time of the first; and it lacks `lost_wallets`."""

    ended: Sequence[EndedRight] = ()
    unknown: str | None = None
    last_event: int = 0
    was_restored: bool = False
    lost: tuple[int, int | None] = (0, None)
    lost_wallets: Sequence[str] = ()


class Restored(msgspec.Struct, frozen=True):
    """A restored database, with the version of its backup; `replaced` is the file of the one before, if any."""

    version: int
    replaced: Path | None
    comparison: Comparison


class MadeBackup(Resource, frozen=True, kw_only=True):
    database: str
    backup: str
    version: int
    bytes: int


def shown(database: str, made: Backup) -> MadeBackup:
    return MadeBackup(database=database, backup=str(made.path), version=made.version, bytes=made.size)


def make_backup(
    database: Path, destination: Path, overwrite: bool, now: int, note: copies.StepNote = lambda *_: None
) -> Backup:
    """Copies the database, verifies the copy and renames it to its final name. In a directory, the name is made of the
    time.

    Raises BackupError, UnusableDatabase, sqlite3.Error, OSError. A copy that fails the verification is named `.broken`,
    and is the only one in a directory.
    """
    in_folder = destination.is_dir()
    target = destination / backup_name(database, now) if in_folder else destination
    # Reading it applies the write-ahead log beside this path, which may belong to another hard link of the file.
    check_not_linked(str(database))
    _require_free(database, target, overwrite)
    left = (destination / database.stem, f"-*{glob.escape(database.suffix)}") if in_folder else (target, "")
    with (
        copies.copies_into(target.parent, *left),
        copies.copied(database, beside=target, pause=PAUSE_MILLISECONDS, note=note) as partial,
    ):
        copies.change(partial, remove_token)
        note("Checking the file", 0, 0)
        version, fault = copies.examine(partial, lambda tx: _version_and_fault(tx, note))
        if fault is not None:
            broken = copies.side_file(target, BROKEN)
            copies.rename(partial, broken)
            remove(one for one in (made_in(destination, database, BROKEN) if in_folder else ()) if one != broken)
            raise UnsoundCopy(database, fault, broken)
        _require_free(database, target, overwrite)  # again, because copying may have taken minutes
        checked_at = None if copies.examine(partial, is_outdated) else now
        copies.rename(partial, target)
        return Backup(target, version, target.stat().st_size, checked_at)


def record_backup(work: Work, made: Backup) -> None:
    """Records a backup in the audit log. The backup itself does not have this entry."""
    audit.record(work, "database.backup", str(made.path))
    if made.checked_at is not None:
        note_check(work, made.checked_at)


def record_restore(work: Work, source: Path) -> None:
    """Records a restore in the audit log of the restored database, which makes it the latest state of that database:
    see `payres.operator.upkeep.takeover`."""
    audit.record(work, "database.restore", str(source))


def restore_backup(
    source: Path,
    database: Path,
    now: int,
    finish: Callable[[sqlite3.Connection, Comparison], object] | None = None,
    compare_with: Path | None = None,
) -> Restored:
    """Verifies and migrates a copy of the backup, renames the old database, and puts the copy in its place. All
    sessions and links that set passwords end.

    The copy is compared with the old database, or with `compare_with`. `finish` is a last change, in a transaction of
    the copy; if it fails, the database is not replaced. Raises BackupError, UnusableDatabase when a server has the
    database open, OSError; the database is then unchanged.
    """
    database = database.resolve()  # so that a symbolic link to the database is kept
    _require_replaceable(source, database)
    with server_lock(str(database)):
        replaced = copies.side_file(database, f".replaced-{stamp(now)}")
        for name in (replaced, *(copies.side_file(replaced, suffix) for suffix in copies.SIDE_FILES)):
            if os.path.lexists(name):
                raise BackupError(f"{name} exists already; try again in a second")
        try:
            with copies.copied(source, beside=database, still=True) as partial:
                version, fault = copies.examine(partial, _version_and_fault)
                if fault is None and copies.examine(partial, is_outdated):
                    migrate_copy(partial)
                    _, fault = copies.examine(partial, _version_and_fault)
                if fault is not None:
                    raise BackupError(f"The backup is not sound: {fault}. Nothing was replaced; try another backup")
                comparison = _compare(partial, source, compare_with or database)
                if compare_with is not None and comparison.unknown is not None:
                    raise BackupError(f"{comparison.unknown}. Nothing was replaced")

                def last_changes(tx: sqlite3.Connection) -> None:
                    remove_token(tx)
                    end_by_restore(tx, now)
                    continue_after(tx, comparison.last_event)
                    if finish is not None:
                        finish(tx, comparison)

                copies.change(partial, last_changes)
                was_there = _put_in_place(database, partial, replaced)
        except (sqlite3.Error, UnusableDatabase) as error:
            raise BackupError(f"{source} cannot be restored: {error}") from error
        except copies.DatabaseOpen as error:
            raise BackupError(f"{error}; stop what uses it (a command, Litestream) and try again") from error
    return Restored(version, replaced if was_there else None, comparison)


def _put_in_place(database: Path, copy: Path, kept: Path) -> bool:
    """See swap_files. The old database starts without its log, if that has been applied to it."""
    had_log = has_log(str(database))
    was_there = copies.swap_files(database, copy, kept)
    if was_there and not any(copies.side_file(kept, suffix).exists() for suffix in copies.LOGS):
        with suppress(sqlite3.Error):  # it may be damaged
            copies.change(kept, lambda tx: remove_token_if_complete(tx, str(database), had_log))
    return was_there


def _compare(copy: Path, source: Path, other: Path) -> Comparison:
    """Compares with a copy of the other database, because reading one that was not closed changes it."""
    if not other.is_file():
        return Comparison(unknown="There is no other database to compare the backup with")
    if source.samefile(other):
        return Comparison(unknown="The commits that are missing cannot be compared")
    try:
        with copies.copied(other, beside=copy, still=True) as old:
            if copies.examine(old, is_outdated):
                migrate_copy(old)
            copies.examine(old, require_payres)
            if not copies.compare(copy, old, is_same_database):
                return Comparison(unknown=f"{other} is another database and cannot be compared with the backup")
            ended, last = copies.compare(copy, old, restored_rights), copies.examine(old, last_sequence)
            lost, was_restored = copies.compare(copy, old, lost_transfers), copies.compare(copy, old, is_restored)
            wallets = copies.compare(copy, old, lost_wallets)
            return Comparison(ended, last_event=last, was_restored=was_restored, lost=lost, lost_wallets=wallets)
    except (sqlite3.Error, UnusableDatabase) as error:
        return Comparison(unknown=f"{other} cannot be compared with the backup: {error}")


def backup_name(database: Path, now: int) -> str:
    """The name of a backup in a directory; names sort by time."""
    return f"{database.stem}-{stamp(now)}{database.suffix}"


def made_in(folder: Path, database: Path, suffix: str = "") -> Sequence[Path]:
    """The backups of the database in the folder, files that have a `backup_name`, here with a suffix behind it, oldest
    first."""
    name = f"{glob.escape(database.stem)}-{'[0-9]' * 8}T{'[0-9]' * 6}Z{glob.escape(database.suffix)}{suffix}"
    return sorted(one for one in folder.glob(name) if one.is_file() and not one.is_symlink())


def time_of(made: Path, database: str) -> int | None:
    """The time in the name of a backup in microseconds UTC, None if there is no such time: 20261399T000000Z."""
    stamp = made.name.removesuffix(BROKEN).removesuffix(Path(database).suffix).rpartition("-")[2]
    try:
        return int(datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()) * SECOND
    except ValueError:
        return None


def replaced_by_restores(database: Path) -> Sequence[Path]:
    """The files of databases that restores have replaced, oldest first."""
    file = database.resolve()
    return sorted(file.parent.glob(f"{glob.escape(file.name)}.replaced-{'[0-9]' * 8}T{'[0-9]' * 6}Z"))


def remove_older(made: Path, database: Path, keep: int) -> int:
    """Removes backups of the database beside one that was just made, until so many are left: first those of the future,
    which were made while the clock was ahead, then the oldest. Returns how many."""
    others = sorted(made_in(made.parent, database), key=lambda one: (one < made, one))
    return remove([one for one in others if one != made][: max(len(others) - keep, 0)])


def remove(files: Iterable[Path]) -> int:
    """Removes files, also when one of them cannot be removed, which is logged. Returns how many."""
    count = 0
    for one in files:
        try:
            one.unlink()
            count += 1
        except OSError as error:
            log.warning("%s cannot be removed: %s", one, error)
    return count


def stamp(now: int) -> str:
    """A time for the name of a file, to the second, in UTC."""
    return f"{datetime.fromtimestamp(now // SECOND, UTC):%Y%m%dT%H%M%SZ}"


def _require_free(database: Path, target: Path, overwrite: bool) -> None:
    """Raises BackupError for a name that exists, or is that of a database in use."""
    folder = target.parent
    if not folder.is_dir():
        raise BackupError(f"There is no directory {folder}")
    own = {copies.side_file(database.resolve(), suffix) for suffix in ("", ".lock", *copies.SIDE_FILES)}
    if target.resolve() in own:
        raise BackupError(f"{target} belongs to the database itself; choose another name")
    if os.path.lexists(target) and not stat.S_ISREG(target.lstat().st_mode):
        raise BackupError(f"{target} is not a regular file and is not replaced; choose another name")
    if target.exists() and not overwrite:
        raise BackupError(f"{target} exists already; choose another name, or replace it with --force")
    for suffix in copies.SIDE_FILES:
        if copies.side_file(target, suffix).exists():  # SQLite would take it for part of the copy
            raise BackupError(f"{copies.side_file(target, suffix)} says that {target} is in use; choose another name")


def _require_replaceable(source: Path, database: Path) -> None:
    if source.is_dir():
        raise BackupError(f"{source} is a directory; name one of the backups in it")
    if not source.is_file():
        raise BackupError(f"There is no file {source}")
    if is_followed(str(database)):
        raise BackupError(f"Litestream writes {database}, as a standby: name another database with --database PATH")
    if not database.exists():
        return
    if source.samefile(database):
        try:
            require_complete(str(database))
        except LostCommits:  # what is there is to take the place of what was there
            return
        raise BackupError(f"{source} is the database itself")
    if not os.access(database, os.W_OK):
        raise BackupError(f"{database} is read-only for this user; make it writable, or move it away, and try again")
    if database.stat().st_uid != os.geteuid():  # the new file would be this user's, and the server could not open it
        raise BackupError(f"{database} belongs to another user; run this as that user, for example with `sudo -u`")


def _version_and_fault(tx: sqlite3.Connection, note: copies.StepNote = lambda *_: None) -> tuple[int, str | None]:
    """The schema version of a database, and what is wrong with it.

    The ledger of an older version is not checked. Raises UnusableDatabase if it is not a payres database.
    """
    require_payres(tx)
    try:
        fault = first_fault(tx)
        if fault is None and not is_outdated(tx):
            broken = invariant_checks.first_broken(invariant_checks.check(tx, note, only_ledger=True))
            fault = f"the invariant `{broken.name}` is broken: {broken.breaches[0]}" if broken else None
    except sqlite3.DatabaseError as error:
        fault = f"it cannot be read: {error}"
    return version_of(tx), fault
