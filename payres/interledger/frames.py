"""STREAM packets (RFC 29): what the two ends of a payment send each other in the encrypted data of ILP packets.

A packet is a sequence number, an amount and frames; each frame is a type, a length and fields as the table lists them.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final, NamedTuple

import msgspec

from payres.interledger import oer
from payres.interledger.oer import CodecError, Reader

VERSION: Final = 1


class PacketType(IntEnum):
    """The ILP packet that its author put the STREAM packet into; connectors may turn a Fulfill into a Reject."""

    PREPARE = 12
    FULFILL = 13
    REJECT = 14


class CloseCode(IntEnum):
    """Why a connection or stream is closed."""

    NO_ERROR = 1
    INTERNAL_ERROR = 2
    ENDPOINT_BUSY = 3
    FLOW_CONTROL_ERROR = 4
    STREAM_ID_ERROR = 5
    STREAM_STATE_ERROR = 6
    FRAME_FORMAT_ERROR = 7
    PROTOCOL_VIOLATION = 8
    APPLICATION_ERROR = 9


class ConnectionClose(msgspec.Struct, frozen=True):
    """The connection ends; `code` is one of CloseCode or unknown."""

    code: int
    message: str


class ConnectionNewAddress(msgspec.Struct, frozen=True):
    """The sender's own ILP address, unchecked; empty when it has none."""

    address: str


class ConnectionMaxData(msgspec.Struct, frozen=True):
    """How many bytes may be sent in all."""

    max_offset: int


class ConnectionMaxStreamId(msgspec.Struct, frozen=True):
    """The highest stream that may be opened."""

    max_stream_id: int


class ConnectionAssetDetails(msgspec.Struct, frozen=True):
    """The asset that the author of the packet counts in."""

    code: str
    scale: int


class StreamClose(msgspec.Struct, frozen=True):
    """A stream ends; `code` is one of CloseCode or unknown."""

    stream_id: int
    code: int
    message: str


class StreamMoney(msgspec.Struct, frozen=True):
    """The packet's money belongs to the streams in the ratio of their shares."""

    stream_id: int
    shares: int


class StreamMaxMoney(msgspec.Struct, frozen=True):
    """How much the stream accepts and how much it has received, in the author's units."""

    stream_id: int
    receive_max: int
    total_received: int


class UnusedFrame(msgspec.Struct, frozen=True):
    """Any other frame of RFC 29 and 39, about bytes, flow control and receipts: parsed, checked and ignored.

    `values` are its fields in the order of the table below.
    """

    number: int
    values: tuple[int | str | bytes, ...]


Frame = (
    ConnectionClose
    | ConnectionNewAddress
    | ConnectionMaxData
    | ConnectionMaxStreamId
    | ConnectionAssetDetails
    | StreamClose
    | StreamMoney
    | StreamMaxMoney
    | UnusedFrame
)


class StreamPacket(msgspec.Struct, frozen=True):
    """A message from one end to the other.

    In a Prepare, `prepare_amount` is the least that may arrive; in a reply it is what arrived, and `sequence` repeats
    that of the Prepare.
    """

    sequence: int
    packet_type: int
    prepare_amount: int
    frames: tuple[Frame, ...] = ()


class _Field(NamedTuple):
    write: Callable[[Any], bytes]
    read: Callable[[Reader], Any]


def _read_limit(reader: Reader) -> int:
    return reader.var_uint(saturate=True)


_UINT8 = _Field(oer.uint8, Reader.uint8)
_NUMBER = _Field(oer.var_uint, Reader.var_uint)
_LIMIT = _Field(oer.var_uint, _read_limit)  # some write "no limit" in more than eight bytes
_TEXT = _Field(oer.var_text, Reader.text_utf8)
_BYTES = _Field(oer.var_octets, Reader.var_octets)

# The fields of every frame by its type on the wire.
_FIELDS: dict[int, tuple[_Field, ...]] = {
    0x01: (_UINT8, _TEXT),
    0x02: (_TEXT,),
    0x03: (_NUMBER,),
    0x04: (_NUMBER,),  # ConnectionDataBlocked: max offset
    0x05: (_NUMBER,),
    0x06: (_NUMBER,),  # ConnectionStreamIdBlocked: max stream id
    0x07: (_TEXT, _UINT8),
    0x10: (_NUMBER, _UINT8, _TEXT),
    0x11: (_NUMBER, _NUMBER),
    0x12: (_NUMBER, _LIMIT, _NUMBER),
    0x13: (_NUMBER, _LIMIT, _NUMBER),  # StreamMoneyBlocked: stream, most to send, total sent
    0x14: (_NUMBER, _NUMBER, _BYTES),  # StreamData: stream, offset, data
    0x15: (_NUMBER, _NUMBER),  # StreamMaxData: stream, max offset
    0x16: (_NUMBER, _NUMBER),  # StreamDataBlocked: stream, max offset
    0x17: (_NUMBER, _BYTES),  # StreamReceipt: stream, receipt (RFC 39)
}
_STRUCTS: dict[int, Callable[..., Frame]] = {
    0x01: ConnectionClose,
    0x02: ConnectionNewAddress,
    0x03: ConnectionMaxData,
    0x05: ConnectionMaxStreamId,
    0x07: ConnectionAssetDetails,
    0x10: StreamClose,
    0x11: StreamMoney,
    0x12: StreamMaxMoney,
}
_NUMBERS = {struct: number for number, struct in _STRUCTS.items()}


def encode_stream_packet(packet: StreamPacket) -> bytes:
    """The packet before it is encrypted. Raises ValueError when a field cannot be written."""
    return b"".join(
        (
            bytes((VERSION, packet.packet_type)),
            oer.var_uint(packet.sequence),
            oer.var_uint(packet.prepare_amount),
            oer.var_uint(len(packet.frames)),
            *map(_encode_frame, packet.frames),
        )
    )


def decode_stream_packet(data: bytes) -> StreamPacket:
    """Reads a decrypted packet; unknown frames and what follows the last frame are ignored.

    `packet_type` may be any byte: what to do about a wrong one is the receiver's choice. Raises CodecError.
    """
    reader = Reader(data)
    if reader.uint8() != VERSION:
        raise CodecError(f"the STREAM packet has another version than {VERSION}")
    packet_type, sequence, prepare_amount = reader.uint8(), reader.var_uint(), reader.var_uint()
    frames: list[Frame] = []
    # The sender chooses the count, up to 2^64-1, but each round consumes bytes or ends in an error.
    remaining = reader.var_uint()
    while remaining:
        remaining -= 1
        number = reader.uint8()
        contents = Reader(reader.var_octets())
        fields = _FIELDS.get(number)
        if fields is not None:
            values = [field.read(contents) for field in fields]
            struct = _STRUCTS.get(number)
            frames.append(struct(*values) if struct else UnusedFrame(number, tuple(values)))
    return StreamPacket(sequence, packet_type, prepare_amount, tuple(frames))


def _encode_frame(frame: Frame) -> bytes:
    if isinstance(frame, UnusedFrame):
        number, values = frame.number, frame.values
    else:
        number, values = _NUMBERS[type(frame)], msgspec.structs.astuple(frame)
    fields = b"".join([field.write(value) for field, value in zip(_FIELDS[number], values, strict=True)])
    return oer.uint8(number) + oer.var_octets(fields)
