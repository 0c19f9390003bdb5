"""The worker that deletes old events, so that payments need not."""

from typing import Final

from payres.store import webhooks
from payres.store.database import Database
from payres.worker import Worker

PAUSE_SECONDS: Final = 60.0


class Purge:
    """Deletes events after 30 days, except those still to be sent. `run` until cancelled."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def run(self) -> None:
        """Ends when the database is in fail-stop."""
        await Worker("the purge of events", self._database, self.purge, PAUSE_SECONDS).run()

    async def purge(self) -> float:
        """Deletes what is old by now; seconds until the next run."""
        has_more = await self._database.read(lambda work: webhooks.has_old_events(work, work.now))
        while has_more:
            has_more = await self._database.write(lambda work: webhooks.purge_events(work, work.now))
        return PAUSE_SECONDS
