"""Pays standing orders when they are due: also after a restart, and again where a payment could not be made."""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from payres.core.process.worker import Worker
from payres.core.store.database import Database
from payres.core.store.work import Work
from payres.operator.store import standing_orders as store
from payres.operator.store.standing_orders import RunRecord

if TYPE_CHECKING:
    from payres.interledger.node import Node

BATCH: Final = 16  # runs that are tried at a time
POLL_SECONDS: Final = 5.0
NEXT_SECONDS: Final = 0.05  # between batches
RETRY_SECONDS: Final = 5.0

log = logging.getLogger("payres.orders")


class OrderWorker:
    """Tries the runs that are due, a batch at a time. `run` until cancelled. `node` is called when one is due."""

    def __init__(self, database: Database, node: "Callable[[], Node]") -> None:
        self._database = database
        self._node = node

    async def run(self) -> None:
        """Ends when the database is in fail-stop."""
        await Worker("the payment of standing orders", self._database, self._step, RETRY_SECONDS).run()

    async def _step(self) -> float:
        if not await self._database.read(_has_due):
            return POLL_SECONDS
        from payres.people.standing_orders import begin_due

        runs = await self._database.write(lambda work: begin_due(work, BATCH))
        await asyncio.gather(*map(self._try, runs))
        return NEXT_SECONDS

    async def _try(self, run: RunRecord) -> None:
        from payres.people.standing_orders import put_off, try_run

        try:
            await try_run(self._database, self._node().quotes, run)
        except Exception:
            if self._database.stopped:
                return
            log.exception("a payment of standing order %s failed; it is tried again", run.order_id)
            await self._database.write(lambda work: put_off(work, run, "internal_error"))
        self._node().payments.wake()


def _has_due(work: Work) -> bool:
    return bool(store.due_orders(work, work.now, 1) or store.due_runs(work, work.now, 1))
