"""STREAM packets.

A packet is a sequence number, an amount and frames; each frame is a type, a length and fields. Only the frames below
are read or written; all others, about bytes, flow control and receipts, are skipped like unknown ones.
"""

import hmac
import os
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from payres.interledger import oer
from payres.interledger.oer import CodecError, OctetReader

VERSION: Final = 1
SECRET_BYTES: Final = 32
IV_BYTES: Final = 12
TAG_BYTES: Final = 16


class PacketType(IntEnum):
    """The type of ILP packet that the author sent it in; connectors may turn a Fulfill into a Reject."""

    PREPARE = 12
    FULFILL = 13
    REJECT = 14


class ConnectionClose(msgspec.Struct, frozen=True):
    """The connection ends, by default without an error; `code` is the reason (RFC 29, 5.5)."""

    code: int = 1
    message: str = ""


class ConnectionNewAddress(msgspec.Struct, frozen=True):
    """The sender's own ILP address, not validated; empty if it has none."""

    address: str


class ConnectionMaxData(msgspec.Struct, frozen=True):
    """The total number of bytes that may be sent."""

    max_offset: int


class ConnectionMaxStreamId(msgspec.Struct, frozen=True):
    """The highest stream that may be opened."""

    max_stream_id: int


class ConnectionAssetDetails(msgspec.Struct, frozen=True):
    """The asset of the packet's author."""

    code: str
    scale: int


class StreamClose(msgspec.Struct, frozen=True):
    """A stream ends."""

    stream_id: int
    code: int
    message: str


class StreamMoney(msgspec.Struct, frozen=True):
    """The packet's money is split among the streams in proportion to their shares."""

    stream_id: int
    shares: int


class StreamMaxMoney(msgspec.Struct, frozen=True):
    """How much the stream accepts, and how much it has received, in the author's units."""

    stream_id: int
    receive_max: int
    total_received: int


Frame = (
    ConnectionClose
    | ConnectionNewAddress
    | ConnectionMaxData
    | ConnectionMaxStreamId
    | ConnectionAssetDetails
    | StreamClose
    | StreamMoney
    | StreamMaxMoney
)


class StreamPacket(msgspec.Struct, frozen=True):
    """A message from one end to the other.

    In a Prepare, `prepare_amount` is the minimum that must arrive; in a reply it is the amount that arrived, and
    `sequence` repeats that of the Prepare.
    """

    sequence: int
    packet_type: int
    prepare_amount: int
    frames: tuple[Frame, ...] = ()

    def __str__(self) -> str:
        """The packet's numbers, for the log: texts may be payment details, and are left out."""
        said = [f"sequence {self.sequence}, amount {self.prepare_amount}"]
        for frame in self.frames:
            numbers = (str(value) for value in msgspec.structs.astuple(frame) if isinstance(value, int))
            said.append(f"{type(frame).__name__}({', '.join(numbers)})")
        return ", ".join(said)


_Field = tuple[Callable[[Any], bytes], Callable[[OctetReader], Any]]  # its writer and reader

_UINT8: Final[_Field] = oer.uint8, OctetReader.uint8
_NUMBER: Final[_Field] = oer.var_uint, OctetReader.var_uint
_LIMIT: Final[_Field] = oer.var_uint, lambda reader: reader.var_uint(saturate=True)  # "no limit" may be longer
_TEXT: Final[_Field] = oer.var_text, OctetReader.text

# The frames and their fields by their type on the wire.
_FRAMES: Final[dict[int, tuple[Callable[..., Frame], tuple[_Field, ...]]]] = {
    0x01: (ConnectionClose, (_UINT8, _TEXT)),
    0x02: (ConnectionNewAddress, (_TEXT,)),
    0x03: (ConnectionMaxData, (_NUMBER,)),
    0x05: (ConnectionMaxStreamId, (_NUMBER,)),
    0x07: (ConnectionAssetDetails, (_TEXT, _UINT8)),
    0x10: (StreamClose, (_NUMBER, _UINT8, _TEXT)),
    0x11: (StreamMoney, (_NUMBER, _NUMBER)),
    0x12: (StreamMaxMoney, (_NUMBER, _LIMIT, _NUMBER)),
}
_NUMBERS: Final = {struct: number for number, (struct, _) in _FRAMES.items()}


def encode_stream_packet(packet: StreamPacket) -> bytes:
    """The packet before encryption. Raises ValueError if a field cannot be encoded."""
    head = bytes((VERSION, packet.packet_type)) + oer.var_uint(packet.sequence) + oer.var_uint(packet.prepare_amount)
    return b"".join((head, oer.var_uint(len(packet.frames)), *map(_encode_frame, packet.frames)))


def decode_stream_packet(data: bytes) -> StreamPacket:
    """Reads a decrypted packet; ignores unknown frames and anything after the last frame.

    `packet_type` may be any byte: the receiver decides about a wrong one. Raises CodecError.
    """
    reader = OctetReader(data)
    if reader.uint8() != VERSION:
        raise CodecError(f"the STREAM packet has another version than {VERSION}")
    packet_type, sequence, prepare_amount = reader.uint8(), reader.var_uint(), reader.var_uint()
    frames: list[Frame] = []
    # The sender chooses the count, up to 2^64-1, but each round consumes bytes or ends in an error.
    remaining = reader.var_uint()
    while remaining:
        remaining -= 1
        number, contents = reader.uint8(), OctetReader(reader.var_octets())
        if number in _FRAMES:
            frame, fields = _FRAMES[number]
            frames.append(frame(*[read(contents) for _, read in fields]))
    return StreamPacket(sequence, packet_type, prepare_amount, tuple(frames))


def _encode_frame(frame: Frame) -> bytes:
    number = _NUMBERS[type(frame)]
    written = zip(_FRAMES[number][1], msgspec.structs.astuple(frame), strict=True)
    return oer.uint8(number) + oer.var_octets(b"".join([write(value) for (write, _), value in written]))


class SharedSecret:
    """The 32 bytes that both ends know, and the keys derived from them.

    `random_bytes` generates the IVs, each of which may encrypt only one packet.
    """

    def __init__(self, secret: bytes, random_bytes: Callable[[int], bytes] = os.urandom) -> None:
        if len(secret) != SECRET_BYTES:
            raise ValueError(f"a shared secret has {SECRET_BYTES} bytes")
        self._cipher = AESGCM(hmac_sha256(secret, b"ilp_stream_encryption"))
        self._fulfillment_key = hmac_sha256(secret, b"ilp_stream_fulfillment")
        self._random_bytes = random_bytes

    def fulfillment(self, data: bytes) -> bytes:
        """The fulfillment of a Prepare with this (encrypted) data."""
        return hmac_sha256(self._fulfillment_key, data)

    def encrypt_packet(self, packet: StreamPacket) -> bytes:
        """A STREAM packet as the data of an ILP packet, encrypted with AES-256-GCM."""
        return encrypt_gcm(self._cipher, encode_stream_packet(packet), self._random_bytes(IV_BYTES))

    def decrypt_packet(self, data: bytes) -> StreamPacket:
        """The STREAM packet in the data of an ILP packet. Raises CodecError if there is none for this secret."""
        return decode_stream_packet(decrypt_gcm(self._cipher, data))


def encrypt_gcm(cipher: AESGCM, plaintext: bytes, iv: bytes) -> bytes:
    """IV (12 bytes), tag (16), ciphertext: the order of both STREAM packets and address tokens."""
    encrypted = cipher.encrypt(iv, plaintext, None)
    return b"".join((iv, encrypted[-TAG_BYTES:], encrypted[:-TAG_BYTES]))


def decrypt_gcm(cipher: AESGCM, data: bytes) -> bytes:
    """The plaintext of `encrypt_gcm`. Raises CodecError if the key is another, or the data was changed."""
    ciphertext = IV_BYTES + TAG_BYTES
    if len(data) < ciphertext:
        raise CodecError("the encrypted data is too short")
    try:
        return cipher.decrypt(data[:IV_BYTES], data[ciphertext:] + data[IV_BYTES:ciphertext], None)
    except InvalidTag:
        raise CodecError("the data was not encrypted with this key") from None


def hmac_sha256(key: bytes, message: bytes) -> bytes:
    """HMAC (RFC 2104) with SHA-256, 32 bytes."""
    return hmac.digest(key, message, "sha256")
