"""The watch over the books: what `payres ledger check` proves, again and again, beside the work and slowly."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Final

from payres.ledger import LedgerBroken
from payres.operator import audit
from payres.operator.audit import Finding
from payres.store.database import Database
from payres.store.ledger_proofs import reference_proofs

PAUSE_SECONDS: Final = 60.0
BALANCES_SHARE: Final = 100  # looking at the balances takes one part in so many of the time at most
PROOFS_SHARE: Final = 50

log = logging.getLogger("payres.operator")


class BooksWatch:
    """Halts the database when the books do not hold any more, whoever changed them. `run` until cancelled.

    Once a minute it looks at the balances, which takes a second for millions of accounts. Beside that it goes through
    all proofs in short steps with long pauses: a small database is gone through every minute, one with a million
    payments in half an hour, and neither the write-ahead log nor the work is held up by it.
    """

    def __init__(self, database: Database, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._database = database
        self._sleep = sleep

    async def run(self) -> None:
        """Looks at once, so that a start need not wait for it, and then again and again."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.repeat(self.look, BALANCES_SHARE))
            tasks.create_task(self.repeat(self.go_through, 0))

    async def look(self) -> None:
        """Looks at the balances once."""
        self._judge(audit.first_broken(await self._database.examine(audit.check_balances)))

    async def go_through(self) -> None:
        """Proves everything once, and stops at the first breach."""
        for step in audit.steps(await self._database.examine(reference_proofs)):
            began = perf_counter()
            self._judge(await self._database.examine(step))
            if self._database.halted:
                return
            await self._sleep(PROOFS_SHARE * (perf_counter() - began))

    async def repeat(self, looking: Callable[[], Awaitable[None]], share: int) -> None:
        """Looks in one way until the database has halted, for one part in `share` of the time; 0 is without bound."""
        while not self._database.halted:
            began = perf_counter()
            try:
                await looking()
            except Exception:
                if not self._database.halted:  # otherwise it has been said why
                    log.exception("the books could not be looked at")
            await self._sleep(max(PAUSE_SECONDS, share * (perf_counter() - began)))

    def _judge(self, finding: Finding | None) -> None:
        if finding is not None and not finding.holds:
            said = "; ".join(finding.breaches)
            self._database.halt(LedgerBroken(f"not true any more is that {finding.claim}: {said}"))
