"""Packets of the foreign server, by its own codec: Interledger (RFC 27 and 30), and STREAM in it (RFC 29)."""

import hmac
import os
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

PREPARE, FULFILL, REJECT = 12, 13, 14
CLOSE: Final = 1  # the type of a frame
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)


class Prepare(NamedTuple):
    amount: int
    expires_at: int  # microseconds since 1970
    condition: bytes
    destination: str
    data: bytes

    def encoded(self) -> bytes:
        time = EPOCH + self.expires_at * MICROSECOND
        expiry = f"{time:%Y%m%d%H%M%S}{time.microsecond // 1000:03}".encode()
        rest = self.condition + _var(self.destination.encode()) + _var(self.data)
        return bytes([PREPARE]) + _var(self.amount.to_bytes(8) + expiry + rest)


class Reply(NamedTuple):
    """A Fulfill, or with a `code` a Reject."""

    code: str
    proof: bytes = b""
    data: bytes = b""

    def encoded(self) -> bytes:
        kind, head = (REJECT, self.code.encode() + _var(b"") + _var(b"")) if self.code else (FULFILL, self.proof)
        return bytes([kind]) + _var(head + _var(self.data))


class Message(NamedTuple):
    """What is encrypted in a packet: the least that is to arrive, or what arrived; and the types of its frames."""

    kind: int
    sequence: int
    amount: int
    frames: tuple[int, ...] = ()

    def sealed(self, secret: bytes) -> bytes:
        """Without frames."""
        text = bytes([1, self.kind]) + b"".join(_var(_octets(one)) for one in (self.sequence, self.amount, 0))
        iv = os.urandom(12)
        sealed = _cipher(secret).encrypt(iv, text, None)
        return iv + sealed[-16:] + sealed[:-16]


def prepare_of(body: bytes) -> Prepare:
    amount, expiry, condition, destination, data, _ = _cut(_cut(body, 1, 0)[1], 8, 17, 32, 0, 0)
    time = datetime.strptime(f"{expiry.decode()}+0000", "%Y%m%d%H%M%S%f%z")
    return Prepare(int.from_bytes(amount), (time - EPOCH) // MICROSECOND, condition, destination.decode(), data)


def reply_of(body: bytes) -> Reply:
    """Raises ValueError or LookupError."""
    kind, contents, _ = _cut(body, 1, 0)
    if kind[0] == FULFILL:
        return Reply("", *_cut(contents, 32, 0)[:2])
    code, _, _, data, _ = _cut(contents, 3, 0, 0, 0)
    return Reply(code.decode(), b"", data)


def opened(secret: bytes, data: bytes) -> Message:
    """Raises ValueError if it was not sealed with this secret."""
    try:
        text = _cipher(secret).decrypt(data[:12], data[28:] + data[12:28], None)
    except InvalidTag as error:
        raise ValueError("sealed with another secret") from error
    _, kind, sequence, amount, count, rest = _cut(text, 1, 1, 0, 0, 0)
    frames = list[int]()
    for _ in range(int.from_bytes(count)):
        frame, _, rest = _cut(rest, 1, 0)
        frames.append(frame[0])
    return Message(kind[0], int.from_bytes(sequence), int.from_bytes(amount), tuple(frames))


def proof_of(secret: bytes, data: bytes) -> bytes:
    """The fulfillment, whose hash is the condition."""
    return hmac.digest(hmac.digest(secret, b"ilp_stream_fulfillment", sha256), data, sha256)


def _cipher(secret: bytes) -> AESGCM:
    return AESGCM(hmac.digest(secret, b"ilp_stream_encryption", sha256))


def _octets(number: int) -> bytes:
    return number.to_bytes(max((number.bit_length() + 7) // 8, 1))


def _var(octets: bytes) -> bytes:
    length = _octets(len(octets))
    return (length if len(octets) < 128 else bytes([0x80 | len(length)]) + length) + octets


def _cut(octets: bytes, *sizes: int) -> list[bytes]:
    """Pieces of these sizes, and the rest; 0 is for one that says its size itself."""
    cut = list[bytes]()
    for given in sizes:
        size = given
        if not given:
            size, octets = octets[0], octets[1:]
        if not given and size & 0x80:
            size, octets = int.from_bytes(octets[: size & 0x7F]), octets[size & 0x7F :]
        cut.append(octets[:size])
        octets = octets[size:]
    return [*cut, octets]
