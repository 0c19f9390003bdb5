"""A path of connectors with a STREAM receiver at its end, in memory: a PacketSender that logs outcomes.

Its event loop has a number for its time, so that nothing waits.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from fractions import Fraction
from math import floor
from typing import Any, NamedTuple, TypeVar

from payres.core.protocol.amounts import Asset
from payres.interledger.oer import decode_prepare, decode_reply, encode_packet
from payres.interledger.packets import Code, Fulfill, Outcome, Prepare, Reject, Reply, Unanswered, too_large_data
from payres.interledger.sending.connection import Destination, StreamConnection
from payres.interledger.sending.timing import Timing, monotonic
from payres.interledger.stream import ConnectionClose, Frame, PacketType, SharedSecret, StreamPacket

T = TypeVar("T")
SECRET = bytes(range(32))
ADDRESS = "test.receiver.token"
CONNECTOR = "test.connector"
USD = Asset("USD", 2)
TIMING = Timing()


class Entry(NamedTuple):
    """A packet as it was sent, and what came back; `stream` is what only the two ends can read."""

    at: int
    prepare: Prepare
    stream: StreamPacket
    arrived: int
    outcome: Outcome


class Receiver:
    """Takes what is not less than it should be; it says of other packets that they are not, with the code given."""

    def __init__(self, unfulfillable: str = Code.APPLICATION_ERROR, frames: tuple[Frame, ...] = ()) -> None:
        self.secret = SharedSecret(SECRET)
        self.received = self.last = 0
        self.unfulfillable = unfulfillable
        self.frames = frames

    def answer(self, prepare: Prepare, arrived: int) -> Reply:
        packet = self.secret.decrypt_packet(prepare.data)
        fulfillment = self.secret.fulfillment(prepare.data)
        code, frames = self.unfulfillable, self.frames
        if any(isinstance(frame, ConnectionClose) for frame in packet.frames):
            code, frames = Code.APPLICATION_ERROR, (ConnectionClose(),)
        elif arrived < packet.prepare_amount:
            code = Code.APPLICATION_ERROR
        elif Fulfill(fulfillment).fits(prepare.condition):
            self.received += arrived
            self.last = arrived
            return Fulfill(fulfillment, self._say(packet, PacketType.FULFILL, arrived, frames))
        return Reject(code, data=self._say(packet, PacketType.REJECT, arrived, frames))

    def _say(self, packet: StreamPacket, kind: PacketType, arrived: int, frames: tuple[Frame, ...]) -> bytes:
        return self.secret.encrypt_packet(StreamPacket(packet.sequence, kind, arrived, frames))


class SimulatedPath:
    """Delivers `rate` of each amount, rounded down, and rejects packets above `max_packet`.

    Tests replace its methods to make it misbehave. `fulfilled`, `lost` and `in_flight` are the sender's amounts.
    """

    def __init__(
        self,
        rate: Fraction = Fraction(1),
        max_packet: int | None = None,
        *,
        delay: float = 0,
        told: bool = True,
        receiver: Receiver | None = None,
    ) -> None:
        self.rate_now = rate
        self.max_packet = max_packet
        self.delay = delay
        self.told = told
        self.receiver = receiver or Receiver()
        self.log: list[Entry] = []
        self.fulfilled = self.delivered = self.lost = self.in_flight = 0
        self.packets = self.most_packets = self.most_at_stake = 0

    def rate(self) -> Fraction:
        return self.rate_now

    def exchanged(self, amount: int) -> int:
        """What arrives of an amount."""
        return floor(amount * self.rate())

    async def transit(self, prepare: Prepare) -> None:
        """What happens on the way there and back again."""
        if self.delay:
            await asyncio.sleep(self.delay)

    def on_the_way(self, prepare: Prepare) -> Reject | None:
        """What a connector says against the packet."""
        if self.max_packet is None or prepare.amount <= self.max_packet:
            return None
        data = too_large_data(prepare.amount, self.max_packet) if self.told else b""
        return Reject(Code.AMOUNT_TOO_LARGE, CONNECTOR, "too large", data)

    def on_the_way_back(self, reply: Reply) -> Outcome:
        """What becomes of the receiver's reply."""
        return reply

    async def ask(self, prepare: Prepare) -> Outcome:
        return await self._carry(prepare)

    async def pay(self, prepare: Prepare, minimum: int, delivered: Callable[[Fulfill], int]) -> Outcome:
        self.in_flight += prepare.amount
        self.packets += 1
        self.most_packets = max(self.most_packets, self.packets)
        self.most_at_stake = max(self.most_at_stake, self.fulfilled + self.lost + self.in_flight)
        try:
            outcome = await self._carry(prepare)
        finally:
            self.in_flight -= prepare.amount
            self.packets -= 1
        if isinstance(outcome, Fulfill):
            assert outcome.fits(prepare.condition)
            self.fulfilled += prepare.amount
            self.delivered += delivered(outcome)
        elif isinstance(outcome, Unanswered):
            self.lost += prepare.amount
        return outcome

    async def _carry(self, prepare: Prepare) -> Outcome:
        sent_at = monotonic()
        assert prepare.destination == ADDRESS
        await self.transit(prepare)
        arriving = decode_prepare(encode_packet(prepare))
        arrived = self.exchanged(prepare.amount)
        outcome: Outcome | None = self.on_the_way(prepare)
        if outcome is None:
            outcome = self.on_the_way_back(self.receiver.answer(arriving, arrived))
        if not isinstance(outcome, Unanswered):
            outcome = decode_reply(encode_packet(outcome))
        stream = self.receiver.secret.decrypt_packet(prepare.data)
        self.log.append(Entry(sent_at, prepare, stream, arrived, outcome))
        return outcome


class TwoExchanges(SimulatedPath):
    """Cents to euro cents to yen: each connector rounds down to whole units, and rejects what is worth nothing."""

    def exchanged(self, amount: int) -> int:
        return amount * 92 // 100 * 160 // 100

    def on_the_way(self, prepare: Prepare) -> Reject | None:
        if prepare.amount and not prepare.amount * 92 // 100:
            return Reject(Code.INSUFFICIENT_SOURCE_AMOUNT, CONNECTOR)
        return super().on_the_way(prepare)


def connect(path: SimulatedPath, asset: Asset = USD, timing: Timing = TIMING) -> StreamConnection:
    return StreamConnection(path, Destination(ADDRESS, SECRET, asset), timing)


class _Selector(selectors.DefaultSelector):
    elapsed = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everybody waits, and nothing will ever happen")
        self.elapsed += max(timeout, 0)
        return super().select(0)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Its time begins at zero and passes only while nothing is left to do."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.elapsed


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs to the end in no time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
