"""The offer of a path: its exchange rate, the maximum packet, and the cost of a payment over it.

`probe` measures it with unfulfillable packets.
"""

import asyncio
from contextlib import suppress
from fractions import Fraction
from math import ceil, floor
from typing import Final

from payres.core.protocol.amounts import MAX_VALUE, ProbedPath, RateBounds
from payres.core.protocol.clock import SECOND
from payres.interledger.packets import Code, Reject
from payres.interledger.sending.connection import Answer, SendingFailed, StreamConnection, cannot_take, stop_reason
from payres.interledger.sending.timing import monotonic, pause

# The answer to a smaller packet shows the rounding on the path rather than its rate.
SHOWS_THE_RATE: Final = 100
LARGEST: Final = 10**12  # the larger the packet, the more exactly its answer shows the rate
# How often a connector may lack the money for a packet by chance. It cannot tell a probe from money, so it rejects
# amounts that its peer could not pay; a smaller amount can be paid.
TIMES_UNFUNDED: Final = 5
MORE_FOR_ROUNDING: Final = 2  # units of either asset by which a small price may be raised


async def probe(connection: StreamConnection) -> ProbedPath:
    """Measures the path to the connection's destination.

    Takes one round trip if packets may have any size, two if a connector reports its limit, otherwise up to thirteen.
    Raises SendingFailed if time runs out, or a connector or the receiver refuses.
    """
    connection.begin()
    timing = connection.timing
    amount, limit = LARGEST, MAX_VALUE
    reject, unfunded, waited = Reject(""), 0, 0
    while answer := await _ask(connection, amount):
        if failure := stop_reason(answer, amount, connection.destination.asset):
            raise failure
        reject = answer.reject
        unfunded += reject.code == Code.INSUFFICIENT_LIQUIDITY
        if found := answer.smaller(amount):
            amount = limit = found
        elif answer.stream:
            bounds = RateBounds.of(amount, answer.arrived)
            return ProbedPath(bounds.low, bounds.high, limit)
        elif unfunded >= TIMES_UNFUNDED and amount > 1:
            amount = limit = max(amount // 10, 1)
        else:
            waited = timing.next_pause(waited)
            await pause(waited)
    last = f"; the last answer was {reject}" if reject.code else ""
    seconds = timing.probe_timeout // SECOND
    raise SendingFailed(f"The path has not shown its exchange rate within {seconds} seconds{last}.")


async def check_funded(connection: StreamConnection, path: ProbedPath, amount: int) -> None:
    """Raises SendingFailed if a connector lacks the credit or liquidity for `amount` in one packet.

    A path that takes smaller packets alone does not show it, and neither does one whose answer is late.
    """
    waited, tries = 0, TIMES_UNFUNDED if amount > path.max_packet else 0
    for left in reversed(range(tries)):
        answer = await _ask(connection, amount)
        if answer is None or answer.reject.code != Code.INSUFFICIENT_LIQUIDITY:
            return
        if not left:
            raise cannot_take(answer.reject)
        waited = connection.timing.next_pause(waited)
        await pause(waited)


async def price_of(connection: StreamConnection, path: ProbedPath, price: int, delivery: int, on_link: Fraction) -> int:
    """The price at which `delivery` arrives: `price`, which follows from the rate of large packets, or where the
    rounding of each connector matters, more by the value of up to MORE_FOR_ROUNDING units. One unit sent is `on_link`
    units on the first link.

    Raises SendingFailed if that is not enough.
    """
    if not is_small(price, delivery, floor(price * on_link)):
        return price
    unit = max(ceil(1 / path.low), floor(1 / on_link), 1)
    for amount in range(price, price + MORE_FOR_ROUNDING * unit + 1, unit):
        arrived = await _arriving(connection, amount)
        if arrived is None or arrived >= delivery:
            return amount
    raise SendingFailed("Rounding to whole units takes too much of so small an amount; ask for more.")


async def promise_of(
    connection: StreamConnection, amount: int, promised: int, on_link: Fraction, slippage: Fraction
) -> int:
    """The least that must arrive of an amount that is sent whole: `promised`, by the rate, or where the rounding of
    each connector matters, what arrives now minus the slippage, rounded up to whole units. One unit sent is `on_link`
    units on the first link.

    Raises SendingFailed if nothing arrives.
    """
    if not is_small(amount, promised, floor(amount * on_link)):
        return promised
    arrived = await _arriving(connection, amount)
    if arrived is None and not promised:
        raise SendingFailed("The path has not shown in time what arrives of so small an amount; try again.")
    if arrived == 0:
        raise SendingFailed("Rounding to whole units leaves nothing of so small an amount; send more.")
    return promised if arrived is None else rounded_up(arrived, 1 - slippage)


async def _arriving(connection: StreamConnection, amount: int) -> int | None:
    """What arrives of an amount in one packet; None if there is no timely answer."""
    answer = await _ask(connection, amount)
    return answer.arrived if answer and (answer.stream or answer.too_small) else None


async def _ask(connection: StreamConnection, amount: int) -> Answer | None:
    """The answer to a packet of this amount; None if it does not come before the quote's deadline."""
    if connection.probed_until is None:
        connection.probed_until = monotonic() + connection.timing.probe_timeout
    time_left = connection.probed_until - monotonic()
    if time_left > 0:
        with suppress(TimeoutError):
            async with asyncio.timeout(time_left / SECOND):
                return await connection.ask(amount)
    return None


def is_small(*amounts: int) -> bool:
    """Whether the answer to a packet of these amounts on its way shows rounding on the path rather than its rate."""
    return min(amounts) < SHOWS_THE_RATE


def min_delivery(amount: int, path: ProbedPath, minimum: Fraction) -> int:
    """The least that arrives if all of `amount` is sent: one unit of it may be lost to rounding beyond the minimum
    rate.

    Raises SendingFailed if the path delivers less.
    """
    _check_rate(amount, path, minimum)
    promised = ceil((amount - 1) * minimum)
    if path.least(amount) < promised:
        raise SendingFailed("Rounding to whole units takes more of this amount than may be lost; send more at once.")
    return promised


def max_source(amount: int, path: ProbedPath, minimum: Fraction) -> int:
    """The most that delivering `amount` costs: its price at the minimum rate, plus one unit for rounding.

    Raises SendingFailed if the path delivers less.
    """
    price = floor(amount / minimum) + 1
    _check_rate(price, path, minimum)
    return price


def sendable(amount: int, low: Fraction, minimum: Fraction) -> int:
    """The largest amount up to `amount` that delivers its minimum in spite of rounding down; 0 if there is none.

    That is `amount` itself, or the smallest amount that delivers the same: the rest would be lost to rounding.
    """
    # In integers, which is three times as fast as fractions.
    units, of = low.as_integer_ratio()
    arriving = amount * units // of
    if arriving >= rounded_up(amount, minimum):
        return amount
    least = -(-arriving * of // units) if arriving else 0
    return least if arriving >= rounded_up(least, minimum) else 0


def rounded_up(amount: int, rate: Fraction) -> int:
    """The amount at a rate, rounded up to whole units."""
    units, of = rate.as_integer_ratio()
    return -(-amount * units // of)


def _check_rate(amount: int, path: ProbedPath, minimum: Fraction) -> None:
    if path.low < minimum:
        low, least = (f"{rate.numerator / rate.denominator:.9g}" for rate in (path.low, minimum))
        raise SendingFailed(f"The path delivers {low} for each unit sent, below the minimum of {least}.")
    # Each packet but the last must deliver the minimum on its own.
    if amount > path.max_packet and not sendable(path.max_packet, path.low, minimum):
        raise SendingFailed(
            f"The path takes {path.max_packet} units in a packet, so few that rounding takes more than may be lost."
        )
