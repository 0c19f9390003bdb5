"""The worker that deletes old events, so that payments need not."""

from typing import Final

from payres.store import webhooks
from payres.store.database import Database
from payres.worker import Worker

PAUSE_SECONDS: Final = 60.0


async def purge_events(database: Database) -> None:
    """Deletes events after 30 days, except those still to be sent, until the database is in fail-stop."""

    async def purge() -> float:
        has_more = await database.read(lambda work: webhooks.has_old_events(work, work.now))
        while has_more:
            has_more = await database.write(lambda work: webhooks.purge_events(work, work.now))
        return PAUSE_SECONDS

    await Worker("the purge of events", database, purge, PAUSE_SECONDS).run()
