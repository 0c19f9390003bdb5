"""What a sender sends through, whom it sends to, and one STREAM connection as its sending end sees it (RFC 29)."""

import asyncio
import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

import msgspec

from payres.amounts import MAX_LEDGER, Asset
from payres.clock import SECOND
from payres.interledger.frames import (
    CloseCode,
    ConnectionClose,
    ConnectionMaxData,
    ConnectionMaxStreamId,
    Frame,
    PacketType,
    StreamMoney,
    StreamPacket,
)
from payres.interledger.oer import CodecError
from payres.interledger.packets import HASH_BYTES, Fulfill, Prepare, Reject
from payres.interledger.sending.timing import Timing
from payres.interledger.stream import IV_BYTES, SharedSecret

STREAM_ID: Final = 1  # the sending end opens odd streams; one is enough
MAX_PACKETS: Final = 2**31  # under one key, or random IVs might repeat (RFC 29)

# The receiver may neither open streams of its own nor send bytes: the connection is for money alone.
_LIMITS: Final[tuple[Frame, ...]] = (ConnectionMaxStreamId(STREAM_ID), ConnectionMaxData(0))
_MONEY: Final = StreamMoney(STREAM_ID, shares=1)


class Lost(msgspec.Struct, frozen=True):
    """The packet was sent and nobody knows what became of it: it may have been fulfilled."""

    why: str


Outcome = Fulfill | Reject | Lost


class Outbound(Protocol):
    """Sends packets on behalf of one payment. What it refuses to send it answers with a Reject of its own."""

    async def ask(self, prepare: Prepare) -> Outcome:
        """Sends a packet that moves no money: nobody can fulfill it, or its amount is zero."""
        ...

    async def pay(self, prepare: Prepare, fulfillment: bytes, delivered: Callable[[Fulfill], int]) -> Outcome:
        """Sends a packet with money, recorded before it leaves; what was fulfilled is posted before this returns.

        A Fulfill with anything but `fulfillment` comes back as a Reject with WRONG_CONDITION. `delivered` reads from
        the Fulfill how much arrived, in the destination's units and at most MAX_LEDGER; it never raises. This is the
        receiver's word, and anything up to that.
        """
        ...


class Destination(msgspec.Struct, frozen=True):
    """The receiving end of a STREAM connection; the secret has 32 bytes."""

    ilp_address: str
    shared_secret: bytes
    asset: Asset


class Answer(msgspec.Struct, frozen=True):
    """The outcome of a packet with the receiver's own words, if they are there and answer this very packet."""

    outcome: Outcome
    stream: StreamPacket | None = None

    @property
    def authentic(self) -> bool:
        """Whether the packet has reached the receiver: nobody else can fulfill it or seal an answer."""
        return self.stream is not None or isinstance(self.outcome, Fulfill)

    @property
    def arrived(self) -> int:
        """How much has arrived, as the receiver says; nothing when it does not say."""
        return self.stream.prepare_amount if self.stream else 0

    @property
    def frames(self) -> tuple[Frame, ...]:
        """What else the receiver says."""
        return self.stream.frames if self.stream else ()


class Connection:
    """A connection to `destination` through `outbound`. Its packets are numbered from 0 on, whatever they are for."""

    def __init__(
        self,
        outbound: Outbound,
        destination: Destination,
        timing: Timing,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.destination = destination
        self.timing = timing
        self._outbound = outbound
        self._secret = SharedSecret(destination.shared_secret)
        self._random_bytes = random_bytes
        self._sequence = 0
        self._limits = _LIMITS

    @property
    def exhausted(self) -> bool:
        """Whether no more packets may be sealed with this shared secret, save one that closes the connection."""
        return self._sequence >= MAX_PACKETS - 1

    def begin(self) -> None:
        """Begins the probe, the payment or the close: the receiver, which keeps nothing, hears the limits again."""
        self._limits = _LIMITS

    async def ask(self, amount: int, frames: tuple[Frame, ...] = ()) -> Answer:
        """Sends a packet that nobody can fulfill; the answer tells how much of `amount` would arrive."""
        sequence, data = self._seal(0, frames)
        outcome = await self._outbound.ask(self._prepare(amount, self._random_bytes(HASH_BYTES), data))
        return self._read(outcome, sequence)

    async def pay(self, amount: int, minimum: int) -> Answer:
        """Sends `amount`, which the receiver may take if at least `minimum` arrives."""
        sequence, data = self._seal(minimum, (_MONEY,))
        fulfillment = self._secret.fulfillment(data)

        def delivered(fulfill: Fulfill) -> int:
            stream = self._open(fulfill, sequence)
            return max(minimum, min(stream.prepare_amount, MAX_LEDGER)) if stream else minimum

        prepare = self._prepare(amount, hashlib.sha256(fulfillment).digest(), data)
        return self._read(await self._outbound.pay(prepare, fulfillment, delivered), sequence)

    def _seal(self, minimum: int, frames: tuple[Frame, ...]) -> tuple[int, bytes]:
        sequence = self._sequence
        self._sequence += 1
        packet = StreamPacket(sequence, PacketType.PREPARE, minimum, self._limits + frames)
        return sequence, self._secret.seal_packet(packet, self._random_bytes(IV_BYTES))

    def _prepare(self, amount: int, condition: bytes, data: bytes) -> Prepare:
        expires_at = self.timing.clock.now() + self.timing.packet_lifetime
        return Prepare(amount, expires_at, condition, self.destination.ilp_address, data)

    def _read(self, outcome: Outcome, sequence: int) -> Answer:
        answer = Answer(outcome, None if isinstance(outcome, Lost) else self._open(outcome, sequence))
        if answer.authentic:
            self._limits = ()
        return answer

    def _open(self, reply: Fulfill | Reject, sequence: int) -> StreamPacket | None:
        """The receiver's words in a reply, unless they answer another packet or contradict the reply.

        A connector may have turned the receiver's Fulfill into a Reject, but never the other way round.
        """
        try:
            packet = self._secret.open_packet(reply.data)
        except CodecError:
            return None
        turned = packet.packet_type == PacketType.FULFILL
        fits = turned or (packet.packet_type == PacketType.REJECT and isinstance(reply, Reject))
        return packet if fits and packet.sequence == sequence else None


async def close(connection: Connection) -> None:
    """Tells the receiver that no more packets come. Whether it hears that makes no difference to the money."""
    connection.begin()
    with suppress(TimeoutError):
        async with asyncio.timeout(connection.timing.close_timeout / SECOND):
            await connection.ask(0, (ConnectionClose(CloseCode.NO_ERROR, ""),))
