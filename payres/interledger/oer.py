"""Octet encoding rules as narrowed by RFC 30: the encoding of Interledger packets.

Integers are big-endian, and fields of variable length have a length prefix. Every value has one encoding: a longer one
is an error, except for leading zeros of a number.
"""

from functools import lru_cache
from typing import Final

import msgspec

from payres.core.protocol.clock import MILLISECOND, SECOND, format_time, parse_time

MAX_UINT64: Final = 2**64 - 1
TIMESTAMP_BYTES: Final = 17

_PUNCTUATION = dict.fromkeys(map(ord, "-T:"))  # the separators of RFC 3339


class CodecError(ValueError):
    """Bytes that cannot be decoded. Decoding raises nothing else."""


class Reader(msgspec.Struct, gc=False):
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
                return MAX_UINT64
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
    if not 0 <= n <= MAX_UINT64:
        raise ValueError(f"{n} is not a number from 0 to {MAX_UINT64}")
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
        raise ValueError(f"{n} is not a number from 0 to {MAX_UINT64}")
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
