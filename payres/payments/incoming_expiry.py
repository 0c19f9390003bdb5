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


async def report_expired(database: Database) -> None:
    """Writes the event of each expired payment once, also of those that expired while the server was down.

    Ends when the database is in fail-stop.
    """

    async def write_events() -> int:
        while await database.read(lambda work: incoming.expired_without_event(work, work.now, 1)):
            await database.write(partial(expire_due, most=BATCH))
        return CHECK_SECONDS

    await Worker("the search for expired payments", database, write_events, RETRY_SECONDS).run()
