"""The schedule of backups in the settings: when one is made in the folder, and which are kept."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Final

from payres.core.http.context import Context
from payres.core.process.worker import Worker
from payres.core.protocol.clock import SECOND
from payres.core.protocol.errors import WrongState
from payres.operator.backups import make_in_folder
from payres.operator.settings import OperatorSettings
from payres.operator.upkeep.backup_and_restore import UnsoundCopy, backup_name, made_in, remove_older

RETRY_SECONDS: Final = 3600.0
LONGEST_PAUSE_SECONDS: Final = 86400.0
PAUSE_SECONDS: Final = 60.0

log = logging.getLogger("payres.backup")


async def keep_schedule(context: Context) -> None:
    """Makes backups as the settings say, until the database is in fail-stop."""
    retry_seconds = min(context.settings.of(OperatorSettings).backup_every, RETRY_SECONDS)
    await Worker("the scheduled backup", context.database, schedule(context, retry_seconds), retry_seconds).run()


def schedule(context: Context, retry_seconds: float) -> Callable[[], Coroutine[None, None, float]]:
    """The step of `make_if_due`. While the verification finds the same fault, tries follow each other more and more
    rarely, because each copies and reads the whole database."""
    pauses: dict[str, float] = {}  # after the last fault

    async def step() -> float:
        try:
            pause = await make_if_due(context)
            pauses.clear()
        except WrongState as error:
            fault = error.__cause__.fault if isinstance(error.__cause__, UnsoundCopy) else ""
            pause = min(2 * pauses[fault], LONGEST_PAUSE_SECONDS) if fault in pauses else retry_seconds
            pauses.clear()
            if fault:
                pauses[fault] = pause
            log.warning("%s; next try in %g s", error, pause)
        return pause

    return step


async def make_if_due(context: Context) -> float:
    """Makes a backup if the newest in the folder is `backup_every` seconds old, and keeps `backup_keep`. Returns the
    seconds until the next look. Raises WrongState, Unavailable, OSError."""
    settings, now = context.settings.of(OperatorSettings), context.clock.now()
    every = settings.backup_every
    pause = min(every, PAUSE_SECONDS)
    database, folder = Path(context.database.path), Path(settings.backup_directory)
    found = await asyncio.to_thread(made_in, folder, database)
    since, until = (backup_name(database, time) for time in (now - every * SECOND, now))
    if any(since < one.name <= until for one in found):  # one of the future was made while the clock was ahead
        return pause
    made = await make_in_folder(context, context.database.write, "server")
    removed = await asyncio.to_thread(remove_older, Path(made.backup), database, settings.backup_keep)
    log.info("made and verified %s; removed: %d", made.backup, removed)
    return pause
