"""Measures what a path delivers and how large a packet may be, with packets that nobody can fulfill."""

import asyncio
from collections import Counter, deque
from contextlib import suppress
from math import ceil
from typing import Final

from payres.amounts import MAX_VALUE
from payres.clock import SECOND
from payres.interledger.packets import Code, Reject
from payres.interledger.sending.connection import Answer, Connection, describe, fatal, is_too_small, too_large
from payres.interledger.sending.failures import Failure, SendingFailed
from payres.interledger.sending.pacing import monotonic, wait
from payres.interledger.sending.path import Capacity, is_small
from payres.terms import Path, RateBounds
from payres.worker import cancel_all

LARGEST: Final = 10**12
# How often the largest packet of a limited path is rejected for lack of money before that is more than bad luck.
TIMES_UNFUNDED: Final = 5
MORE_FOR_ROUNDING: Final = 2  # units, of the sender's asset or the receiver's, that a small price may be raised by
# Larger packets show the rate more exactly; smaller ones pass sooner.
_AMOUNTS: Final = (0, *(10**exponent for exponent in range(12, 2, -1)))
_SMALLEST: Final = _AMOUNTS[-1]  # a path without money for this is asked about smaller amounts


async def probe(connection: Connection) -> Path:
    """What the path to the connection's destination offers now.

    Takes a round trip where packets may have any size, and more where the limit must be found.
    Raises SendingFailed with RATE_PROBE_FAILED when the time for it is over, or for what a connector or the receiver
    says against it.
    """
    connection.begin()
    search = _Search(connection)
    try:
        return await search.run()
    finally:
        await cancel_all(search.asking.values())  # they move no money, so nobody needs their outcome


async def price_of(connection: Connection, path: Path, price: int, delivery: int) -> int:
    """The price at which `delivery` arrives: `price`, which follows from the rate that large packets have shown, or
    more by what up to MORE_FOR_ROUNDING units are worth, where the rounding of each connector counts.

    Raises SendingFailed with INSUFFICIENT_EXCHANGE_RATE when that is not enough.
    """
    if not is_small(price, delivery):
        return price
    unit = max(ceil(1 / path.low), 1)
    for amount in range(price, price + MORE_FOR_ROUNDING * unit + 1, unit):
        arrived = await _arriving(connection, amount)
        if arrived is None or arrived >= delivery:
            return amount
    raise SendingFailed(
        Failure.INSUFFICIENT_EXCHANGE_RATE,
        "Rounding to whole units takes too much of so small an amount; ask for more.",
    )


async def promise_of(connection: Connection, amount: int, promised: int) -> int:
    """What arrives of an amount that is sent whole: what is `promised` by the rate, or less, where the rounding of each
    connector counts.

    Raises SendingFailed with INSUFFICIENT_EXCHANGE_RATE when that is nothing.
    """
    if promised <= 0 or not is_small(amount, promised):
        return promised
    arrived = await _arriving(connection, amount)
    if arrived == 0:
        raise SendingFailed(
            Failure.INSUFFICIENT_EXCHANGE_RATE,
            "Rounding to whole units leaves nothing of so small an amount; send more.",
        )
    return promised if arrived is None else min(promised, arrived)


async def _arriving(connection: Connection, amount: int) -> int | None:
    """What arrives of an amount in one packet; None when nobody says in time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(connection.timing.probe_timeout / SECOND):
            answer = await connection.ask(amount)
            return answer.arrived if answer.stream or is_too_small(answer) else None
    return None


class _Search:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._queue: deque[int] = deque(_AMOUNTS)
        self._capacity = Capacity()
        self._bounds: RateBounds | None = None
        self._largest = 0  # what has reached the receiver
        # How often a connector had too little credit or liquidity for an amount.
        self._unfunded: Counter[int] = Counter()
        self.asking: dict[int, asyncio.Task[None]] = {}
        self._news = asyncio.Event()
        self._failure: BaseException | None = None
        self._last_reject: Reject | None = None

    async def run(self) -> Path:
        timing = self._connection.timing
        deadline = monotonic() + timing.probe_timeout
        while not self._found():
            if monotonic() >= deadline:
                raise self._too_late()
            pause = deadline
            if (amount := self._next_amount()) is not None:
                self.asking[amount] = asyncio.create_task(self._ask(amount))
                pause = min(monotonic() + timing.probe_interval, deadline)
            await self._pause(pause, until_news=amount is None)
        await self._linger(monotonic() + timing.probe_linger)
        assert self._bounds is not None, "a packet with money has reached the receiver"
        largest = self._largest if self._short_of_funds() else MAX_VALUE
        return Path(self._bounds.low, self._bounds.high, min(self._capacity.limit, largest))

    def _found(self) -> bool:
        """Whether the search is complete. Raises what has ended it."""
        if self._failure:
            raise self._failure
        if not self._bounds:
            return False
        passed = self._capacity.found if self._capacity.limited else self._largest >= LARGEST
        return passed or self._short_of_funds()

    def _short_of_funds(self) -> bool:
        """Whether everything above what has passed, up to the limit, was rejected for lack of credit or liquidity.

        A connector cannot distinguish a probe from money, so it rejects what its peer could not pay for. That is no
        limit of the path, but the amounts that passed can be paid.
        """
        limit = min(self._capacity.limit, LARGEST)
        larger = {limit, *(amount for amount in (*self._queue, *self.asking) if self._largest < amount < limit)}
        enough = TIMES_UNFUNDED if self._capacity.limited else 1  # there, every larger amount was rejected
        return 0 < self._largest < limit and self._unfunded[limit] >= enough and larger <= self._unfunded.keys()

    def _next_amount(self) -> int | None:
        """The next amount to try; one that is in flight is tried again when its answer has come."""
        while self._queue:
            amount = self._queue.popleft()
            if amount not in self.asking:
                return amount
        return None

    async def _pause(self, until: int, *, until_news: bool) -> None:
        """Waits until then, or for the end of the search; `until_news` for the next answer."""
        while True:
            await wait(self._news, until)
            if until_news or monotonic() >= until or self._failure or self._found():
                return

    async def _linger(self, until: int) -> None:
        """Waits for answers that are about to arrive, which make the bounds of the rate tighter."""
        while self.asking and not self._failure and monotonic() < until:
            await wait(self._news, until)
        self._found()

    async def _ask(self, amount: int) -> None:
        try:
            self._learn(amount, await self._connection.ask(amount))
        except Exception as error:  # raised again by `run`
            self._failure = self._failure or error
        finally:
            del self.asking[amount]
            self._news.set()

    def _learn(self, amount: int, answer: Answer) -> None:
        if failure := fatal(answer, self._connection.destination.asset):
            raise failure
        if isinstance(answer.outcome, Reject):
            self._last_reject = answer.outcome
            if answer.outcome.code == Code.INSUFFICIENT_LIQUIDITY:
                self._unfunded[amount] += 1
                if 1 < amount <= _SMALLEST and not self._largest:
                    self._queue.append(max(amount // 10, 1))
        if (data := too_large(answer)) is not None:
            self._capacity.too_large(amount, data)
        elif answer.stream and amount:
            self._learn_rate(amount, answer.arrived)
            self._largest = max(self._largest, amount)
            self._capacity.passed(amount)
        again = self._capacity.limit if self._capacity.limited else amount
        if again not in self._queue:
            self._queue.append(again)

    def _learn_rate(self, amount: int, arrived: int) -> None:
        """Rounding on the path may make the answer to a small packet contradict that to a larger one, which counts."""
        bounds, seen = self._bounds, RateBounds.of(amount, arrived)
        if bounds is None:
            self._bounds = seen
        elif amount >= self._largest or not bounds.excludes(seen):
            self._bounds = bounds.learn(amount, arrived)

    def _too_late(self) -> SendingFailed:
        seconds = self._connection.timing.probe_timeout // SECOND
        last = f"; the last answer was {describe(self._last_reject)}" if self._last_reject else ""
        return SendingFailed(
            Failure.RATE_PROBE_FAILED, f"The path has not shown its exchange rate within {seconds} seconds{last}."
        )
