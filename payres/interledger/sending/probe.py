"""Measures what a path delivers and how large a packet may be, with packets that nobody can fulfill."""

import asyncio
from contextlib import suppress
from math import ceil
from typing import Final

from payres.amounts import MAX_VALUE
from payres.clock import SECOND
from payres.interledger.packets import Code, Reject
from payres.interledger.sending.connection import (
    Answer,
    Connection,
    SendingFailed,
    describe,
    failure_of,
    monotonic,
    pause,
)
from payres.interledger.sending.path import is_small
from payres.terms import Path, RateBounds

LARGEST: Final = 10**12  # the larger the packet, the more exactly its answer shows the rate
# How often a connector lacks the money for a packet before that is more than bad luck. It cannot distinguish a probe
# from money, so it rejects what its peer could not pay for; a smaller amount can be paid.
TIMES_UNFUNDED: Final = 5
MORE_FOR_ROUNDING: Final = 2  # units, of the sender's asset or the receiver's, that a small price may be raised by


async def probe(connection: Connection) -> Path:
    """What the path to the connection's destination offers now.

    Takes a round trip where packets may have any size, two where a connector tells its limit, else up to thirteen.
    Raises SendingFailed when the time for it is over, or for what a connector or the receiver says against it.
    """
    connection.begin()
    timing = connection.timing
    deadline = monotonic() + timing.probe_timeout
    amount, limit = LARGEST, MAX_VALUE
    reject, unfunded, waited = Reject(""), 0, 0
    while answer := await _ask(connection, amount, deadline - monotonic()):
        if failure := failure_of(answer, amount, connection.destination.asset):
            raise failure
        reject = answer.reject
        unfunded += reject.code == Code.INSUFFICIENT_LIQUIDITY
        if found := answer.smaller(amount):
            amount = limit = found
        elif answer.stream:
            bounds = RateBounds.of(amount, answer.arrived)
            return Path(bounds.low, bounds.high, limit)
        elif unfunded >= TIMES_UNFUNDED and amount > 1:
            amount = limit = max(amount // 10, 1)
        else:
            waited = timing.next_pause(waited)
            await pause(waited)
    last = f"; the last answer was {describe(reject)}" if reject.code else ""
    seconds = timing.probe_timeout // SECOND
    raise SendingFailed(f"The path has not shown its exchange rate within {seconds} seconds{last}.")


async def price_of(connection: Connection, path: Path, price: int, delivery: int) -> int:
    """The price at which `delivery` arrives: `price`, which follows from the rate that large packets have shown, or
    more by what up to MORE_FOR_ROUNDING units are worth, where the rounding of each connector counts.

    Raises SendingFailed when that is not enough.
    """
    if not is_small(price, delivery):
        return price
    unit = max(ceil(1 / path.low), 1)
    for amount in range(price, price + MORE_FOR_ROUNDING * unit + 1, unit):
        arrived = await _arriving(connection, amount)
        if arrived is None or arrived >= delivery:
            return amount
    raise SendingFailed("Rounding to whole units takes too much of so small an amount; ask for more.")


async def promise_of(connection: Connection, amount: int, promised: int) -> int:
    """What arrives of an amount that is sent whole: what is `promised` by the rate, or less, where the rounding of each
    connector counts.

    Raises SendingFailed when that is nothing.
    """
    if promised <= 0 or not is_small(amount, promised):
        return promised
    arrived = await _arriving(connection, amount)
    if arrived == 0:
        raise SendingFailed("Rounding to whole units leaves nothing of so small an amount; send more.")
    return promised if arrived is None else min(promised, arrived)


async def _arriving(connection: Connection, amount: int) -> int | None:
    """What arrives of an amount in one packet; None when nobody says in time."""
    answer = await _ask(connection, amount, connection.timing.probe_timeout)
    return answer.arrived if answer and (answer.stream or answer.too_small) else None


async def _ask(connection: Connection, amount: int, time_left: int) -> Answer | None:
    """The answer to a packet of this amount; None when it does not come in time (microseconds)."""
    if time_left > 0:
        with suppress(TimeoutError):
            async with asyncio.timeout(time_left / SECOND):
                return await connection.ask(amount)
    return None
