"""The worker that writes the events of incoming payments that expire. No request notices that they do."""

from functools import partial
from typing import Final

from payres.payments.incoming import expire_due
from payres.store import incoming
from payres.store.database import Database
from payres.worker import Worker

CHECK_SECONDS: Final = 1
RETRY_SECONDS: Final = 5
BATCH: Final = 64


class IncomingExpiry:
    """Writes the event of each expired payment once, also of those that expired while the server was down."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def run(self) -> None:
        """Ends when the database is in fail-stop."""
        await Worker("the search for expired payments", self._database, self.write_events, RETRY_SECONDS).run()

    async def write_events(self) -> int:
        """Writes the events of all payments that have expired by now; seconds until the next check."""
        while await self._database.read(lambda work: incoming.expired_without_event(work, work.now, 1)):
            await self._database.write(partial(expire_due, most=BATCH))
        return CHECK_SECONDS
