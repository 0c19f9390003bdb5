"""Pays over a STREAM connection, with many packets at once.

Each either delivers its minimum or costs nothing. Within one run, what was fulfilled, is in flight, or has an unknown
outcome never exceeds what the sender may spend. Across runs and crashes, `payres.interledger.balances` ensures that.
"""

import asyncio
from fractions import Fraction
from math import ceil

import msgspec

from payres.clock import MILLISECOND, SECOND
from payres.interledger.packets import Fulfill, Lost, Reject
from payres.interledger.sending.connection import (
    Answer,
    Connection,
    describe,
    fatal,
    is_congested,
    is_too_small,
    objection,
    too_large,
)
from payres.interledger.sending.failures import Failure, SendingFailed
from payres.interledger.sending.pacing import Pace, monotonic, wait
from payres.interledger.sending.path import SHOWS_THE_RATE, Capacity, at_most, is_small, sendable
from payres.payments.incoming import overpay_tolerance
from payres.terms import Path, RateBounds
from payres.worker import cancel_all


class Plan(msgspec.Struct, frozen=True):
    """What one run of a payment may spend and must deliver, over a path that was probed before.

    With `sends_all` it ends when `max_source` is spent, otherwise as soon as `min_delivery` has arrived. A further run
    of the same payment has what is left of both, and `unit_forgiven` when a run before it has used that up.
    """

    max_source: int
    min_delivery: int
    min_rate: Fraction
    path: Path
    sends_all: bool
    unit_forgiven: bool = False


class PacketAmounts(msgspec.Struct, frozen=True):
    """One packet: it carries `amount`, of which at least `minimum` must arrive and at most `expected` can.

    `forgiving` when the minimum is for one unit less than the amount; `completes` when it ends a fixed delivery, or is
    all that can be sent for it.
    """

    amount: int
    minimum: int
    expected: int
    forgiving: bool = False
    completes: bool = False


class Progress:
    """The amounts of a plan so far: sent, delivered, in flight, or `unresolved` (of unknown outcome)."""

    def __init__(self, plan: Plan) -> None:
        self.sent = 0
        self.delivered = 0
        self.unresolved = 0
        self.unit_forgiven = plan.unit_forgiven
        self._plan = plan
        self._in_flight = 0
        self._arriving = 0  # how much of what is in flight or unresolved may still arrive
        self._forgiving = False  # whether a packet in flight may be the one that is forgiven a unit
        self._too_small = 0  # the largest amount of which rounding has left too little

    @property
    def complete(self) -> bool:
        """Whether nothing is left to be sent and no outcome is unknown."""
        if self._plan.sends_all:
            return self.sent == self._plan.max_source
        return self.delivered >= self._plan.min_delivery and not self.unresolved

    def next(self, bounds: RateBounds, most: int) -> PacketAmounts | None:
        """The next packet, of `most` units at most; None while what is in flight or unresolved may be enough.

        Raises SendingFailed when no packet can deliver its minimum at this rate.
        """
        available = self._plan.max_source - self.sent - self._in_flight - self.unresolved
        if available <= 0:
            return None
        sends_all = self._plan.sends_all
        packet = self._sending(bounds, available, most) if sends_all else self._delivering(bounds, available, most)
        if packet is None or bounds.least(packet.amount) >= packet.minimum:
            return packet
        rate = self._plan.min_rate
        possible = sendable(packet.amount, bounds.low, rate)
        if possible > self._too_small:
            return PacketAmounts(possible, at_most(possible, rate), bounds.most(possible))
        if self._forgiving or (packet.completes and self._in_flight):
            return None  # the unit is forgiven once, and is free again if that packet is rejected
        if packet.expected >= packet.minimum:
            return packet  # trying costs nothing, and a rejection makes the bounds exact
        raise SendingFailed(
            Failure.INSUFFICIENT_EXCHANGE_RATE, "The path no longer delivers the minimum exchange rate of the payment."
        )

    def _sending(self, bounds: RateBounds, available: int, most: int) -> PacketAmounts:
        amount = self._share(available, min(available, most), bounds.low)
        is_last = available <= most
        forgiving = self._forgives(is_last)
        minimum = at_most(amount - forgiving, self._plan.min_rate)
        if is_last and self._is_alone:
            minimum = max(minimum, self._plan.min_delivery - self.delivered)
        if amount <= min(self._too_small, SHOWS_THE_RATE) and not self._in_flight:
            raise _lost_to_rounding()
        return PacketAmounts(amount, minimum, bounds.most(amount), forgiving)

    def _delivering(self, bounds: RateBounds, available: int, most: int) -> PacketAmounts | None:
        missing = self._plan.min_delivery - self.delivered - self._arriving
        if missing <= 0:
            return None
        if not bounds.low:
            raise SendingFailed(Failure.INSUFFICIENT_EXCHANGE_RATE, "The path delivers nothing of what is sent.")
        if self._too_small >= available and not self._in_flight:
            raise _lost_to_rounding()
        # Of what was too small an eighth more, so that few packets are tried where a unit on the way is worth many.
        needed = max(ceil(missing / bounds.low), self._too_small + 1 + self._too_small // 8)
        amount = min(needed, available, most)
        completes = needed <= amount
        forgiving = self._forgives(completes)
        minimum = max(at_most(amount - forgiving, self._plan.min_rate), 1)
        if completes and self._is_alone:
            # What is missing completes the payment within its plan. A unit may stay missing if more can be sent for it,
            # and if the receiver's overpay tolerance covers that.
            is_covered = bounds.most(1) <= overpay_tolerance(self._plan.min_delivery)
            # The quote has asked the path what one packet with all of a small payment delivers.
            is_asked = is_small(self._plan.max_source, self._plan.min_delivery)
            is_last = available - amount <= 1 or not is_covered or is_asked
            forgiving = forgiving and not is_last
            minimum = missing if is_last else min(minimum, missing)
        return PacketAmounts(amount, minimum, bounds.most(amount), forgiving, completes or amount == available)

    @property
    def _is_alone(self) -> bool:
        """Whether the next packet is the only one whose outcome is not known."""
        return not self._in_flight and not self.unresolved

    def _forgives(self, final: bool) -> bool:
        return final and not self.unit_forgiven and not self._forgiving

    def _share(self, available: int, amount: int, low: Fraction) -> int:
        """`amount`, or half of what is available when the rest would be lost to rounding."""
        rest, half = available - amount, available - available // 2
        if 0 < rest < amount and not self._passes(rest, low) and self._passes(half, low):
            return half
        return amount

    def _passes(self, amount: int, low: Fraction) -> bool:
        return sendable(amount, low, self._plan.min_rate) == amount

    def take(self, packet: PacketAmounts) -> None:
        """The packet is sent now."""
        self._in_flight += packet.amount
        self._arriving += packet.expected
        self._forgiving = self._forgiving or packet.forgiving
        assert self.sent + self._in_flight + self.unresolved <= self._plan.max_source

    def fulfilled(self, packet: PacketAmounts, arrived: int) -> None:
        """Counts a fulfilled packet. The receiver says how much arrived: at least the minimum, since it has
        fulfilled."""
        self._landed(packet)
        self.sent += packet.amount
        self.delivered += max(arrived, packet.minimum)
        # Nothing was forgiven unless less arrived than a packet of this amount must deliver.
        if packet.forgiving and arrived < at_most(packet.amount, self._plan.min_rate):
            self.unit_forgiven = True

    def rejected(self, packet: PacketAmounts) -> None:
        """The packet moved nothing, so its amount can be sent again."""
        self._landed(packet)

    def too_small(self, packet: PacketAmounts) -> None:
        """Rounding on the path has taken so much of a rejected packet that only a larger one can pass."""
        self._too_small = max(self._too_small, packet.amount)

    def lost(self, packet: PacketAmounts) -> None:
        """Counts a packet of unknown outcome, both as spent and as missing."""
        self._landed(packet)
        self.unresolved += packet.amount
        self._arriving += packet.expected
        self.unit_forgiven = self.unit_forgiven or packet.forgiving

    def _landed(self, packet: PacketAmounts) -> None:
        self._in_flight -= packet.amount
        self._arriving -= packet.expected
        if packet.forgiving:
            self._forgiving = False


class Result(msgspec.Struct, frozen=True):
    """The result of one run of a payment.

    `sent` and `unresolved` are source amounts: fulfilled, and of unknown outcome; `delivered` has arrived for what was
    sent. Without `failure`, all is done once the unknown outcomes are resolved.
    """

    sent: int
    delivered: int
    unresolved: int
    failure: SendingFailed | None


async def pay(connection: Connection, plan: Plan) -> Result:
    """Sends what the plan allows. Returns when every packet has its outcome; failures are in the result.

    Raises only what `PacketSender.pay` raises, after the other packets have their outcome; the packet concerned counts
    as lost. When cancelled, it stops at once and leaves the packets in flight to the caller, who recorded them.
    """
    connection.begin()
    run = _Run(connection, plan)
    try:
        return await run.result()
    finally:
        await cancel_all(run.packets)


class _Run:
    def __init__(self, connection: Connection, plan: Plan) -> None:
        self._connection = connection
        self._timing = connection.timing
        self._plan = plan
        self._progress = Progress(plan)
        self._bounds: RateBounds = plan.path
        self._capacity = Capacity(plan.path.max_packet)
        self._pace = Pace(self._timing)
        self._idle_at = monotonic() + self._timing.idle_timeout
        self.packets: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()
        self._failure: SendingFailed | None = None
        self._broken: Exception | None = None
        self._last_reject: Reject | None = None

    async def result(self) -> Result:
        while not self._failure and not self._broken:
            packet = self._next()
            if packet:
                await self._send(packet)
            elif self.packets:
                await wait(self._news)
            else:
                break
        while self.packets:
            await wait(self._news)
        if self._failure and self._failure.reason == Failure.IDLE_TIMEOUT:
            self._failure = self._idle()  # the last packets have been answered since
        if self._broken:
            raise self._broken
        progress = self._progress
        return Result(progress.sent, progress.delivered, progress.unresolved, self._outcome())

    def _next(self) -> PacketAmounts | None:
        try:
            return self._progress.next(self._bounds, self._capacity.limit)
        except SendingFailed as failure:
            self._fail(failure)
            return None

    async def _send(self, packet: PacketAmounts) -> None:
        """Sends the packet if it is time; otherwise waits until then, or until an answer may change the packet."""
        now = monotonic()
        if now >= self._idle_at:
            return self._fail(self._idle())
        if len(self.packets) >= self._timing.in_flight:
            return await wait(self._news, self._idle_at)
        if (ready_at := self._pace.ready_at(now)) >= now + MILLISECOND:  # no event loop waits for less
            return await wait(self._news, min(ready_at, self._idle_at))
        self._pace.sent(now)
        self._progress.take(packet)
        self.packets.add(asyncio.create_task(self._carry(packet, now)))
        return None

    async def _carry(self, packet: PacketAmounts, sent_at: int) -> None:
        """Sends one packet and accounts for its outcome."""
        answer = None
        try:
            answer = await self._connection.pay(packet.amount, packet.minimum)
            self._learn(packet, answer, sent_at)
        except Exception as error:
            self._broken = self._broken or error
        finally:
            self._post(packet, answer)
            if task := asyncio.current_task():
                self.packets.discard(task)
            self._news.set()

    def _post(self, packet: PacketAmounts, answer: Answer | None) -> None:
        if answer is None or isinstance(answer.outcome, Lost):
            self._progress.lost(packet)
        elif isinstance(answer.outcome, Fulfill):
            self._progress.fulfilled(packet, answer.arrived)
            self._idle_at = monotonic() + self._timing.idle_timeout
        else:
            self._progress.rejected(packet)
            self._last_reject = answer.outcome

    def _learn(self, packet: PacketAmounts, answer: Answer, sent_at: int) -> None:
        """Learns about the path from the outcome, and ends the payment if that says so."""
        self._pace.answered(sent_at, monotonic(), authentic=answer.authentic, congested=is_congested(answer))
        try:
            if (data := too_large(answer)) is not None:
                self._capacity.too_large(packet.amount, data)
            elif answer.authentic:
                self._capacity.passed(packet.amount)
            if is_too_small(answer) or (packet.completes and _is_short(packet, answer)):
                self._progress.too_small(packet)
            elif answer.stream:
                self._bounds = self._bounds.learn(packet.amount, answer.arrived)
        except SendingFailed as failure:
            self._fail(failure)
        asset = self._connection.destination.asset
        if end := objection(answer, packet.minimum, self._plan.min_delivery) or fatal(answer, asset):
            self._fail(end)

    def _idle(self) -> SendingFailed:
        seconds = self._timing.idle_timeout // SECOND
        last = f"; the last answer was {describe(self._last_reject)}" if self._last_reject else ""
        return SendingFailed(Failure.IDLE_TIMEOUT, f"Nothing has arrived for {seconds} seconds{last}.")

    def _fail(self, failure: SendingFailed) -> None:
        """Ends the payment; the first reason counts."""
        self._failure = self._failure or failure

    def _outcome(self) -> SendingFailed | None:
        """Why the payment is not complete; no failure when another attempt could send nothing."""
        progress, promised = self._progress, self._plan.min_delivery
        if not self._failure and not progress.complete and not progress.unresolved:
            return SendingFailed(
                Failure.INSUFFICIENT_EXCHANGE_RATE,
                f"All that may be spent is spent, and {progress.delivered} of {promised} have arrived.",
            )
        if self._failure and self._failure.reason == Failure.INSUFFICIENT_EXCHANGE_RATE:
            # What is left may be lost to rounding.
            return self._failure if progress.delivered < promised else None
        return None if self._failure and self._failure.retryable and progress.complete else self._failure


def _is_short(packet: PacketAmounts, answer: Answer) -> bool:
    """Whether a packet that shows more of the rounding than of the rate was rejected by the receiver."""
    is_rejected = isinstance(answer.outcome, Reject) and answer.stream is not None
    return is_rejected and is_small(packet.amount, packet.minimum)


def _lost_to_rounding() -> SendingFailed:
    return SendingFailed(
        Failure.INSUFFICIENT_EXCHANGE_RATE, "Rounding on the path takes more of what is left than may be lost."
    )
