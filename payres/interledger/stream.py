"""The shared secret of a STREAM connection (RFC 29): it encrypts packets and makes fulfillments."""

import hashlib
import hmac
import os
from collections.abc import Callable
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from payres.interledger.frames import StreamPacket, decode_stream_packet, encode_stream_packet
from payres.interledger.oer import CodecError

SECRET_BYTES: Final = 32
IV_BYTES: Final = 12
TAG_BYTES: Final = 16

# Every byte with the pads of RFC 2104.
_INNER_PAD = bytes(byte ^ 0x36 for byte in range(256))
_OUTER_PAD = bytes(byte ^ 0x5C for byte in range(256))


class SharedSecret:
    """The 32 bytes that both ends know, with the keys that follow from them.

    `random_bytes` gives the IVs, none of which may encrypt two packets.
    """

    def __init__(self, secret: bytes, random_bytes: Callable[[int], bytes] = os.urandom) -> None:
        if len(secret) != SECRET_BYTES:
            raise ValueError(f"a shared secret has {SECRET_BYTES} bytes")
        self._cipher = AESGCM(hmac.digest(secret, b"ilp_stream_encryption", "sha256"))
        self._fulfillments = HmacKey(hmac.digest(secret, b"ilp_stream_fulfillment", "sha256"))
        self._random_bytes = random_bytes

    def fulfillment(self, data: bytes) -> bytes:
        """What fulfills a Prepare with this (encrypted) data."""
        return self._fulfillments.digest(data)

    def encrypt_packet(self, packet: StreamPacket) -> bytes:
        """A STREAM packet as the data of an ILP packet, encrypted with AES-256-GCM."""
        return encrypt(self._cipher, encode_stream_packet(packet), self._random_bytes(IV_BYTES))

    def decrypt_packet(self, data: bytes) -> StreamPacket:
        """The STREAM packet in the data of an ILP packet. Raises CodecError when there is none for this secret."""
        return decode_stream_packet(decrypt(self._cipher, data))


def encrypt(cipher: AESGCM, plaintext: bytes, iv: bytes) -> bytes:
    """IV (12 bytes), tag (16), ciphertext: the order that both STREAM packets and address tokens have."""
    encrypted = cipher.encrypt(iv, plaintext, None)
    return b"".join((iv, encrypted[-TAG_BYTES:], encrypted[:-TAG_BYTES]))


def decrypt(cipher: AESGCM, data: bytes) -> bytes:
    """The plaintext of `encrypt`. Raises CodecError when it was encrypted with another key, or changed since."""
    ciphertext = IV_BYTES + TAG_BYTES
    if len(data) < ciphertext:
        raise CodecError("the encrypted data is too short")
    try:
        return cipher.decrypt(data[:IV_BYTES], data[ciphertext:] + data[IV_BYTES:ciphertext], None)
    except InvalidTag:
        raise CodecError("the data was not encrypted with this key") from None


class HmacKey:
    """A key of at most 64 bytes for HMAC-SHA-256 (RFC 2104), set up once for any number of messages.

    hmac.digest sets its key up for each message and releases the GIL; hmac.HMAC takes three times as long.
    """

    __slots__ = ("_inner", "_outer")

    def __init__(self, key: bytes) -> None:
        block = key.ljust(64, b"\0")
        self._inner = hashlib.sha256(block.translate(_INNER_PAD))
        self._outer = hashlib.sha256(block.translate(_OUTER_PAD))

    def digest(self, message: bytes) -> bytes:
        """The 32 bytes of a message."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(message)
        outer.update(inner.digest())
        return outer.digest()
