"""The lookout for events of other processes: of commands, which the commits of this one do not tell of."""

from typing import Final

from payres.events.changes import Changes
from payres.store import events
from payres.store.database import Database
from payres.store.work import EVENTS
from payres.worker import Worker

LOOK_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 5.0


class Lookout:
    """Looks once a second while somebody waits for events. `run` until cancelled."""

    def __init__(self, database: Database, changes: Changes) -> None:
        self._database = database
        self._changes = changes
        self._seen = 0

    async def run(self) -> None:
        """Ends when the database is in fail-stop."""
        await Worker("the lookout for events", self._database, self.look, RETRY_SECONDS).run()

    async def look(self) -> float:
        """Tells of new events, of this process too; seconds until to look again."""
        if self._changes.is_watched(EVENTS):
            last = await self._database.read(events.last_sequence)
            if last != self._seen:
                self._seen = last
                self._changes.tell((EVENTS,))
        return LOOK_SECONDS
