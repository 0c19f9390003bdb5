"""STREAM packets, and the credentials of receivers.

A packet is a sequence number, an amount and frames; each frame is a type, a length and fields. Only the frames below
are read or written; all others, about bytes, flow control and receipts, are skipped like unknown ones.

The address contains an encrypted token with the id of the incoming payment or wallet, and the asset. The secret is
derived from the token, as in common STREAM receivers.
"""

import binascii
import hmac
import os
from collections.abc import Callable
from enum import IntEnum
from functools import lru_cache
from typing import Any, Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from payres.core.protocol.amounts import Asset
from payres.core.protocol.identifiers import base64url, base64url_decoded
from payres.interledger import packets
from payres.interledger.packets import CodecError, OctetReader

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

_UINT8: Final[_Field] = packets.uint8, OctetReader.uint8
_NUMBER: Final[_Field] = packets.var_uint, OctetReader.var_uint
_LIMIT: Final[_Field] = packets.var_uint, lambda reader: reader.var_uint(saturate=True)  # "no limit" may be longer
_TEXT: Final[_Field] = packets.var_text, OctetReader.text

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
    head = (
        bytes((VERSION, packet.packet_type))
        + packets.var_uint(packet.sequence)
        + packets.var_uint(packet.prepare_amount)
    )
    return b"".join((head, packets.var_uint(len(packet.frames)), *map(_encode_frame, packet.frames)))


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
    return packets.uint8(number) + packets.var_octets(b"".join([write(value) for (write, _), value in written]))


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
        return encrypt(self._cipher, encode_stream_packet(packet), self._random_bytes(IV_BYTES))

    def decrypt_packet(self, data: bytes) -> StreamPacket:
        """The STREAM packet in the data of an ILP packet. Raises CodecError if there is none for this secret."""
        return decode_stream_packet(decrypt(self._cipher, data))


def encrypt(cipher: AESGCM, plaintext: bytes, iv: bytes) -> bytes:
    """IV (12 bytes), tag (16), ciphertext: the order of both STREAM packets and address tokens."""
    encrypted = cipher.encrypt(iv, plaintext, None)
    return b"".join((iv, encrypted[-TAG_BYTES:], encrypted[:-TAG_BYTES]))


def decrypt(cipher: AESGCM, data: bytes) -> bytes:
    """The plaintext of `encrypt`. Raises CodecError if the key is another, or the data was changed."""
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


HAS_TAG: Final = 1
HAS_RECEIPTS: Final = 2
HAS_ASSET: Final = 4
RECEIPT_BYTES: Final = 48  # a nonce and a secret, which are read but never issued
OPENED_KEPT: Final = 1024
WALLET: Final = "wallet:"  # before the tag of a wallet; what has no prefix is the id of a payment


class Credentials(msgspec.Struct, frozen=True):
    """Credentials for a sender: the ILP address and the 32-byte shared secret as base64url without padding."""

    ilp_address: str
    shared_secret: str


class Opened(msgspec.Struct, frozen=True):
    """The contents of one of our addresses: the tag of the payee, its asset, and the sender's shared secret."""

    tag: str | None
    asset: Asset | None
    shared_secret: SharedSecret


class CredentialSource:
    """Derives credentials from the server's 32-byte secret and its ILP address."""

    def __init__(self, server_secret: bytes, ilp_address: str) -> None:
        assert len(server_secret) == 32
        self._token_cipher = AESGCM(hmac_sha256(server_secret, b"ilp_stream_connection_token"))
        self._secret_key = hmac_sha256(server_secret, b"ilp_stream_shared_secret")
        self._iv_key = hmac_sha256(server_secret, b"payres_token_iv")
        self._ilp_address = ilp_address
        # All packets of a payment have the same address, and decrypting it costs as much as the rest of an answer.
        self._open_segment = lru_cache(maxsize=OPENED_KEPT)(self._opened)

    def for_payment(self, payment_id: str, asset: Asset) -> Credentials:
        """The credentials of an incoming payment, the same on every call.

        The IV is derived from the plaintext, so one IV never encrypts two texts.
        """
        text = _token_text(payment_id, asset)
        return self._credentials(text, hmac_sha256(self._iv_key, text)[:IV_BYTES])

    def for_wallet(self, tag: str, asset: Asset) -> Credentials:
        """Credentials that pay the wallet with this tag, new on every call. They never expire."""
        return self._credentials(_token_text(f"{WALLET}{tag}", asset), os.urandom(IV_BYTES))

    def open(self, ilp_address: str) -> Opened | None:
        """The contents of an address that this source made; None for any other. Segments may follow the token."""
        if not ilp_address.startswith(f"{self._ilp_address}."):
            return None
        segment = ilp_address[len(self._ilp_address) + 1 :].partition(".")[0]
        try:
            return self._open_segment(segment)
        except (CodecError, binascii.Error):
            return None

    def _opened(self, segment: str) -> Opened:
        """Raises CodecError or binascii.Error if the segment is not a token of this source."""
        token = base64url_decoded(segment)
        reader = OctetReader(decrypt(self._token_cipher, token))
        flags = reader.uint8()
        tag = reader.text("ascii") if flags & HAS_TAG else None
        if flags & HAS_RECEIPTS:
            reader.octets(RECEIPT_BYTES)
        asset = Asset(reader.text(), reader.uint8()) if flags & HAS_ASSET else None
        return Opened(tag, asset, SharedSecret(hmac_sha256(self._secret_key, token)))

    def _credentials(self, text: bytes, iv: bytes) -> Credentials:
        token = encrypt(self._token_cipher, text, iv)
        return Credentials(f"{self._ilp_address}.{base64url(token)}", base64url(hmac_sha256(self._secret_key, token)))


def wallet_of(tag: str) -> str | None:
    """The tag of a wallet; None if this is a payment's id."""
    return tag.removeprefix(WALLET) if tag.startswith(WALLET) else None


def _token_text(tag: str, asset: Asset) -> bytes:
    return (
        packets.uint8(HAS_TAG | HAS_ASSET)
        + packets.var_text(tag)
        + packets.var_text(asset.code)
        + packets.uint8(asset.scale)
    )
