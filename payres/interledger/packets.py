"""ILPv4 packets (RFC 27): Prepare, and its two replies, Fulfill and Reject."""

import hashlib
import hmac
import struct
from enum import StrEnum
from typing import Final

import msgspec

from payres.core.protocol.identifiers import is_ilp_address
from payres.interledger import oer
from payres.interledger.oer import CodecError, Reader

HASH_BYTES: Final = 32  # of a condition and of its fulfillment
CODE_BYTES: Final = 3
MAX_DATA: Final = 32767
MAX_MESSAGE: Final = 8191

_PREPARE, _FULFILL, _REJECT = b"\x0c", b"\x0d", b"\x0e"
_PREPARE_HEAD = struct.Struct(f"!Q{oer.TIMESTAMP_BYTES}s{HASH_BYTES}s")
_TOO_LARGE = struct.Struct("!QQ")


class Code(StrEnum):
    """Reasons for rejecting a packet. F: final; T: temporary; R: relative, may pass with more money or time."""

    BAD_REQUEST = "F00"
    INVALID_PACKET = "F01"
    UNREACHABLE = "F02"
    INVALID_AMOUNT = "F03"
    INSUFFICIENT_DESTINATION_AMOUNT = "F04"
    WRONG_CONDITION = "F05"
    UNEXPECTED_PAYMENT = "F06"
    CANNOT_RECEIVE = "F07"
    AMOUNT_TOO_LARGE = "F08"
    APPLICATION_ERROR = "F99"
    INTERNAL_ERROR = "T00"
    PEER_UNREACHABLE = "T01"
    PEER_BUSY = "T02"
    CONNECTOR_BUSY = "T03"
    INSUFFICIENT_LIQUIDITY = "T04"
    RATE_LIMITED = "T05"
    TEMPORARY_APPLICATION_ERROR = "T99"
    TRANSFER_TIMED_OUT = "R00"
    INSUFFICIENT_SOURCE_AMOUNT = "R01"
    INSUFFICIENT_TIMEOUT = "R02"
    RELATIVE_APPLICATION_ERROR = "R99"


class Prepare(msgspec.Struct, frozen=True):
    """An offer of `amount` for the preimage of `condition`, until `expires_at` in microseconds.

    On the wire, the time has milliseconds. It is rounded down, so that an offer never gets longer.
    """

    amount: int
    expires_at: int
    condition: bytes
    destination: str
    data: bytes = b""


class Fulfill(msgspec.Struct, frozen=True):
    """Accepts the offer: the condition is the SHA-256 of the fulfillment."""

    fulfillment: bytes
    data: bytes = b""


class Reject(msgspec.Struct, frozen=True):
    """Declines the offer. `code` is a Code or unknown; `triggered_by` is the node's address, or empty."""

    code: str
    triggered_by: str = ""
    message: str = ""
    data: bytes = b""


Reply = Fulfill | Reject


class Unanswered(msgspec.Struct, frozen=True):
    """No reply: the packet is unresolved, unless it was not `sent` and the peer will never process it."""

    why: str
    sent: bool = True


Outcome = Reply | Unanswered


class Rejected(Exception):
    """Ends the work on a packet, which is answered with a Reject; an open unit of work is rolled back.

    `message` is for any sender: it contains no names or balances.
    """

    def __init__(self, code: Code, message: str = "", data: bytes = b"") -> None:
        super().__init__(f"{code} {message}".rstrip())
        self.code = code
        self.message = message
        self.data = data

    def reject(self, triggered_by: str) -> Reject:
        """The Reject, with this node's ILP address."""
        return Reject(self.code, triggered_by, self.message, self.data)


def encode(packet: Prepare | Reply) -> bytes:
    """The encoded packet. Raises ValueError if a field cannot be encoded."""
    _check(packet)
    if isinstance(packet, Prepare):
        kind, times = _PREPARE, oer.uint64(packet.amount) + oer.timestamp(packet.expires_at)
        head = times + packet.condition + oer.var_text(_destination(packet.destination))
    elif isinstance(packet, Fulfill):
        kind, head = _FULFILL, packet.fulfillment
    else:
        kind = _REJECT
        head = packet.code.encode("ascii") + oer.var_text(packet.triggered_by) + oer.var_text(packet.message)
    return kind + oer.var_octets(head + oer.var_octets(packet.data))


def decode_prepare(data: bytes) -> Prepare:
    """Reads a Prepare; bytes after it are ignored. Raises CodecError for anything else."""
    if data[:1] != _PREPARE:
        raise CodecError("the packet is no Prepare")
    reader = Reader(Reader(data, 1).var_octets())
    if len(reader.data) < _PREPARE_HEAD.size:
        raise CodecError("the Prepare is too short")
    amount, expires_at, condition = _PREPARE_HEAD.unpack(reader.octets(_PREPARE_HEAD.size))
    destination = _destination(reader.text("ascii"))
    prepare = Prepare(amount, oer.parse_timestamp(expires_at), condition, destination, reader.var_octets())
    _check(prepare)
    return prepare


def decode_reply(data: bytes) -> Reply:
    """Reads a Fulfill or Reject; bytes after it are ignored. Raises CodecError for anything else."""
    kind = data[:1]
    if kind not in (_FULFILL, _REJECT):
        raise CodecError("the packet is neither Fulfill nor Reject")
    reader = Reader(Reader(data, 1).var_octets())
    reply: Reply
    if kind == _FULFILL:
        reply = Fulfill(reader.octets(HASH_BYTES), reader.var_octets())
    else:
        code = reader.octets(CODE_BYTES).decode("latin-1")
        reply = Reject(code, reader.text("ascii"), reader.text(), reader.var_octets())
    _check(reply)
    return reply


def result_of(reply: bytes) -> str:
    """The outcome in an encoded reply, in a word."""
    return "fulfilled" if reply[:1] == _FULFILL else "rejected"


def fulfills(fulfillment: bytes, condition: bytes) -> bool:
    """Whether the fulfillment is the preimage of the condition (RFC 27)."""
    return hmac.compare_digest(hashlib.sha256(fulfillment).digest(), condition)


def too_large_data(received: int, maximum: int) -> bytes:
    """The data of a Reject with AMOUNT_TOO_LARGE, both amounts in the rejecting node's units."""
    return oer.uint64(received) + oer.uint64(maximum)


def parse_too_large(data: bytes) -> tuple[int, int] | None:
    """The received amount and the maximum, or None if the data does not contain them (RFC 27 only recommends it)."""
    if len(data) < _TOO_LARGE.size:
        return None
    received, maximum = _TOO_LARGE.unpack_from(data)
    return received, maximum


def _destination(address: str) -> str:
    """The address. Raises CodecError if it is invalid."""
    if not is_ilp_address(address):
        raise CodecError("the destination is not an ILP address")
    return address


def _check(packet: Prepare | Reply) -> None:
    """Raises CodecError if a field is out of bounds, when decoding and encoding."""
    if isinstance(packet, Reject):
        if len(packet.code) != CODE_BYTES or not (packet.code.isascii() and packet.code.isalnum()):
            raise CodecError(f"a code has {CODE_BYTES} letters and digits")
        if packet.triggered_by and not is_ilp_address(packet.triggered_by):
            raise CodecError("the rejecting node has no ILP address")
        if len(packet.message) > MAX_MESSAGE:
            raise CodecError(f"a message has at most {MAX_MESSAGE} characters")
    elif len(packet.condition if isinstance(packet, Prepare) else packet.fulfillment) != HASH_BYTES:
        raise CodecError(f"a condition and its fulfillment have {HASH_BYTES} bytes")
    if len(packet.data) > MAX_DATA:
        raise CodecError(f"a packet carries at most {MAX_DATA} bytes of data")
