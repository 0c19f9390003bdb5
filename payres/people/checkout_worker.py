"""Continues payments from other wallets whose next step is due: also after a restart, and if no browser comes back."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from payres.core.process.slots import Slots, SlotsBusy
from payres.core.process.worker import Worker, cancel_all
from payres.core.protocol.clock import SECOND, Clock
from payres.core.protocol.limits import MAX_CHECKOUTS, MAX_CHECKOUTS_OF_SERVER
from payres.core.store.database import Database
from payres.interledger.store import checkouts
from payres.interledger.store.checkouts import LEASE, CheckoutRecord

if TYPE_CHECKING:
    from payres.people.checkout import Desk


BATCH: Final = 128
QUEUE: Final = 3  # waiters per slot; others are due again after their lease
QUEUE_SECONDS: Final = 2.0
POLL_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 1.0

log = logging.getLogger("payres.checkouts")


class CheckoutWorker:
    """Continues checkouts, each in a task of its own. `run` until cancelled. `desk` is called when one is due."""

    def __init__(self, database: Database, clock: Clock, desk: "Callable[[], Desk]") -> None:
        self._database = database
        self._clock = clock
        self._desk = desk
        self._slots = Slots(MAX_CHECKOUTS, MAX_CHECKOUTS_OF_SERVER, queue=QUEUE)
        self._tasks: dict[asyncio.Task[None], None] = {}  # in order

    async def run(self) -> None:
        """Ends when the database is in fail-stop."""
        try:
            await Worker("the search for payments from other wallets", self._database, self._start, RETRY_SECONDS).run()
        finally:
            await cancel_all(self._tasks)

    async def _start(self) -> float:
        now = self._clock.now()
        if await self._database.read(partial(checkouts.has_due, now=now)):
            for record in await self._database.write(partial(checkouts.claim_due, now=now, limit=BATCH)):
                # In a new context: these requests to other servers count for no client.
                task = asyncio.create_task(self._continue(record), context=Context())
                self._tasks[task] = None
                task.add_done_callback(self._tasks.pop)
        return POLL_SECONDS

    async def _continue(self, record: CheckoutRecord) -> None:
        from payres.people.checkout_steps import advance

        with suppress(SlotsBusy):
            async with self._slots.slot(urlsplit(record.payer).netloc, seconds=QUEUE_SECONDS):
                try:
                    await advance(self._desk(), record.id_hash)
                except Exception:
                    if not self._database.stopped:
                        log.exception("a payment from %s failed; next try in %d s", record.payer, LEASE // SECOND)
