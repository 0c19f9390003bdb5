"""The times of a sender, in microseconds of the event loop's clock."""

import asyncio

import msgspec

from payres.core.protocol.clock import MILLISECOND, SECOND


class Timing(msgspec.Struct, frozen=True):
    """How long a sender waits, and how many packets it sends at once."""

    packet_lifetime: int = 20 * SECOND
    probe_timeout: int = 5 * SECOND  # for a whole quote, including the request to its receiver
    idle_timeout: int = 10 * SECOND  # how long a payment continues without a fulfilled packet
    short_timeout: int = 2 * SECOND  # how long, while nothing of it has passed and credit or liquidity is lacking (T04)
    close_timeout: int = 5 * SECOND
    first_pause: int = 25 * MILLISECOND  # before a failed amount is sent again; doubled each time
    longest_pause: int = SECOND
    interval: int = 5 * MILLISECOND  # from one packet of a payment to the next, on average
    first_round: int = 1  # packets
    largest_round: int = 20

    def next_pause(self, before: int) -> int:
        """The next pause: double `before` (0 for none), within bounds."""
        return min(max(2 * before, self.first_pause), self.longest_pause)


def monotonic() -> int:
    """The event loop's monotonic time in microseconds, from an arbitrary start."""
    return round(asyncio.get_running_loop().time() * SECOND)


async def pause(microseconds: int) -> None:
    """Waits."""
    await asyncio.sleep(microseconds / SECOND)
