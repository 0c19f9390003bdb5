"""The shared secret of a STREAM connection (RFC 29): it encrypts packets and makes fulfillments."""

import hashlib
import hmac
import os
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from payres.interledger.frames import StreamPacket, decode_stream_packet, encode_stream_packet
from payres.interledger.oer import CodecError

SECRET_BYTES: Final = 32
IV_BYTES: Final = 12
TAG_BYTES: Final = 16


class SharedSecret:
    """The 32 bytes that both ends know, with the keys that follow from them."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) != SECRET_BYTES:
            raise ValueError(f"a shared secret has {SECRET_BYTES} bytes")
        self._cipher = AESGCM(hmac.digest(secret, b"ilp_stream_encryption", "sha256"))
        fulfillment_key = hmac.digest(secret, b"ilp_stream_fulfillment", "sha256")
        self._fulfillments = hmac.new(fulfillment_key, digestmod="sha256")

    def encrypt(self, plaintext: bytes, iv: bytes | None = None) -> bytes:
        """The text encrypted with AES-256-GCM, under an IV of 12 bytes that is never used for another text."""
        return encrypt(self._cipher, plaintext, os.urandom(IV_BYTES) if iv is None else iv)

    def decrypt(self, data: bytes) -> bytes:
        """The plaintext. Raises CodecError when it was not encrypted with this secret, or was changed since."""
        return decrypt(self._cipher, data)

    def fulfillment(self, data: bytes) -> bytes:
        """What fulfills a Prepare with this (encrypted) data."""
        return keyed(self._fulfillments, data)

    def condition(self, data: bytes) -> bytes:
        """The condition of a Prepare with this (encrypted) data that can be fulfilled."""
        return hashlib.sha256(self.fulfillment(data)).digest()

    def encrypt_packet(self, packet: StreamPacket, iv: bytes | None = None) -> bytes:
        """A STREAM packet as the data of an ILP packet."""
        return self.encrypt(encode_stream_packet(packet), iv)

    def decrypt_packet(self, data: bytes) -> StreamPacket:
        """The STREAM packet in the data of an ILP packet. Raises CodecError when there is none for this secret."""
        return decode_stream_packet(self.decrypt(data))


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


def keyed(key: hmac.HMAC, message: bytes) -> bytes:
    """The HMAC of a message under a key set up before. Unlike hmac.digest it does not release the GIL."""
    code = key.copy()
    code.update(message)
    return code.digest()
