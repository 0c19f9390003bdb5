"""The watch over the ledger: the invariant checks of `payres ledger check`, again and again and slowly."""

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Final

from payres.ledger import LedgerBroken
from payres.operator import audit
from payres.operator.audit import Finding
from payres.store.database import Database
from payres.store.ledger_proofs import reference_proofs
from payres.worker import Sleep, Worker

PAUSE_SECONDS: Final = 60.0
BALANCES_SHARE: Final = 100  # looking at the balances takes one part in so many of the time at most
PROOFS_SHARE: Final = 50


class BooksWatch:
    """Puts the database into fail-stop when an invariant of the ledger is broken. `run` until cancelled.

    Once a minute it looks at the balances, which takes a second for millions of accounts. Beside that it goes through
    all checks in short steps with long pauses: a small database is gone through every minute, one with a million
    payments in half an hour, and neither the write-ahead log nor the work is held up by it.
    """

    def __init__(self, database: Database, sleep: Sleep = asyncio.sleep) -> None:
        self._database = database
        self._sleep = sleep

    async def run(self) -> None:
        """Looks at once, so that a start need not wait for it, and then again and again."""
        async with asyncio.TaskGroup() as tasks:
            for look, share in ((self.look, BALANCES_SHARE), (self.go_through, 0)):
                tasks.create_task(self.repeat(look, share))

    async def repeat(self, look: Callable[[], Awaitable[None]], share: int) -> None:
        """Looks in one way until the database is in fail-stop, for one part in `share` of the time; 0 is no limit."""

        async def step() -> float:
            began = perf_counter()
            await look()
            return max(PAUSE_SECONDS, share * (perf_counter() - began))

        await Worker("the invariant check of the ledger", self._database, step, PAUSE_SECONDS, self._sleep).run()

    async def look(self) -> None:
        """Looks at the balances once."""
        self._judge(audit.first_broken(await self._database.examine(audit.check_balances)))

    async def go_through(self) -> None:
        """Checks everything once, and stops at the first breach."""
        for step in audit.steps(await self._database.examine(reference_proofs)):
            began = perf_counter()
            self._judge(await self._database.examine(step))
            if self._database.halted:
                return
            await self._sleep(PROOFS_SHARE * (perf_counter() - began))

    def _judge(self, finding: Finding | None) -> None:
        if finding is not None and not finding.holds:
            said = "; ".join(finding.breaches)
            self._database.halt(LedgerBroken(f"not true any more is that {finding.claim}: {said}"))
