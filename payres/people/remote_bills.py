"""Reads what another server publishes of a bill that an app wants to pay, while the owner waits a moment for it."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from payres.core.grants.spending_limits import Spending
from payres.core.http.context import Context
from payres.core.payments.incoming import open_receiver
from payres.core.payments.quotes import unit_rate_between
from payres.core.process.bounded_mapping import Newest
from payres.core.process.rate_limiter import count_for_client
from payres.core.process.slots import Slots
from payres.core.process.worker import cancel_all
from payres.core.protocol.amounts import convert_back
from payres.core.protocol.clock import SECOND, lasts
from payres.core.protocol.errors import DomainError, NoRate
from payres.core.store.grants import GRANTS
from payres.core.store.wallets import WalletRecord
from payres.core.store.work import Work
from payres.html.language import marked
from payres.interledger.node import node_of
from payres.people.payee_lookup import find_remote_bill
from payres.people.store.remote_bills import REMOTE_BILLS, RemoteBillRecord

WAIT_SECONDS: Final = 2.0  # of the owner; what comes later is shown when the page is loaded again
READS: Final = 32  # at a time
READS_OF_SERVER: Final = 4
AGAIN: Final = 30 * SECOND  # between reads of a bill that is shown
KEPT: Final = 1024  # the last bills that were shown
# Why a bill cannot be shown, or paid, by the reason of the error.
TROUBLES: Final[Mapping[str, str]] = {
    "completed": marked("This bill is paid or cancelled, and takes no more money."),
    "expired": marked("This bill has expired. Ask for a new one."),
    "not_found": marked("There is no such bill. Ask for a new link."),
    "unreachable": marked("{host} did not answer: what this bill asks for is not known."),
}
UNREAD_TROUBLE: Final = marked("What {host} says of this bill could not be read.")
ENDED_TROUBLES: Final = frozenset({"completed", "expired"})  # nothing can be paid any more

log = logging.getLogger("payres.consent")


class RemoteBills:
    """Reads the bills of grants, each in a task of its own, and stores them. A read ends within the limits of
    `RemoteReceivers`; meanwhile nobody waits for it again."""

    def __init__(self) -> None:
        self._slots = Slots(READS, READS_OF_SERVER)
        self._tasks: dict[str, asyncio.Task[str | None]] = {}
        self._ended = Newest[str, tuple[int, str | None]](KEPT)  # until when a shown bill is so

    async def read(self, context: Context, grant_id: str, receiver: str, payer: WalletRecord) -> str | None:
        """Reads and stores the bill. Returns why that failed, as `TROUBLES` has it."""
        host = urlsplit(receiver).netloc
        if grant_id in self._tasks:
            return "unreachable"
        if not self._slots.try_take(host):
            return "busy"
        self._ended[grant_id] = context.clock.now() + AGAIN, None
        count_for_client(context.urls.wallet(payer.path), is_key=False)
        task = asyncio.create_task(_read(context, grant_id, receiver))
        self._tasks[grant_id] = task

        def end(_: object) -> None:
            self._slots.release(host)
            del self._tasks[grant_id]

        task.add_done_callback(end)
        await asyncio.wait({task}, timeout=WAIT_SECONDS)
        return task.result() if task.done() else "unreachable"

    async def read_again(self, context: Context, grant_id: str, receiver: str, payer: WalletRecord) -> str | None:
        """Why a bill that is shown takes no more money, as `TROUBLES` has it: as it was at most `AGAIN` ago, or when
        its server last answered."""
        until, ended = self._ended.get(grant_id, (0, None))
        if not lasts(until, context.clock.now(), AGAIN):
            trouble = await self.read(context, grant_id, receiver, payer)
            ended = trouble if trouble is None or trouble in ENDED_TROUBLES else ended
            self._ended[grant_id] = context.clock.now() + AGAIN, ended
        return ended

    async def aclose(self) -> None:
        """Ends what is being read."""
        await cancel_all([*self._tasks.values()])


async def _read(context: Context, grant_id: str, receiver: str) -> str | None:
    try:
        payee = await find_remote_bill(node_of(context).quotes, receiver)
        record = RemoteBillRecord(
            grant_id=grant_id,
            name=payee.name,
            address=payee.address,
            purpose=payee.purpose,
            remaining=None if payee.remaining is None else str(payee.remaining),
            asset_code=payee.asset.code,
            asset_scale=payee.asset.scale,
        )

        def keep(work: Work) -> None:
            if GRANTS.get(work, grant_id) is not None and REMOTE_BILLS.get(work, grant_id) is None:
                REMOTE_BILLS.insert(work, record)

        await context.database.write(keep)
    except DomainError as error:
        return str(error.details.get("reason", "busy"))
    except Exception:
        if not context.database.stopped:
            log.exception("the bill %s was not read", receiver)
        return "bad_content"
    return None


def trouble_here(work: Work, receiver: str) -> str | None:
    """Why a bill on this server takes no more money; None if it does."""
    try:
        open_receiver(work, receiver, "receiver")
    except DomainError as error:
        return str(error.details.get("reason", "completed"))
    return None


def stated_price(
    work: Work, bill: RemoteBillRecord | None, spending: Spending | None, payer: WalletRecord
) -> int | None:
    """What the bill asks for, in its minor units, if the limit is that at our rate and what the way there may cost.

    None for any other limit: the bill's server could say less than what may leave the wallet, so the limit stands in
    the headline.
    """
    if bill is None or bill.amount is None or spending is None or spending.value is None or spending.asset is None:
        return None
    if spending.interval is not None or spending.fixes_receive:
        return None
    with suppress(NoRate):
        worth = convert_back(bill.amount, unit_rate_between(work, spending.asset, bill.asset))
        # The way may cost a few per cent, and this server its fee; one unit more is lost in rounding.
        most = worth * (1_000 + payer.fee_basis_points) // 10_000 + payer.fee_fixed + 1
        return bill.amount if 0 <= spending.value - worth <= most else None
    return None
