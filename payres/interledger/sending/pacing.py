"""How fast packets follow each other: faster while they are answered, slower when the path cannot cope."""

from payres.clock import SECOND
from payres.interledger.sending.timing import Timing

SHARE_OF_ROUND_TRIP = 20  # at least a twentieth of the round trip lies between two packets
WEIGHT = 10  # a new round trip counts a tenth in the average
LEAST_RATE = 1.0  # packets a second
STEP = 0.5


class Pace:
    """Times are microseconds of one clock that never goes back."""

    def __init__(self, timing: Timing) -> None:
        self._rate = float(timing.start_rate)
        self._top_rate = float(timing.top_rate)
        self._round_trip = timing.round_trip
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
        """A packet is sent now. The next may make up for the delay of this one, but not for more than one interval."""
        self._last = now if self._last is None else max(self._last + self.interval, now - self.interval)

    def answered(self, sent_at: int, now: int, *, authentic: bool, congested: bool) -> None:
        """A packet has come to an end: answered by the receiver, or rejected because the path could not cope."""
        self._round_trip += (now - sent_at - self._round_trip) // WEIGHT
        if authentic:
            self._quicken()
        if congested:
            self._slow(sent_at, now)

    def _quicken(self) -> None:
        # Up to the first congestion the rate doubles within a round trip, then it creeps up to where it was.
        step = STEP if self._slowed_at is not None else max(STEP, SECOND / max(self._round_trip, 1))
        self._rate = min(self._rate + step, max(self._top_rate, LEAST_RATE))

    def _slow(self, sent_at: int, now: int) -> None:
        # One congestion rejects many packets at once: those sent before it was known say nothing about the new pace.
        if self._slowed_at is None or sent_at >= self._slowed_at:
            self._slowed_at = now
            self._rate = max(self._rate / 2, LEAST_RATE)
