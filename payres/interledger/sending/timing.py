"""How long a sender waits and how fast it goes, in microseconds."""

import asyncio
from contextlib import suppress
from typing import Final

import msgspec

from payres.clock import SECOND, Clock

MILLISECOND: Final = 1000


class Timing(msgspec.Struct, frozen=True):
    """The defaults are those of the common STREAM senders.

    `clock` tells when packets expire; waiting is measured by the event loop.
    """

    clock: Clock
    packet_lifetime: int = 20 * SECOND
    probe_interval: int = 25 * MILLISECOND  # from one packet of the probe to the next
    probe_timeout: int = 10 * SECOND
    probe_linger: int = 500 * MILLISECOND  # how long a finished probe waits for the packets still under way
    idle_timeout: int = 10 * SECOND  # how long a payment goes on after the last packet that was fulfilled
    close_timeout: int = 5 * SECOND
    round_trip: int = 200 * MILLISECOND  # assumed until packets have been answered
    start_rate: int = 40  # packets a second
    top_rate: int = 200
    in_flight: int = 20  # packets at most


def monotonic() -> int:
    """The time of the running event loop, which never goes back; it counts from anywhere."""
    return round(asyncio.get_running_loop().time() * SECOND)


async def wait(event: asyncio.Event, until: int | None = None) -> None:
    """Waits for what is reported from now on by setting `event`, or until the event loop's time is `until`."""
    event.clear()
    with suppress(TimeoutError):
        async with asyncio.timeout_at(None if until is None else until / SECOND):
            await event.wait()
