"""The watch over the books: what can be proved of the money in one look at the accounts, again and again."""

import asyncio
import logging
from time import perf_counter
from typing import Final

from payres.ledger import LedgerBroken
from payres.operator import audit
from payres.store.database import Database

PAUSE_SECONDS: Final = 60.0
SHARE: Final = 100  # of the time, looking takes one part in so many at most

log = logging.getLogger("payres.operator")


class BooksWatch:
    """Halts the database when the balances no longer add up, whoever changed them. `run` until cancelled.

    It reads each account and no transfer, so it takes a second for millions of accounts. `payres ledger check` proves
    more, and takes longer.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def run(self) -> None:
        """Looks at once, so that a start need not wait for it, and then now and then."""
        while not self._database.halted:
            began = perf_counter()
            try:
                await self.look()
            except Exception:
                log.exception("the books could not be looked at")
            await asyncio.sleep(max(PAUSE_SECONDS, SHARE * (perf_counter() - began)))

    async def look(self) -> None:
        """Looks once."""
        broken = audit.first_broken(await self._database.read(audit.check_balances))
        if broken is not None:
            self._database.halt(LedgerBroken(f"not true any more is that {broken.claim}: {'; '.join(broken.breaches)}"))
