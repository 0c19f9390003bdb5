"""Expiry: tells of incoming payments whose time is over, which nobody else would notice."""

from functools import partial
from typing import Final

from payres.payments.incoming import expire_due
from payres.store import incoming
from payres.store.database import Database
from payres.worker import Worker

LOOK_SECONDS: Final = 1
RETRY_SECONDS: Final = 5
# Payments of which one unit tells, so that none is long.
AT_ONCE: Final = 64


class Expiry:
    """Writes the event of each expired payment once; what expires while the server is down has its event at its start.
    `run` until cancelled."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def run(self) -> None:
        """Ends when the database is in fail-stop."""
        await Worker("the search for expired payments", self._database, self.look, RETRY_SECONDS).run()

    async def look(self) -> int:
        """Tells of all that has expired by now; seconds until to look again."""
        while await self._database.read(lambda work: incoming.expired_untold(work, work.now, 1)):
            await self._database.write(partial(expire_due, most=AT_ONCE))
        return LOOK_SECONDS
