"""How much wallets have paid and received on each of the last 14 days."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Final

import msgspec

from payres.core.protocol.amounts import Asset
from payres.core.protocol.clock import DAY
from payres.core.store.accounts import last_transfer
from payres.core.store.database import Database
from payres.core.store.rows import first_row_from
from payres.core.store.work import Work
from payres.operator.store.entries import DailyFlow, sums_by_day

DAYS: Final = 14
BATCH: Final = 100_000  # the most transfers that one call counts


class Volume(msgspec.Struct, frozen=True):
    """Sums in minor units by asset, a figure for each day, oldest first; `first_day` is its number since 1970.
    `complete` is False while there are more transfers to count, of the newest days."""

    first_day: int
    paid: Mapping[Asset, list[int]]
    received: Mapping[Asset, list[int]]
    complete: bool


class DailyVolume:
    """Counts each transfer once and keeps the sums in memory: transfers never change, so neither do past days. Each
    call counts a bounded number of transfers, in the order of their ids; after a start, the first few calls catch
    up."""

    def __init__(self) -> None:
        self._next: int | None = None
        self._sums = Counter[DailyFlow]()
        self._looking = asyncio.Lock()

    async def look(self, database: Database) -> Volume:
        async with self._looking:
            first_day, sums, self._next, is_complete = await database.examine(partial(_count, after=self._next))
            self._sums.update(sums)
            self._sums = Counter({flow: amount for flow, amount in self._sums.items() if flow.day >= first_day})
            return Volume(first_day, self._by_asset(first_day, False), self._by_asset(first_day, True), is_complete)

    def _by_asset(self, first_day: int, received: bool) -> dict[Asset, list[int]]:
        assets = sorted({flow.asset for flow in self._sums}, key=lambda asset: (asset.code, asset.scale))
        days = range(first_day, first_day + DAYS)
        return {asset: [self._sums[DailyFlow(day, asset, received)] for day in days] for asset in assets}


def _count(work: Work, after: int | None) -> tuple[int, Counter[DailyFlow], int, bool]:
    """The first day, what this call has counted, the id of the next transfer to count, and whether all are counted."""
    first_day = work.now // DAY - DAYS + 1
    first = first_row_from(work, "transfer", "id", first_day * DAY) if after is None else after
    end = last_transfer(work)
    last = min(end, first + BATCH - 1)
    return first_day, sums_by_day(work, first, last), max(last + 1, first), last == end
