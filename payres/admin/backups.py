"""Backups, into the directory that the settings name and nowhere else."""

import asyncio
import sqlite3
from pathlib import Path

from payres.admin import representations
from payres.admin.call import Call
from payres.admin.requests import Nothing
from payres.admin.wire import Backup
from payres.errors import Unavailable, WrongState
from payres.operator import backups
from payres.operator.backups import BackupError
from payres.store.migrations import UnusableDatabase


async def make(call: Call, body: Nothing) -> Backup:
    """Make a verified copy of the database in the directory of the setting backup_directory."""
    directory, database = call.context.settings.backup_directory, call.context.database.path
    if not directory:
        raise WrongState("There is no directory for backups: name one in the setting backup_directory")
    # One at a time: each reads the whole database.
    async with call.context.idempotency_slots.slot("backups", directory):
        now = call.context.clock.now()
        try:
            made = await asyncio.to_thread(_make_in, Path(directory), Path(database), now)
        except (BackupError, UnusableDatabase) as error:
            raise WrongState(str(error)) from error
        except (sqlite3.Error, OSError) as error:
            raise Unavailable(f"The backup could not be made: {error}") from error
    await call.write(lambda work: backups.record_backup(work, made))
    return representations.backup(database, made)


def _make_in(directory: Path, database: Path, now: int) -> backups.Backup:
    # To `make_backup`, what is no directory is the name of the file.
    if not directory.is_dir():
        raise BackupError(f"The setting backup_directory names {directory}, which is not a directory")
    return backups.make_backup(database, directory, False, now)
