"""Which of two servers with one base URL holds the money: the one whose database was restored last.

A standby or a backup becomes a server's database by `payres restore`, which writes the moment into it. Every server
says on `/readyz` when its own was restored, and asks at the base URL, which only one of them has, what is said there.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec

from payres.clock import format_time_if_any
from payres.errors import Unavailable
from payres.federation.connection import FetchFailed
from payres.federation.http import GuardedClient
from payres.store import status
from payres.store.database import Database
from payres.store.work import FailStop, Work
from payres.worker import Worker

PAUSE_SECONDS: Final = 30.0


class Superseded(FailStop):
    """Another server has a later state of this database, or may have."""

    reason = "another server has taken its place"


class _Details(msgspec.Struct, frozen=True, rename="camel"):
    restored_at: str | None = None
    read_only: bool = False


class _Answer(msgspec.Struct, frozen=True):
    details: _Details


class OtherServer(msgspec.Struct, frozen=True):
    """A payres at our base URL that is not ours: when its database was restored, None for never."""

    restored_at: str | None
    is_later: bool


async def find_other(http: GuardedClient, base_url: str, restored_at: int | None) -> OtherServer | None:
    """Who takes payments at the base URL with another database than the one that was restored then (microseconds).

    None when nobody answers there, or only a standby or what is no payres: then nothing is known.
    """
    try:
        response = await http.request("GET", f"{base_url}/readyz", {"Accept": "application/json"})
        said = msgspec.json.decode(response.body, type=_Answer).details
    except (FetchFailed, ValueError, RecursionError):
        return None
    own = format_time_if_any(restored_at)
    if said.read_only or said.restored_at == own:
        return None
    return OtherServer(said.restored_at, (said.restored_at or "") > (own or ""))


# Writes down that another server has taken over, at this base URL, whose database was restored then.
Record = Callable[[Work, str, str | None], None]


async def watch_base_url(database: Database, http: GuardedClient, base_url: str, record: Record) -> None:
    """Looks for another server again and again, until the database is in fail-stop."""
    step = partial(look_once, database, http, base_url, record)
    await Worker("the look for a server in this one's place", database, step, PAUSE_SECONDS).run()


async def look_once(database: Database, http: GuardedClient, base_url: str, record: Record) -> float:
    """Stops all writing if another server has taken this one's place; seconds until the next look.

    What `record` writes keeps this one from starting again.
    """
    other = await find_other(http, base_url, await database.read(status.last_restore))
    if other is not None and other.is_later:
        restored_at = other.restored_at
        with suppress(Unavailable):  # what cannot be stored now is found again at the next start
            await database.write(lambda work: record(work, base_url, restored_at))
        sentence = f"{base_url} is now another server's, whose database was restored at {restored_at}"
        database.fail_stop(Superseded(sentence))
    return PAUSE_SECONDS
