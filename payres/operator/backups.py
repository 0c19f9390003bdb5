"""The backups that the server makes in a folder, and keeps there.

Files of backups have every secret of the server: only operators who may do everything download them, after their
password. The API only lists them, since a key would then be worth more than all of its scopes.
"""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from starlette.responses import FileResponse, Response

from payres.core.http.context import Context
from payres.core.http.requests import ActorRequest
from payres.core.process.settings import Settings
from payres.core.protocol.clock import format_time
from payres.core.protocol.errors import Unavailable, WrongState, require
from payres.core.protocol.wire import Resource
from payres.core.store import audit
from payres.core.store.migrations import UnusableDatabase
from payres.core.store.work import Work
from payres.operator.declared.declarations import Listing, OperationForm, operation
from payres.operator.declared.long_work import LongWork
from payres.operator.declared.shapes import Column, Shape, Time, format_size
from payres.operator.services import operator_of
from payres.operator.settings import OperatorSettings
from payres.operator.store.backups import maker_of_backup
from payres.operator.upkeep import backup_and_restore
from payres.operator.upkeep.backup_and_restore import BROKEN, BackupError, MadeBackup, made_in, time_of

NONE: Final = "There are no backups in the folder yet"
SECRETS: Final = (
    "The file has every secret of this server: money, owners' and operators' passwords as hashes, keys, tokens. Whoever"
    " has it can put up this server elsewhere. Store it as you would store the keys to a safe."
)

Write = Callable[[Callable[[Work], None]], Awaitable[None]]


@operation(
    "POST /backups backup:write",
    form=OperationForm(
        "Make one now",
        path="/backups/make",
        back="/backups",
        will="Make a verified backup in the folder. You may leave the page.",
        done="The backup began",
        unasked="the copy stays in the folder of the server",
        plan=lambda work: {"folder": require_folder(work.settings)},
        begins="backup",
    ),
    audits="database.backup",
)
async def make(call: ActorRequest) -> MadeBackup:
    """Make a verified copy of the database in the directory of the setting backup_directory."""
    return await make_in_folder(call.context, call.write, await call.read(lambda work: work.actor))


async def make_in_folder(context: Context, write: Write, actor: str) -> MadeBackup:
    """Makes a verified backup in `backup_directory`, and records it with `write`. Raises WrongState, Unavailable."""
    directory = require_folder(context.settings)
    # One at a time: each reads the whole database.
    async with context.idempotency_slots.slot("backups", directory):
        return await operator_of(context).long_works.run("backup", actor, partial(_make, context, write))


def require_folder(settings: Settings) -> str:
    """The folder for backups. Raises WrongState if there is none."""
    folder = settings.of(OperatorSettings).backup_directory
    if not folder:
        raise WrongState("There is no directory for backups: name one in the setting backup_directory")
    return folder


async def _make(context: Context, write: Write, progress: LongWork) -> MadeBackup:
    directory, database = context.settings.of(OperatorSettings).backup_directory, context.database.path
    if not await asyncio.to_thread(Path(directory).is_dir):  # to `make_backup`, it would be the name of the file
        raise WrongState(f"The setting backup_directory names {directory}, which is not a directory")
    asked = partial(backup_and_restore.make_backup, overwrite=False, now=context.clock.now(), note=progress.note)
    try:
        made = await asyncio.to_thread(asked, Path(database), Path(directory))
    except (BackupError, UnusableDatabase) as error:
        raise WrongState(str(error)) from error
    except (sqlite3.Error, OSError) as error:
        raise Unavailable(f"The backup could not be made: {error}") from error
    await write(partial(backup_and_restore.record_backup, made=made))
    return backup_and_restore.shown(database, made)


class KeptBackup(Resource, frozen=True, kw_only=True):
    """`state` is `checked`, or `broken` for a copy whose check found a fault. `actor` made it, as in the audit log."""

    name: str
    made_at: Time
    bytes: int
    state: str
    actor: str | None


def kept_backup(work: Work, file: Path) -> KeptBackup:
    name, is_broken, made_at = file.name, file.suffix == BROKEN, time_of(file, work.settings.database)
    assert made_at is not None
    return KeptBackup(
        name=name,
        made_at=format_time(made_at),
        bytes=file.stat().st_size,
        state="broken" if is_broken else "checked",
        actor=maker_of_backup(work, str(file)),
    )


def require_backup(work: Work, name: str) -> Path:
    found = next((one for one in list_backups(work) if one.name == name), None)
    return require(found, f"There is no backup {name} in the folder any more")


BACKUP: Final = Shape(
    kept_backup,
    Column("File", "name", "code", section="backups"),
    Column("Made (UTC)", "made_at", "time"),
    Column("State", "state", "state"),
    Column("By", lambda one: "the schedule" if one.actor == "server" else (one.actor or "").partition(":")[2]),
    Column("Size", lambda one: format_size(one.bytes)),
    read=require_backup,
    name=lambda one: one.name,
)


@operation("GET /backups backup:write", BACKUP, listing=Listing("backups", NONE, "Backups", menu="Server"))
def list_backups(work: Work) -> Sequence[Path]:
    """List the backups in the directory of the setting backup_directory, newest first."""
    folder, database = work.settings.of(OperatorSettings).backup_directory, Path(work.settings.database)
    found = [one for suffix in ("", BROKEN) for one in made_in(Path(folder), database, suffix)] if folder else []
    return sorted((one for one in found if time_of(one, str(database)) is not None), reverse=True)


@operation(
    form=OperationForm(
        "Download", BACKUP, title="Download a backup", path="/backups/{name}", back="/backups", will=SECRETS
    ),
    scope="backup:write",
    audits="backup.download",
)
async def download(call: ActorRequest, name: str) -> Response:
    """Download a backup."""

    def unit(work: Work) -> Path:
        audit.record(work, "backup.download", name)
        return require_backup(work, name)

    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    return FileResponse(await call.write(unit), headers=headers, media_type="application/vnd.sqlite3", filename=name)
