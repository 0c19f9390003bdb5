"""Pays over a STREAM connection, in rounds of packets.

Each packet either delivers its minimum or costs nothing. Within one run, what was fulfilled, is in flight, or has an
unknown outcome never exceeds what the sender may spend. Across runs and crashes, `clearing` ensures that.

An example: 5000 euro cents are to arrive, for 5612 US cents at most, so that the minimum rate is 5000/5612, or 0.8909.
By the probe, the path takes 777 in a packet and delivers 699 of them, at least 0.8996 a cent.

| round | missing | packets | each must deliver | outcome |
|---|---|---|---|---|
| 1 | 5000 | 1 of 777, which moves nothing | | 699 would arrive: the rate has not risen |
| 2 | 5000 | 4 of 777 | 777 x 0.8909, rounded up: 693 | of three, 699 arrive; the fourth is rejected with T04 |
| 3 | 2903 | half as many, after a pause: 2 of 777 | 693 | of both, 699 arrive |
| 4 | 1505 | 2 of 777, and 119 for the other 107 | 693, and 119 x 0.8909: 107 | of both, 699; only 106 would: rejected |
| 5 | 107 | 121 at the new rate, 106/119 | 107: a packet alone in flight must deliver what is missing | 107 arrive |

5560 were spent. A payment that sends all of 10000 cents and promises 9900 goes the same way, but for its last packet:
when that is the only one in flight, it may deliver a unit's worth less than the minimum rate if the promise is kept.
"""

import asyncio
from collections.abc import Sequence
from fractions import Fraction
from math import ceil
from typing import Final

import msgspec

from payres.core.protocol.amounts import ProbedPath, RateBounds
from payres.core.protocol.clock import LATEST, SECOND
from payres.interledger.packets import Code, Fulfill, Reject, Unanswered
from payres.interledger.sending.connection import Answer, SendingFailed, StreamConnection, cannot_take, stop_reason
from payres.interledger.sending.probe import is_small, rounded_up, sendable
from payres.interledger.sending.timing import Timing, monotonic, pause

# How often a delivery asks for its price before it is sent at the price that was quoted.
TIMES_ASKED: Final = 5


class Plan(msgspec.Struct, frozen=True):
    """What one run of a payment may spend and must deliver, over a path probed before.

    With `sends_all` it ends when `max_source` is spent, otherwise as soon as `min_delivery` has arrived. Another run of
    the same payment gets the rest of both, with `is_begun` if something was sent before.
    """

    max_source: int
    min_delivery: int
    min_rate: Fraction
    path: ProbedPath
    sends_all: bool
    is_begun: bool = False


class Result(msgspec.Struct, frozen=True):
    """The result of one run of a payment.

    `sent` and `unresolved` are source amounts: fulfilled, and of unknown outcome; `delivered` has arrived for `sent`.
    Without `failure`, everything is done once the unknown outcomes are resolved.
    """

    sent: int
    delivered: int
    unresolved: int
    failure: SendingFailed | None


class PlannedPacket(msgspec.Struct, frozen=True):
    """A packet of `amount`, of which at least `minimum` must arrive and at most `most` can."""

    amount: int
    minimum: int
    most: int


async def pay(connection: StreamConnection, progress: "Progress") -> Result:
    """Sends what the plan allows. Returns when every packet has an outcome; failures are in the result.

    A delivery first asks, with packets that move nothing, what it costs now: it takes no more, if the rate has risen.

    Raises only what `PacketSender.pay` raises, after the other packets of the round have their outcome. When cancelled,
    it stops at once and leaves the packets in flight to the caller, who recorded them.
    """
    connection.begin()
    plan = progress.plan
    rounds, failure = _Rounds(connection.timing, is_begun=plan.is_begun), None
    while not failure:
        asks = progress.asks
        try:
            packets = progress.next_round(1 if asks else rounds.size)
            if not packets:
                break
            await rounds.turn()
        except SendingFailed as stopped:
            failure = stopped
            break
        answers = [await connection.ask(packets[0].amount)] if asks else await _send(connection, packets)
        for packet, answer in zip(packets, answers, strict=True):
            (progress.learn if asks else progress.count)(packet, answer)
            amounts = packet.amount, connection.destination.asset, packet.minimum, plan.min_delivery
            failure = failure or stop_reason(answer, *amounts)
        rounds.learn(answers)
    return progress.result(failure)


async def _send(connection: StreamConnection, packets: Sequence[PlannedPacket]) -> Sequence[Answer]:
    """Sends packets concurrently; raises the first exception after all have their outcome."""
    sent = (connection.pay(packet.amount, packet.minimum) for packet in packets)
    outcomes = await asyncio.gather(*sent, return_exceptions=True)
    answers = []
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
        answers.append(outcome)
    return answers


class _Rounds:
    """The size of the next round, and when it may be sent."""

    def __init__(self, timing: Timing, *, is_begun: bool) -> None:
        self.size = timing.first_round
        self._timing = timing
        self._pause = 0
        self._began = self._ready_at = monotonic()
        self._idle_at = self._began + timing.idle_timeout
        self._last_reject: Reject | None = None
        # Where nothing passes, the money stays with its owner, who can try less; a payment that has begun waits.
        self._short_at = None if is_begun else self._began + timing.short_timeout

    async def turn(self) -> None:
        """Waits until the round may be sent. Raises SendingFailed if nothing has arrived for too long."""
        await pause(max(min(self._ready_at, self._idle_at) - monotonic(), 0))
        self._began = monotonic()
        last_reject = self._last_reject
        if (
            last_reject
            and last_reject.code == Code.INSUFFICIENT_LIQUIDITY
            and self._began >= (self._short_at or LATEST)
        ):
            raise cannot_take(last_reject, retryable=False)
        if self._began >= self._idle_at:
            seconds = self._timing.idle_timeout // SECOND
            last = f"; the last answer was {self._last_reject}" if self._last_reject else ""
            raise SendingFailed(f"Nothing has arrived for {seconds} seconds{last}.")

    def learn(self, answers: Sequence[Answer]) -> None:
        """Enlarges rounds until the first congestion, then halves them, after a pause."""
        now, timing = monotonic(), self._timing
        for answer in answers:
            if isinstance(answer.outcome, Fulfill):
                self._idle_at = now + timing.idle_timeout
            if not isinstance(answer.outcome, Reject):
                self._short_at = None
            self._last_reject = answer.reject if answer.reject.code else self._last_reject
        if any(answer.congested for answer in answers):
            self.size, self._pause = max(self.size // 2, 1), timing.next_pause(self._pause)
        else:
            self.size, self._pause = min(self.size * 4, timing.largest_round), 0
        self._ready_at = max(self._began + len(answers) * timing.interval, now + self._pause)


class Progress:
    """What a plan has sent, delivered and left `unresolved` (of unknown outcome), and its next packets."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.sent = 0
        self.delivered = 0
        self.unresolved = 0
        self._asks_left = 0 if plan.sends_all else TIMES_ASKED
        self._bounds: RateBounds = plan.path
        self._max_packet = plan.path.max_packet
        self._may_arrive = 0  # how much may have arrived of the unresolved amount
        self._tried = 0  # the largest amount sent
        self._too_small = 0  # the largest amount that rounding reduced to nothing

    @property
    def asks(self) -> bool:
        """Whether the next packet is to move nothing, but to show what it would deliver."""
        return self._asks_left > 0

    @property
    def path(self) -> ProbedPath:
        """The path at the rate of the last answers; as it was probed if by these nothing would arrive."""
        path, bounds = self.plan.path, self._bounds
        return ProbedPath(bounds.low, bounds.high, path.max_packet) if bounds.low else path

    def next_round(self, size: int) -> Sequence[PlannedPacket]:
        """Up to `size` packets to be sent at once. No packet while the unresolved ones may suffice, or when rounding
        would take the rest and the promise is kept.

        Raises SendingFailed if no packet can deliver its minimum at this rate.
        """
        packets: list[PlannedPacket] = []
        try:
            while len(packets) < size and (packet := self._next(packets)):
                packets.append(packet)
        except SendingFailed:  # outstanding answers may change it
            if not packets and not self.unresolved and self.delivered < self.plan.min_delivery:
                raise
        return packets

    def count(self, packet: PlannedPacket, answer: Answer) -> None:
        """Counts a packet's outcome, and learns the path's rate from it.

        A rejected packet moved nothing, so its amount can be sent again. A fulfilled one delivered at least the
        minimum, whatever the receiver reports.
        """
        if isinstance(answer.outcome, Fulfill):
            self.sent += packet.amount
            self.delivered += max(answer.arrived, packet.minimum)
        elif isinstance(answer.outcome, Unanswered):
            self.unresolved += packet.amount
            self._may_arrive += packet.most
        self.learn(packet, answer)

    def learn(self, packet: PlannedPacket, answer: Answer) -> None:
        """Learns the path's rate and largest packet from the answer to a packet, which may have moved nothing."""
        self._tried = max(self._tried, packet.amount)
        self._asks_left = 0 if answer.stream else max(self._asks_left - 1, 0)
        if (smaller := answer.smaller(packet.amount)) is not None:
            self._max_packet = min(self._max_packet, smaller)
        is_nothing = answer.too_small or (answer.stream is not None and not answer.arrived)
        # If a link's unit is worth very many of the sender's, R01 means that a larger amount may pass.
        may_grow = answer.too_small and not self.plan.sends_all and packet.amount < self._max_packet
        if may_grow or (is_nothing and is_small(packet.amount, packet.minimum)):
            self._too_small = max(self._too_small, packet.amount)
        elif answer.stream:
            self._bounds = self._bounds.learn(packet.amount, answer.arrived)

    def result(self, failure: SendingFailed | None) -> Result:
        """The final result, with the failure that stopped the run, if any."""
        plan = self.plan
        if plan.sends_all:
            complete = self.sent == plan.max_source
        else:
            complete = self.delivered >= plan.min_delivery and not self.unresolved
        if failure and failure.retryable and complete:
            failure = None  # nothing is left for another attempt
        if not failure and not self.unresolved and self.delivered < plan.min_delivery:
            failure = SendingFailed(
                f"All that may be spent is spent, and {self.delivered} of {plan.min_delivery} have arrived."
            )
        return Result(self.sent, self.delivered, self.unresolved, failure)

    def _next(self, before: Sequence[PlannedPacket]) -> PlannedPacket | None:
        """The next packet of a round; None if nothing is left, or the packets before may suffice."""
        available = self.plan.max_source - self.sent - self.unresolved - sum(packet.amount for packet in before)
        if available <= 0:
            return None
        is_alone = not before and not self.unresolved
        if self.plan.sends_all:
            packet = self._sending(available, is_alone)
        elif (missing := self._missing(before)) > 0:
            packet = self._delivering(available, missing, is_alone)
        else:
            return None
        if packet.amount > self._too_small:
            if self._bounds.least(packet.amount) >= packet.minimum:
                return packet
            without_lost_units = sendable(packet.amount, self._bounds.low, self.plan.min_rate)
            if self._too_small < without_lost_units < packet.amount:
                return self._packet(without_lost_units, rounded_up(without_lost_units, self.plan.min_rate))
            may_deliver = packet.most >= packet.minimum
            # All the rest may be worth one more unit of a link than the amounts tried.
            is_untried_rest = 0 < self._tried < packet.amount == available
            if (may_deliver or is_untried_rest) and not before:
                return packet  # trying is free, and a rejection makes the bounds exact
        if is_small(available, self.plan.min_delivery - self.delivered):
            raise SendingFailed("Rounding on the path takes more of what is left than may be lost.")
        raise SendingFailed("The path no longer delivers the minimum exchange rate of the payment.")

    def _missing(self, before: Sequence[PlannedPacket]) -> int:
        """What is still missing if everything arrives that may."""
        arriving = self._may_arrive + sum(packet.most for packet in before)
        return self.plan.min_delivery - self.delivered - arriving

    def _sending(self, available: int, is_alone: bool) -> PlannedPacket:
        amount, rate = self._share(available), self.plan.min_rate
        if is_alone and amount == available:  # the last one: a unit may be lost to rounding
            promised = self.plan.min_delivery - self.delivered
            return self._packet(amount, max(rounded_up(amount - 1, rate), promised))
        return self._packet(amount, rounded_up(amount, rate))

    def _delivering(self, available: int, missing: int, is_alone: bool) -> PlannedPacket:
        if not self._bounds.low:
            raise SendingFailed("The path delivers nothing of what is sent.")
        # An eighth more than what was too small, to need few tries if a unit on the way is worth many.
        needed = max(ceil(missing / self._bounds.low), self._too_small + 1 + self._too_small // 8)
        amount = min(needed, available, self._max_packet)
        if is_alone and amount == needed:
            return self._packet(amount, missing)
        return self._packet(amount, max(rounded_up(amount, self.plan.min_rate), 1))

    def _share(self, available: int) -> int:
        """A full packet, or half of the available amount if rounding would otherwise take the rest."""
        amount = min(available, self._max_packet)
        rest, half = available - amount, available - available // 2
        if 0 < rest < amount and not self._passes(rest) and self._passes(half):
            return half
        return amount

    def _passes(self, amount: int) -> bool:
        return sendable(amount, self._bounds.low, self.plan.min_rate) == amount

    def _packet(self, amount: int, minimum: int) -> PlannedPacket:
        return PlannedPacket(amount, minimum, self._bounds.most(amount))
