"""Octet encoding rules, as RFC 30 narrows them: the encoding of Interledger packets.

Integers are big-endian, and what varies in length follows its length. Every value has one encoding: a longer one is an
error, except for leading zeros of a number.
"""

from functools import lru_cache
from struct import Struct
from typing import Final

import msgspec

from payres.clock import MILLISECOND, SECOND, format_time, parse_time

MAX_UINT64: Final = 2**64 - 1
TIMESTAMP_BYTES: Final = 17

_SHORT_LENGTHS = tuple(bytes((length,)) for length in range(128))
_SMALL_NUMBERS = tuple(bytes((1, number)) for number in range(256))
_MILLISECONDS = tuple(b"%03d" % millisecond for millisecond in range(1000))
_PUNCTUATION = dict.fromkeys(map(ord, "-T:"))  # what RFC 3339 has between the digits
_DIGITS = Struct("4s2s2s2s2s2s")


class CodecError(ValueError):
    """Bytes that cannot be decoded. Decoding raises nothing else."""


class Reader(msgspec.Struct, gc=False):
    """Reads values off the front of `data`, one after the other, from the offset `at` on.

    Each method raises CodecError when the bytes that are left do not hold such a value.
    """

    data: bytes
    at: int = 0

    def uint8(self) -> int:
        """A number in one byte."""
        try:
            value = self.data[self.at]
        except IndexError:
            raise CodecError("the data ends before a field") from None
        self.at += 1
        return value

    def octets(self, n: int) -> bytes:
        """The next `n` bytes."""
        start = self.at
        end = start + n
        if end > len(self.data):
            raise CodecError("the data ends within a field")
        self.at = end
        return self.data[start:end]

    def var_octets(self) -> bytes:
        """Bytes with their length before them."""
        # Most of a packet is read here, so the two calls for a short value are inlined.
        data, start = self.data, self.at + 1
        if start > len(data):
            raise CodecError("the data ends before a field")
        length = data[start - 1]
        if length >= 128:
            self.at = start
            length = self._long_length(length - 128)
            start = self.at
        end = start + length
        if end > len(data):
            raise CodecError("the data ends within a field")
        self.at = end
        return data[start:end]

    def var_uint(self, *, saturate: bool = False) -> int:
        """A number of one to eight bytes with its length before it.

        A longer one is an error, or the largest number of eight bytes when it may `saturate`.
        """
        data, start = self.data, self.at + 1
        if start < len(data) and data[start - 1] == 1:  # nearly all
            self.at = start + 1
            return data[start]
        number = self.var_octets()
        if not number:
            raise CodecError("a number has at least one byte")
        if len(number) > 8:
            if saturate:
                return MAX_UINT64
            raise CodecError("a number has at most eight bytes")
        return int.from_bytes(number, "big")

    def text_ascii(self) -> str:
        """ASCII text with its length before it."""
        return self._text("ascii")

    def text_utf8(self) -> str:
        """UTF-8 text with its length in bytes before it."""
        return self._text("utf-8")

    def _long_length(self, size: int) -> int:
        data = self.octets(size)
        if not size or not data[0] or (size == 1 and data[0] < 128):
            raise CodecError("a length is not written in its shortest form")
        return int.from_bytes(data, "big")

    def _text(self, encoding: str) -> str:
        try:
            return self.var_octets().decode(encoding)
        except UnicodeDecodeError:
            raise CodecError(f"a text is not {encoding}") from None


def uint8(n: int) -> bytes:
    """A number in one byte. Raises ValueError when it does not fit."""
    return bytes((n,))


def uint64(n: int) -> bytes:
    """A number in eight bytes. Raises ValueError when it does not fit."""
    _check_uint64(n)
    return n.to_bytes(8, "big")


def length(n: int) -> bytes:
    """What is written before `n` bytes: up to 127 in one byte, more with the number of its bytes before it."""
    if n < 128:
        return _SHORT_LENGTHS[n]
    data = n.to_bytes((n.bit_length() + 7) // 8, "big")
    return bytes((0x80 | len(data),)) + data


def var_octets(data: bytes) -> bytes:
    """Bytes with their length before them."""
    return length(len(data)) + data


def var_text(text: str) -> bytes:
    """UTF-8 text, of which ASCII is a part, with its length in bytes before it. Raises ValueError for surrogates."""
    return var_octets(text.encode())


def var_uint(n: int) -> bytes:
    """A number in as few bytes as it needs, with their count before them. Raises ValueError above eight bytes."""
    if 0 <= n < 256:
        return _SMALL_NUMBERS[n]
    _check_uint64(n)
    size = (n.bit_length() + 7) // 8
    return bytes((size,)) + n.to_bytes(size, "big")


def _check_uint64(n: int) -> None:
    if not 0 <= n <= MAX_UINT64:
        raise ValueError(f"{n} is not a number from 0 to {MAX_UINT64}")


def timestamp(us: int) -> bytes:
    """A time as 17 digits, year to millisecond, UTC; microseconds are rounded down.

    Raises ValueError outside the years 1 to 9999.
    """
    second, rest = divmod(us, SECOND)
    return _to_the_second(second) + _MILLISECONDS[rest // MILLISECOND]


def parse_timestamp(data: bytes) -> int:
    """Microseconds UTC of a time written as 17 digits. Raises CodecError when there is no such time."""
    if len(data) != TIMESTAMP_BYTES or not data.isdigit():
        raise CodecError("a time has 17 digits")
    return _from_the_second(data[:14]) + int(data[14:]) * MILLISECOND


# Both are cached because packets expire within a minute or so of each other: few seconds recur in thousands of packets.


@lru_cache(maxsize=1024)
def _to_the_second(second: int) -> bytes:
    return format_time(second * SECOND)[:19].translate(_PUNCTUATION).encode()


@lru_cache(maxsize=1024)
def _from_the_second(digits: bytes) -> int:
    year, month, day, hour, minute, second = _DIGITS.unpack(digits)
    try:
        if second == b"60":
            raise ValueError("there are no leap seconds")
        return parse_time((b"%b-%b-%bT%b:%b:%bZ" % (year, month, day, hour, minute, second)).decode())
    except ValueError as error:
        raise CodecError(f"{digits.decode()} is no time: {error}") from None
