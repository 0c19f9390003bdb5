"""The sending end of a STREAM connection (RFC 29): its packets, and the meaning of their outcomes."""

import asyncio
import hashlib
import logging
import os
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from payres.core.protocol.amounts import MAX_LEDGER, Asset
from payres.core.protocol.clock import SECOND
from payres.interledger.oer import CodecError
from payres.interledger.packets import (
    HASH_BYTES,
    MAX_QUOTED,
    Code,
    Fulfill,
    Outcome,
    Prepare,
    Reject,
    Reply,
    Unanswered,
)
from payres.interledger.sending.timing import Timing
from payres.interledger.stream import (
    ConnectionAssetDetails,
    ConnectionClose,
    ConnectionMaxData,
    ConnectionMaxStreamId,
    Frame,
    PacketType,
    SharedSecret,
    StreamClose,
    StreamMaxMoney,
    StreamMoney,
    StreamPacket,
)

log = logging.getLogger("payres.interledger")

STREAM_ID: Final = 1  # the sending end opens odd streams; one is enough

# The receiver may neither open streams of its own nor send bytes: the connection carries money only.
_LIMITS: Final[tuple[Frame, ...]] = (ConnectionMaxStreamId(STREAM_ID), ConnectionMaxData(0))
_MONEY: Final = StreamMoney(STREAM_ID, shares=1)

# Another packet may pass: this one had too little for the receiver, was too large for the path, or was unfulfillable,
# which receivers answer with any of the first three codes.
_TOLERATED: Final = {
    Code.APPLICATION_ERROR,
    Code.INSUFFICIENT_DESTINATION_AMOUNT,
    Code.WRONG_CONDITION,
    Code.AMOUNT_TOO_LARGE,
    Code.INSUFFICIENT_SOURCE_AMOUNT,
}


class SendingFailed(Exception):
    """A payment cannot be quoted or continued; `sentence` says why.

    `retryable` if a later attempt with the rest may succeed.
    """

    def __init__(self, sentence: str, *, retryable: bool = True) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.retryable = retryable


class PacketSender(Protocol):
    """Sends the packets of one payment, and sets their expiry.

    It answers packets that it does not send with a Reject of its own.
    """

    async def ask(self, prepare: Prepare) -> Outcome:
        """Sends a packet that moves no money: it is unfulfillable, or its amount is zero."""
        ...

    async def pay(self, prepare: Prepare, minimum: int, delivered: Callable[[Fulfill], int]) -> Outcome:
        """Sends a money packet, recorded before it leaves; a fulfilled amount is posted before this returns. The
        receiver fulfills it only if the minimum arrives.

        A Fulfill that does not match the condition becomes a Reject with WRONG_CONDITION. `delivered` reads from the
        Fulfill how much the receiver reports as arrived, in the destination's units and at most MAX_LEDGER; it never
        raises.
        """
        ...


class Destination(msgspec.Struct, frozen=True):
    """The receiving end of a STREAM connection; the secret has 32 bytes."""

    ilp_address: str
    shared_secret: bytes
    asset: Asset


class Answer(msgspec.Struct, frozen=True):
    """The outcome of a packet, and the receiver's STREAM packet in it, if it answers this packet."""

    outcome: Outcome
    stream: StreamPacket | None = None

    @property
    def arrived(self) -> int:
        """How much arrived according to the receiver; 0 if it does not say."""
        return self.stream.prepare_amount if self.stream else 0

    @property
    def frames(self) -> tuple[Frame, ...]:
        """The frames of the receiver's answer."""
        return self.stream.frames if self.stream else ()

    @property
    def reject(self) -> Reject:
        """The Reject, or one with an empty code."""
        return self.outcome if isinstance(self.outcome, Reject) else Reject("")

    @property
    def congested(self) -> bool:
        """Whether the path was overloaded: a temporary error (T), or no reply."""
        return isinstance(self.outcome, Unanswered) or self.reject.code.startswith("T")

    @property
    def too_small(self) -> bool:
        """Whether a connector found the amount worth nothing in the next asset."""
        return self.reject.code == Code.INSUFFICIENT_SOURCE_AMOUNT

    def __str__(self) -> str:
        why = self.outcome.why if isinstance(self.outcome, Unanswered) else str(self.reject) or "a Fulfill"
        return f"{why}; the receiver says: {self.stream}" if self.stream else why

    def smaller(self, amount: int) -> int | None:
        """A smaller amount to try after AMOUNT_TOO_LARGE for `amount`, 0 if nothing passes; None for any other outcome.

        Most connectors report the received amount and their maximum (RFC 27), in their units, so only the ratio counts.
        Without that, or if it is contradictory, it is a tenth.
        """
        if self.reject.code != Code.AMOUNT_TOO_LARGE:
            return None
        received, largest = self.reject.too_large or (0, 0)
        return amount * largest // received if received > largest else max(amount // 10, min(amount - 1, 1))


class StreamConnection:
    """A connection to `destination` through `packets`, which are numbered from 0.

    `is_kept` says whether an answer had frames: receivers that keep state for a connection announce their limits in
    them. `probed_until` (by `monotonic`) is when a quote must be ready; unless set before, it is the `probe_timeout`
    after the first packet.
    """

    is_kept = False
    probed_until: int | None = None

    def __init__(self, packets: PacketSender, destination: Destination, timing: Timing) -> None:
        self.destination = destination
        self.timing = timing
        self._packets = packets
        self._secret = SharedSecret(destination.shared_secret)
        self._sequence = 0
        self._limits = _LIMITS

    def begin(self) -> None:
        """Begins the probe, the payment or the close: sends the limits again, because the receiver stores nothing."""
        self._limits = _LIMITS

    async def ask(self, amount: int, frames: tuple[Frame, ...] = ()) -> Answer:
        """Sends an unfulfillable packet; the answer says how much of `amount` would arrive."""
        sequence, data = self._encrypted(0, frames)
        answer = self._read(await self._packets.ask(self._prepare(amount, os.urandom(HASH_BYTES), data)), sequence)
        log.debug("a probe of %d, sequence %d, was answered with %s", amount, sequence, answer)
        return answer

    async def pay(self, amount: int, minimum: int) -> Answer:
        """Sends `amount`, which the receiver may accept if at least `minimum` arrives."""
        sequence, data = self._encrypted(minimum, (_MONEY,))
        condition = hashlib.sha256(self._secret.fulfillment(data)).digest()

        def delivered(fulfill: Fulfill) -> int:
            stream = self._open(fulfill, sequence)
            return max(minimum, min(stream.prepare_amount, MAX_LEDGER)) if stream else minimum

        return self._read(await self._packets.pay(self._prepare(amount, condition, data), minimum, delivered), sequence)

    def _encrypted(self, minimum: int, frames: tuple[Frame, ...]) -> tuple[int, bytes]:
        sequence = self._sequence
        self._sequence += 1
        packet = StreamPacket(sequence, PacketType.PREPARE, minimum, self._limits + frames)
        return sequence, self._secret.encrypt_packet(packet)

    def _prepare(self, amount: int, condition: bytes, data: bytes) -> Prepare:
        return Prepare(amount, 0, condition, self.destination.ilp_address, data)

    def _read(self, outcome: Outcome, sequence: int) -> Answer:
        answer = Answer(outcome, None if isinstance(outcome, Unanswered) else self._open(outcome, sequence))
        if answer.stream or isinstance(outcome, Fulfill):  # only the receiver can fulfill or encrypt an answer
            self._limits = ()
        if answer.frames:
            self.is_kept = True
        return answer

    def _open(self, reply: Reply, sequence: int) -> StreamPacket | None:
        """The receiver's STREAM packet in a reply, unless it answers another packet or contradicts the reply.

        A connector may have turned the receiver's Fulfill into a Reject, but never the reverse.
        """
        try:
            packet = self._secret.decrypt_packet(reply.data)
        except CodecError:
            return None
        turned = packet.packet_type == PacketType.FULFILL
        fits = turned or (packet.packet_type == PacketType.REJECT and isinstance(reply, Reject))
        return packet if fits and packet.sequence == sequence else None


async def close(connection: StreamConnection) -> None:
    """Tells the receiver that no more packets come. No money depends on it."""
    connection.begin()
    try:
        async with asyncio.timeout(connection.timing.close_timeout / SECOND):
            await connection.ask(0, (ConnectionClose(),))
    except Exception as error:
        log.info("a connection was not closed: %s", str(error) or "no answer in time")


def stop_reason(
    answer: Answer, amount: int, asset: Asset, minimum: int = 0, min_delivery: int = 0
) -> SendingFailed | None:
    """Why no further packet should be sent after this answer to a packet of `amount`; None if there is no reason.

    `asset` is the receiver's known asset. At least `minimum` of the packet had to arrive; `min_delivery` is the total
    that the receiver must accept.
    """
    if isinstance(answer.outcome, Fulfill) and (answer.stream is None or answer.arrived < minimum):
        sentence = "The receiver has taken a packet without saying that enough of it has arrived."
        return SendingFailed(sentence, retryable=False)
    for frame in answer.frames:
        if failure := _failure_of_frame(frame, asset, min_delivery):
            return failure
    if answer.smaller(amount) == 0:
        return SendingFailed("A connector on the path takes no packet, however small.")
    if not answer.reject.code or answer.congested or answer.reject.code in _TOLERATED:
        return None
    return SendingFailed(f"The payment was refused with {answer.reject}.")


def cannot_take(reject: Reject, *, retryable: bool = True) -> SendingFailed:
    """The failure if connectors lack the credit or liquidity to pass an amount on."""
    return SendingFailed(f"The path cannot take so much now; the last answer was {reject}.", retryable=retryable)


def _failure_of_frame(frame: Frame, asset: Asset, min_delivery: int) -> SendingFailed | None:
    if isinstance(frame, ConnectionClose) or (isinstance(frame, StreamClose) and frame.stream_id == STREAM_ID):
        said = f": {frame.message[:MAX_QUOTED]!r}" if frame.message else ""
        return SendingFailed(f"The receiver closed the connection with code {frame.code}{said}.")
    if isinstance(frame, StreamMaxMoney) and frame.stream_id == STREAM_ID and frame.receive_max < min_delivery:
        sentence = (
            f"The receiver takes {frame.receive_max} units at most, less than the {min_delivery} to be delivered."
        )
        return SendingFailed(sentence, retryable=False)
    if isinstance(frame, ConnectionAssetDetails) and Asset(frame.code, frame.scale) != asset:
        sentence = (
            f"The receiver counts in {frame.code[:MAX_QUOTED]!r} with scale {frame.scale},"
            f" not in {asset.code} with scale {asset.scale}."
        )
        return SendingFailed(sentence, retryable=False)
    return None
