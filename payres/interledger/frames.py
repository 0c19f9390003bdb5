"""STREAM packets (RFC 29): what the two ends of a payment tell each other in the sealed data of ILP packets.

A packet is a sequence number, an amount and frames; each frame is a type, a length and fields as the table lists them.
"""

import hmac
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final, NamedTuple

import msgspec

from payres.interledger import oer
from payres.interledger.oer import CodecError, Reader

VERSION: Final = 1
RECEIPT_VERSION: Final = 1
RECEIPT_NONCE_BYTES: Final = 16


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
    """The sender's own ILP address, or nothing when it has none; nobody has checked it."""

    address: str


class ConnectionMaxData(msgspec.Struct, frozen=True):
    """How many bytes may be sent in all."""

    max_offset: int


class ConnectionDataBlocked(msgspec.Struct, frozen=True):
    """There are more bytes to send than ConnectionMaxData allows: up to this offset."""

    max_offset: int


class ConnectionMaxStreamId(msgspec.Struct, frozen=True):
    """The highest stream that may be opened."""

    max_stream_id: int


class ConnectionStreamIdBlocked(msgspec.Struct, frozen=True):
    """A stream above ConnectionMaxStreamId is wanted: this one."""

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
    """How much the stream takes and how much it has, in the units of the author."""

    stream_id: int
    receive_max: int
    total_received: int


class StreamMoneyBlocked(msgspec.Struct, frozen=True):
    """How much the stream would send and how much it has sent, in the units of the author."""

    stream_id: int
    send_max: int
    total_sent: int


class StreamData(msgspec.Struct, frozen=True):
    """Bytes of a stream from an offset on."""

    stream_id: int
    offset: int
    data: bytes


class StreamMaxData(msgspec.Struct, frozen=True):
    """How many bytes of the stream may be sent."""

    stream_id: int
    max_offset: int


class StreamDataBlocked(msgspec.Struct, frozen=True):
    """The stream has more bytes to send than StreamMaxData allows: up to this offset."""

    stream_id: int
    max_offset: int


class StreamReceipt(msgspec.Struct, frozen=True):
    """The receiver's proof of what the stream has received, for a third party (RFC 39)."""

    stream_id: int
    receipt: bytes


Frame = (
    ConnectionClose
    | ConnectionNewAddress
    | ConnectionMaxData
    | ConnectionDataBlocked
    | ConnectionMaxStreamId
    | ConnectionStreamIdBlocked
    | ConnectionAssetDetails
    | StreamClose
    | StreamMoney
    | StreamMaxMoney
    | StreamMoneyBlocked
    | StreamData
    | StreamMaxData
    | StreamDataBlocked
    | StreamReceipt
)


class StreamPacket(msgspec.Struct, frozen=True):
    """One message of one end to the other.

    `prepare_amount` is the least that may arrive in a Prepare, and what did arrive in a reply, which repeats the
    `sequence` of its Prepare.
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

# The frames by their type on the wire, with their fields in the order of the structs.
_LAYOUTS: dict[int, tuple[Callable[..., Frame], tuple[_Field, ...]]] = {
    0x01: (ConnectionClose, (_UINT8, _TEXT)),
    0x02: (ConnectionNewAddress, (_TEXT,)),
    0x03: (ConnectionMaxData, (_NUMBER,)),
    0x04: (ConnectionDataBlocked, (_NUMBER,)),
    0x05: (ConnectionMaxStreamId, (_NUMBER,)),
    0x06: (ConnectionStreamIdBlocked, (_NUMBER,)),
    0x07: (ConnectionAssetDetails, (_TEXT, _UINT8)),
    0x10: (StreamClose, (_NUMBER, _UINT8, _TEXT)),
    0x11: (StreamMoney, (_NUMBER, _NUMBER)),
    0x12: (StreamMaxMoney, (_NUMBER, _LIMIT, _NUMBER)),
    0x13: (StreamMoneyBlocked, (_NUMBER, _LIMIT, _NUMBER)),
    0x14: (StreamData, (_NUMBER, _NUMBER, _BYTES)),
    0x15: (StreamMaxData, (_NUMBER, _NUMBER)),
    0x16: (StreamDataBlocked, (_NUMBER, _NUMBER)),
    0x17: (StreamReceipt, (_NUMBER, _BYTES)),
}
_TYPES = {frame: (oer.uint8(number), fields) for number, (frame, fields) in _LAYOUTS.items()}


def encode_stream_packet(packet: StreamPacket) -> bytes:
    """The packet as it is sealed. Raises ValueError when a field cannot be written."""
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
    """Reads an unsealed packet; unknown frames and what follows the last frame are ignored.

    `packet_type` may be any byte: what to do about a wrong one is the receiver's choice. Raises CodecError.
    """
    reader = Reader(data)
    if reader.uint8() != VERSION:
        raise CodecError(f"the STREAM packet has another version than {VERSION}")
    packet_type, sequence, prepare_amount = reader.uint8(), reader.var_uint(), reader.var_uint()
    frames = []
    # The count is anyone's number up to 2^64-1, but each turn takes bytes off the data or ends in an error.
    remaining = reader.var_uint()
    while remaining:
        remaining -= 1
        layout = _LAYOUTS.get(reader.uint8())
        contents = reader.var_octets()
        if layout is not None:
            frames.append(_decode_frame(layout, Reader(contents)))
    return StreamPacket(sequence, packet_type, prepare_amount, tuple(frames))


def _encode_frame(frame: Frame) -> bytes:
    number, fields = _TYPES[type(frame)]
    values = msgspec.structs.astuple(frame)
    return number + oer.var_octets(b"".join([field.write(value) for field, value in zip(fields, values, strict=True)]))


def _decode_frame(layout: tuple[Callable[..., Frame], tuple[_Field, ...]], reader: Reader) -> Frame:
    frame, fields = layout
    return frame(*[field.read(reader) for field in fields])


def make_receipt(nonce: bytes, stream_id: int, total_received: int, secret: bytes) -> bytes:
    """The 58 bytes of a receipt (RFC 39): 26 that tell what was received, and their HMAC-SHA256 under the secret.

    Raises ValueError when a value cannot be written; the stream's number must fit into one byte.
    """
    if len(nonce) != RECEIPT_NONCE_BYTES:
        raise ValueError(f"a receipt's nonce has {RECEIPT_NONCE_BYTES} bytes")
    text = oer.uint8(RECEIPT_VERSION) + nonce + oer.uint8(stream_id) + oer.uint64(total_received)
    return text + hmac.digest(secret, text, "sha256")
