"""The worker that deletes old events, so that payments need not."""

from typing import Final

from payres.store import webhooks
from payres.store.database import Database
from payres.store.work import Work
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
        while await self._database.read(_may_purge) and await self._database.write(_purge):
            pass
        return PAUSE_SECONDS


def _may_purge(work: Work) -> bool:
    return webhooks.has_old_events(work, work.now)


def _purge(work: Work) -> bool:
    return webhooks.purge_events(work, work.now)
