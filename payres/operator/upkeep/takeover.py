"""Decides which of two servers with one base URL owns the money: the one whose database was restored last.

A standby or a backup becomes a server's database by `payres restore`, which stores the time in it. Every server reports
on `/readyz` when its database was restored, and compares that with the report at the base URL.
"""

from contextlib import suppress
from functools import partial
from typing import Final

import msgspec

from payres.core.process.worker import Worker
from payres.core.protocol.clock import format_time, format_time_if_any
from payres.core.protocol.errors import Unavailable
from payres.core.remote.connection import FetchFailed
from payres.core.remote.http import GuardedClient
from payres.core.store import audit
from payres.core.store.database import Database
from payres.core.store.migrations import UnusableDatabase
from payres.core.store.work import FailStop, Transaction, Work
from payres.operator.store import backups
from payres.operator.store.backups import Takeover

PAUSE_SECONDS: Final = 30.0
AFTER_TAKEOVER: Final = (
    "Leave this one stopped. To take payments here again, stop that one, and put a `payres backup` of this database in"
    " place with `payres restore`: docs/how-to/backup.md"
)


class Superseded(FailStop):
    """Another server has a later state of this database, or may have."""

    reason = "another server has taken its place"


class _Details(msgspec.Struct, frozen=True, rename="camel"):
    restored_at: str | None = None
    read_only: bool = False


class _Answer(msgspec.Struct, frozen=True):
    details: _Details


class OtherServer(msgspec.Struct, frozen=True):
    """Another payres at our base URL: when its database was restored, None for never."""

    restored_at: str | None
    is_later: bool


async def find_other(http: GuardedClient, base_url: str, restored_at: int | None) -> OtherServer | None:
    """The payres at the base URL, if it accepts payments with a database other than the one restored at `restored_at`
    (microseconds).

    None if there is no answer, or only a standby or another program: then nothing is known.
    """
    try:
        response = await http.request("GET", f"{base_url}/readyz", {"Accept": "application/json"})
        said = response.decoded(_Answer, "It is another program").details
    except FetchFailed:
        return None
    own = format_time_if_any(restored_at)
    if said.read_only or said.restored_at == own:
        return None
    return OtherServer(said.restored_at, (said.restored_at or "") > (own or ""))


async def watch_base_url(database: Database, http: GuardedClient, base_url: str) -> None:
    step = partial(look_once, database, http, base_url)
    await Worker("the search for another server at the base URL", database, step, PAUSE_SECONDS).run()


async def look_once(database: Database, http: GuardedClient, base_url: str) -> float:
    """Stops all writing if another server has taken this one's place, and records that, which prevents this server from
    starting again. Returns the seconds until the next look."""
    other = await find_other(http, base_url, await database.read(backups.last_restore))
    if other is not None and other.is_later:
        restored_at = other.restored_at
        with suppress(Unavailable):  # if it cannot be stored now, the next start finds it again
            await database.write(partial(record_takeover, base_url=base_url, restored_at=restored_at))
        sentence = f"another server has taken over {base_url}; its database was restored at {restored_at}"
        database.fail_stop(Superseded(sentence))
    return PAUSE_SECONDS


def record_takeover(work: Work, base_url: str, restored_at: str | None) -> None:
    """Records in the audit log that another server, with a later state of the database, answers at the base URL."""
    audit.record(work, "database.superseded", base_url, restoredAt=restored_at)


def require_current(tx: Transaction) -> None:
    """Raises UnusableDatabase when another server has taken over since the database was last restored."""
    taken = backups.takeover(tx)
    if taken is not None:
        raise UnusableDatabase(
            f"Another server has taken this one's place: {describe_takeover(taken)}. {AFTER_TAKEOVER}"
        )


def describe_takeover(taken: Takeover) -> str:
    """Which server has taken over, and when that was found."""
    found_at = format_time(taken.found_at)
    return f"{taken.base_url} was one's whose database was restored at {taken.restored_at}, as was found at {found_at}"
