"""How long a sender waits, and how fast its packets follow each other. Times are microseconds."""

import asyncio
from contextlib import suppress
from typing import Final

import msgspec

from payres.clock import MILLISECOND, SECOND, Clock

SHARE_OF_ROUND_TRIP: Final = 20  # two packets are at least a twentieth of the round trip apart
WEIGHT: Final = 10  # a new round trip counts a tenth in the average
LEAST_RATE: Final = 1.0  # packets a second
STEP: Final = 0.5


class Timing(msgspec.Struct, frozen=True):
    """The defaults are those of the common STREAM senders.

    `clock` says when packets expire; waiting is measured by the event loop.
    """

    clock: Clock
    packet_lifetime: int = 20 * SECOND
    probe_interval: int = 25 * MILLISECOND  # from one packet of the probe to the next
    probe_timeout: int = 10 * SECOND
    probe_linger: int = 500 * MILLISECOND  # how long a finished probe waits for the packets still in flight
    idle_timeout: int = 10 * SECOND  # how long a payment continues without a fulfilled packet
    close_timeout: int = 5 * SECOND
    round_trip: int = 200 * MILLISECOND  # assumed until packets have been answered
    start_rate: int = 40  # packets a second
    top_rate: int = 200
    in_flight: int = 20  # packets at most


def monotonic() -> int:
    """The time of the running event loop, which never goes back; it counts from anywhere."""
    return round(asyncio.get_running_loop().time() * SECOND)


async def wait(event: asyncio.Event, until: int | None = None) -> None:
    """Waits for the next time that `event` is set, or until the event loop's time is `until`."""
    event.clear()
    if until is None:
        await event.wait()
        return
    with suppress(TimeoutError):
        async with asyncio.timeout_at(until / SECOND):
            await event.wait()


class Pace:
    """Times are microseconds of one clock that never goes back."""

    def __init__(self, timing: Timing) -> None:
        self._rate = float(timing.start_rate)
        self._top_rate = float(timing.top_rate)
        self._round_trip = timing.round_trip
        self._is_assumed = True
        self._last: int | None = None
        self._slowed_at: int | None = None

    @property
    def interval(self) -> int:
        """The time from one packet to the next."""
        return max(int(SECOND / self._rate), self._round_trip // SHARE_OF_ROUND_TRIP)

    def ready_at(self, now: int) -> int:
        """When the next packet may be sent."""
        return now if self._last is None else self._last + self.interval

    def sent(self, now: int) -> None:
        """A packet is sent now. The next may catch up on the delay of this one, by one interval at most."""
        self._last = now if self._last is None else max(self._last + self.interval, now - self.interval)

    def answered(self, sent_at: int, now: int, *, authentic: bool, congested: bool) -> None:
        """A packet has its outcome: the receiver's answer (`authentic`), or a sign that the path could not cope."""
        took = now - sent_at
        # The first measurement replaces the assumption, as in TCP (RFC 6298 section 2.2): most paths are much quicker.
        self._round_trip = took if self._is_assumed else self._round_trip + (took - self._round_trip) // WEIGHT
        self._is_assumed = False
        if authentic:
            self._quicken()
        if congested:
            self._slow(sent_at, now)

    def _quicken(self) -> None:
        # Up to the first congestion the rate doubles in each round trip; afterwards it rises slowly to where it was.
        step = STEP if self._slowed_at is not None else max(STEP, SECOND / max(self._round_trip, 1))
        self._rate = min(self._rate + step, max(self._top_rate, LEAST_RATE))

    def _slow(self, sent_at: int, now: int) -> None:
        # One congestion rejects many packets at once. Those sent before it was known say nothing about the new pace.
        if self._slowed_at is None or sent_at >= self._slowed_at:
            self._slowed_at = now
            self._rate = max(self._rate / 2, LEAST_RATE)
