"""The receiving end of STREAM (RFC 29): what a Prepare for one of our addresses is answered with.

Nothing here moves money or looks anything up: a packet that would move some comes back as `Payable`, and whoever
delivers the money then takes its `fulfill` or declines it.
"""

import os
from collections.abc import Callable
from typing import Final

import msgspec

from payres.interledger.credentials import Opened
from payres.interledger.frames import (
    CloseCode,
    ConnectionAssetDetails,
    ConnectionClose,
    ConnectionNewAddress,
    Frame,
    PacketType,
    StreamPacket,
)
from payres.interledger.oer import CodecError
from payres.interledger.packets import Code, Fulfill, Prepare, Reject, fulfills
from payres.interledger.stream import IV_BYTES

CLOSE: Final = ConnectionClose(CloseCode.NO_ERROR, "")


class Payable(msgspec.Struct, frozen=True):
    """Money that may be delivered: `fulfill` answers if it is, `decline` if it never will be."""

    fulfill: Fulfill
    reply: "_Reply"

    def decline(self) -> Reject:
        """No, and no more packets either."""
        return self.reply.reject(CLOSE)


class Receiver:
    """Answers for the node with this ILP address; `random_bytes` gives the IVs of the answers."""

    def __init__(self, ilp_address: str, random_bytes: Callable[[int], bytes] = os.urandom) -> None:
        self._ilp_address = ilp_address
        self._random_bytes = random_bytes

    def receive(self, prepare: Prepare, arrived: int, opened: Opened) -> Payable | Fulfill | Reject:
        """What becomes of a packet of which `arrived` reaches us, in the asset that its address names."""
        try:
            asked = opened.shared_secret.open_packet(prepare.data)
        except CodecError:
            return self._refuse(Code.UNEXPECTED_PAYMENT)
        if asked.packet_type != PacketType.PREPARE:
            return self._refuse(Code.BAD_REQUEST)
        reply = _Reply(self._ilp_address, opened, prepare, asked.sequence, arrived, self._random_bytes)
        if any(isinstance(frame, ConnectionClose) for frame in asked.frames):
            return reply.reject(CLOSE)
        details = _asset_details(asked, opened)
        fulfillment = opened.shared_secret.fulfillment(prepare.data)
        # One code for all that is understood and not fulfilled: there are senders that give up at any other.
        if arrived < asked.prepare_amount or not fulfills(fulfillment, prepare.condition):
            return reply.reject(*details)
        fulfill = reply.fulfill(fulfillment, *details)
        return Payable(fulfill, reply) if arrived else fulfill

    def _refuse(self, code: Code) -> Reject:
        return Reject(code, self._ilp_address)


class _Reply(msgspec.Struct, frozen=True):
    """Seals answers to one packet; each tells how much arrived, also when it is not taken."""

    ilp_address: str
    opened: Opened
    prepare: Prepare
    sequence: int
    arrived: int
    random_bytes: Callable[[int], bytes]

    def fulfill(self, fulfillment: bytes, *frames: Frame) -> Fulfill:
        return Fulfill(fulfillment, self._sealed(PacketType.FULFILL, frames))

    def reject(self, *frames: Frame) -> Reject:
        data = self._sealed(PacketType.REJECT, frames)
        return Reject(Code.APPLICATION_ERROR, self.ilp_address, data=data)

    def _sealed(self, kind: PacketType, frames: tuple[Frame, ...]) -> bytes:
        packet = StreamPacket(self.sequence, kind, self.arrived, frames)
        return self.opened.shared_secret.seal_packet(packet, self.random_bytes(IV_BYTES))


def _asset_details(asked: StreamPacket, opened: Opened) -> tuple[Frame, ...]:
    """The asset, for a sender that introduces itself: that is how it asks what it pays in."""
    introduced = any(isinstance(frame, ConnectionNewAddress) for frame in asked.frames)
    if not introduced or opened.asset is None:
        return ()
    return (ConnectionAssetDetails(opened.asset.code, opened.asset.scale),)
