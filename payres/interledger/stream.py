"""The shared secret of a STREAM connection (RFC 29): it encrypts packets and makes fulfillments."""

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


class SharedSecret:
    """The 32 bytes that both ends know, with the keys that follow from them.

    `random_bytes` gives the IVs, none of which may encrypt two packets.
    """

    def __init__(self, secret: bytes, random_bytes: Callable[[int], bytes] = os.urandom) -> None:
        if len(secret) != SECRET_BYTES:
            raise ValueError(f"a shared secret has {SECRET_BYTES} bytes")
        self._cipher = AESGCM(hmac_sha256(secret, b"ilp_stream_encryption"))
        self._fulfillment_key = hmac_sha256(secret, b"ilp_stream_fulfillment")
        self._random_bytes = random_bytes

    def fulfillment(self, data: bytes) -> bytes:
        """What fulfills a Prepare with this (encrypted) data."""
        return hmac_sha256(self._fulfillment_key, data)

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


def hmac_sha256(key: bytes, message: bytes) -> bytes:
    """The 32 bytes of RFC 2104 with SHA-256."""
    return hmac.digest(key, message, "sha256")
