"""Backups by the running server: on the schedule of the settings, and when the operator's API is asked for one."""

import asyncio
import glob
import logging
import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from payres.core.http.context import Context
from payres.core.http.requests import ActorRequest
from payres.core.process.settings import Settings
from payres.core.process.worker import Worker
from payres.core.protocol.clock import SECOND
from payres.core.protocol.errors import Unavailable, WrongState
from payres.core.store.migrations import UnusableDatabase
from payres.core.store.work import Work
from payres.operator import backups
from payres.operator.backups import BackupError, MadeBackup, backup_name
from payres.operator.declarations import operation
from payres.operator.services import LongWork, operator_of

RETRY_SECONDS: Final = 3600.0
PAUSE_SECONDS: Final = 60.0

log = logging.getLogger("payres.backup")

Write = Callable[[Callable[[Work], None]], Coroutine[Any, Any, None]]


@operation("POST /backups backup:write", noun="backups")
async def make(call: ActorRequest) -> MadeBackup:
    """Make a verified copy of the database in the directory of the setting backup_directory."""
    return await make_in_folder(call.context, call.write, await call.read(lambda work: work.actor))


async def make_in_folder(context: Context, write: Write, actor: str) -> MadeBackup:
    """Makes a verified backup in `backup_directory`, and records it with `write`. Raises WrongState, Unavailable."""
    directory = require_folder(context.settings)
    # One at a time: each reads the whole database.
    async with context.idempotency_slots.slot("backups", directory):
        made: MadeBackup = await operator_of(context).long_works.run("backup", actor, partial(_make, context, write))
        return made


def require_folder(settings: Settings) -> str:
    """The folder for backups. Raises WrongState if there is none."""
    if not settings.backup_directory:
        raise WrongState("There is no directory for backups: name one in the setting backup_directory")
    return settings.backup_directory


async def _make(context: Context, write: Write, progress: LongWork) -> MadeBackup:
    directory, database = context.settings.backup_directory, context.database.path
    if not await asyncio.to_thread(Path(directory).is_dir):  # to `make_backup`, it would be the name of the file
        raise WrongState(f"The setting backup_directory names {directory}, which is not a directory")
    asked = partial(backups.make_backup, overwrite=False, now=context.clock.now(), note=progress.note)
    try:
        made = await asyncio.to_thread(asked, Path(database), Path(directory))
    except (BackupError, UnusableDatabase) as error:
        raise WrongState(str(error)) from error
    except (sqlite3.Error, OSError) as error:
        raise Unavailable(f"The backup could not be made: {error}") from error
    await write(partial(backups.record_backup, made=made))
    return backups.shown(database, made)


async def keep_schedule(context: Context) -> None:
    """Makes backups as the settings say, until the database is in fail-stop."""
    retry_seconds = min(context.settings.backup_every, RETRY_SECONDS)
    await Worker("the scheduled backup", context.database, partial(make_if_due, context), retry_seconds).run()


async def make_if_due(context: Context) -> float:
    """Makes a backup if the newest in the folder is `backup_every` seconds old, and keeps `backup_keep`. Returns the
    seconds until the next look. Raises WrongState, Unavailable, OSError."""
    every, keep = context.settings.backup_every, context.settings.backup_keep
    pause, now = min(every, PAUSE_SECONDS), context.clock.now()
    database, folder = Path(context.database.path), Path(context.settings.backup_directory)
    found = await asyncio.to_thread(made_in, folder, database)
    since, until = (backup_name(database, time) for time in (now - every * SECOND, now))
    if any(since < one.name <= until for one in found):  # one of the future was made while the clock was ahead
        return pause
    made = await make_in_folder(context, context.database.write, "server")
    old = found[: max(len(found) + 1 - keep, 0)]
    await asyncio.to_thread(_remove, old)
    log.info("made and verified %s; removed: %d", made.backup, len(old))
    return pause


def made_in(folder: Path, database: Path, suffix: str = "") -> Sequence[Path]:
    """The backups of the database in the folder that have a `backup_name`, here with a suffix behind it, oldest
    first."""
    name = f"{glob.escape(database.stem)}-{'[0-9]' * 8}T{'[0-9]' * 6}Z{glob.escape(database.suffix)}{suffix}"
    return sorted(folder.glob(name))


def _remove(files: Sequence[Path]) -> None:
    for one in files:
        one.unlink(missing_ok=True)
