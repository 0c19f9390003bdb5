"""ILP packets as bytes: OER, and the packets in it.

Integers are big-endian, and fields of variable length have a length prefix. Every value has one encoding: a longer one
is an error, except for leading zeros of a number.
"""

import struct
from functools import lru_cache
from typing import Final

import msgspec

from payres.core.protocol.amounts import MAX_VALUE
from payres.core.protocol.clock import MILLISECOND, SECOND, format_time, parse_time
from payres.interledger.ilp_addresses import is_ilp_address
from payres.interledger.packets import CODE_BYTES, HASH_BYTES, Fulfill, Prepare, Reject, Reply

TIMESTAMP_BYTES: Final = 17
_PUNCTUATION = dict.fromkeys(map(ord, "-T:"))  # the separators of RFC 3339
MAX_DATA: Final = 32767
MAX_MESSAGE: Final = 8191
_PREPARE, _FULFILL, _REJECT = b"\x0c", b"\x0d", b"\x0e"
_PREPARE_HEAD = struct.Struct(f"!Q{TIMESTAMP_BYTES}s{HASH_BYTES}s")


class CodecError(ValueError):
    """Bytes that cannot be decoded. Decoding raises nothing else."""


class OctetReader(msgspec.Struct, gc=False):
    """Reads values one by one from `data`, starting at offset `at`.

    Each method raises CodecError if the remaining bytes do not start with such a value.
    """

    data: bytes
    at: int = 0

    def uint8(self) -> int:
        """A one-byte number."""
        if self.at >= len(self.data):
            raise CodecError("the data ends before a field")
        self.at += 1
        return self.data[self.at - 1]

    def octets(self, n: int) -> bytes:
        """The next `n` bytes."""
        start, end = self.at, self.at + n
        if end > len(self.data):
            raise CodecError("the data ends within a field")
        self.at = end
        return self.data[start:end]

    def var_octets(self) -> bytes:
        """Bytes with a length prefix."""
        data, start = self.data, self.at + 1
        if start <= len(data) and data[start - 1] < 128:  # the common case, without further calls
            end = start + data[start - 1]
            if end <= len(data):
                self.at = end
                return data[start:end]
        n = self.uint8()
        if n < 128:
            return self.octets(n)
        written = self.octets(n - 128)
        n = int.from_bytes(written)
        if n < 128 or not written[0]:
            raise CodecError("a length is not written in its shortest form")
        return self.octets(n)

    def var_uint(self, *, saturate: bool = False) -> int:
        """A number of one to eight bytes with a length prefix.

        A longer one is an error, or with `saturate` the largest eight-byte number.
        """
        data, start = self.data, self.at + 1
        if start < len(data) and data[start - 1] == 1:  # the common case
            self.at = start + 1
            return data[start]
        number = self.var_octets()
        if not number:
            raise CodecError("a number has at least one byte")
        if len(number) > 8:
            if saturate:
                return MAX_VALUE
            raise CodecError("a number has at most eight bytes")
        return int.from_bytes(number)

    def text(self, encoding: str = "utf-8") -> str:
        """Text with a prefix of its length in bytes."""
        try:
            return self.var_octets().decode(encoding)
        except UnicodeDecodeError:
            raise CodecError(f"a text is not {encoding}") from None


def uint8(n: int) -> bytes:
    """A one-byte number. Raises ValueError if it does not fit."""
    return bytes((n,))


def uint64(n: int) -> bytes:
    """An eight-byte number. Raises ValueError if it does not fit."""
    if not 0 <= n <= MAX_VALUE:
        raise ValueError(f"{n} is not a number from 0 to {MAX_VALUE}")
    return n.to_bytes(8)


def var_octets(data: bytes) -> bytes:
    """Bytes with a length prefix: up to 127 in one byte, larger lengths after the number of their bytes."""
    n = len(data)
    if n < 128:
        return bytes((n,)) + data
    size = (n.bit_length() + 7) // 8
    return bytes((0x80 | size,)) + n.to_bytes(size) + data


def var_text(text: str) -> bytes:
    """UTF-8 text with a prefix of its length in bytes. Raises ValueError for surrogates."""
    return var_octets(text.encode())


def var_uint(n: int) -> bytes:
    """A number in as few bytes as possible, with their count as prefix. Raises ValueError above eight bytes."""
    size = (n.bit_length() + 7) // 8 or 1
    if n < 0 or size > 8:
        raise ValueError(f"{n} is not a number from 0 to {MAX_VALUE}")
    return bytes((size,)) + n.to_bytes(size)


def timestamp(us: int) -> bytes:
    """A time as 17 digits, year to millisecond, UTC; microseconds are rounded down.

    Raises ValueError outside the years 1 to 9999.
    """
    second, rest = divmod(us, SECOND)
    return _digits(second) + b"%03d" % (rest // MILLISECOND)


def parse_timestamp(data: bytes) -> int:
    """Microseconds UTC of a time written as 17 digits. Raises CodecError if there is no such time."""
    if len(data) != TIMESTAMP_BYTES or not data.isdigit():
        raise CodecError("a time has 17 digits")
    return _time_of(data[:14].decode()) + int(data[14:]) * MILLISECOND


# Both are cached: packets expire within a minute or so of each other, so thousands of them share a few seconds.


@lru_cache(maxsize=1024)
def _digits(second: int) -> bytes:
    return format_time(second * SECOND)[:19].translate(_PUNCTUATION).encode()


@lru_cache(maxsize=1024)
def _time_of(digits: str) -> int:
    if digits.endswith("60"):
        raise CodecError(f"{digits} is no time: there are no leap seconds")
    year, month, day, hour, minute, second = digits[:4], *(digits[at : at + 2] for at in range(4, 14, 2))
    try:
        return parse_time(f"{year}-{month}-{day}T{hour}:{minute}:{second}Z")
    except ValueError as error:
        raise CodecError(f"{digits} is no time: {error}") from None


def encode_packet(packet: Prepare | Reply) -> bytes:
    """The encoded packet. Raises ValueError if a field cannot be encoded."""
    _check(packet)
    if isinstance(packet, Prepare):
        kind, times = _PREPARE, uint64(packet.amount) + timestamp(packet.expires_at)
        head = times + packet.condition + var_text(_destination(packet.destination))
    elif isinstance(packet, Fulfill):
        kind, head = _FULFILL, packet.fulfillment
    else:
        kind = _REJECT
        head = packet.code.encode("ascii") + var_text(packet.triggered_by) + var_text(packet.message)
    return kind + var_octets(head + var_octets(packet.data))


def decode_prepare(data: bytes) -> Prepare:
    """Reads a Prepare; bytes after it are ignored. Raises CodecError for anything else."""
    if data[:1] != _PREPARE:
        raise CodecError("the packet is no Prepare")
    reader = OctetReader(OctetReader(data, 1).var_octets())
    if len(reader.data) < _PREPARE_HEAD.size:
        raise CodecError("the Prepare is too short")
    amount, expires_at, condition = _PREPARE_HEAD.unpack(reader.octets(_PREPARE_HEAD.size))
    destination = _destination(reader.text("ascii"))
    prepare = Prepare(amount, parse_timestamp(expires_at), condition, destination, reader.var_octets())
    _check(prepare)
    return prepare


def decode_reply(data: bytes) -> Reply:
    """Reads a Fulfill or Reject; bytes after it are ignored. Raises CodecError for anything else."""
    kind = data[:1]
    if kind not in (_FULFILL, _REJECT):
        raise CodecError("the packet is neither Fulfill nor Reject")
    reader = OctetReader(OctetReader(data, 1).var_octets())
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
