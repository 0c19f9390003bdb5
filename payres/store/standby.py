"""Reading a database that another program writes: the file of a standby, into which Litestream copies the changes."""

import asyncio
import logging
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any, Final

from payres.errors import Unavailable
from payres.store.connections import connect_standby
from payres.store.fail_stop import FailStop
from payres.store.lanes import Lane, Queued, units_of
from payres.store.migrations import UnusableDatabase
from payres.store.transactions import NOT_READ, Raised, Unit, run_reads
from payres.store.work import Environment

READ_ONLY: Final = (
    "This server is a read-only standby and stores nothing: ask the primary server, or try again once this one has"
    " taken its place"
)

log = logging.getLogger("payres.store")


class StandbyLane(Lane):
    """Runs units that read; the file is opened again for those that wait together.

    Litestream writes pages under SQLite's lock, but SQLite sees a change in the first page alone: a connection that
    stays open would mix new pages with its old ones. And until Litestream has written the first page, that says WAL,
    and any connection that is open has a lock for which Litestream waits.
    """

    def __init__(self, path: str, environment: Environment) -> None:
        super().__init__(environment, _warn)
        self._path = path

    async def run_together(self, batch: list[Queued]) -> list[Any]:
        return await asyncio.to_thread(self._run, units_of(batch))

    def _run(self, units: Sequence[Unit]) -> list[Any]:
        try:
            with closing(connect_standby(self._path)) as connection:
                return run_reads(units, connection, self._environment)
        except (UnusableDatabase, sqlite3.Error) as error:
            log.error("the standby's database cannot be read: %s", error)
            return [Raised(Unavailable(NOT_READ)) for _ in units]


def _warn(cause: FailStop) -> None:
    # It may pass: Litestream that died while it wrote leaves pages of two states, until it is started again.
    log.error("the standby's database cannot be right: %s", cause)
