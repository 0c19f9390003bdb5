"""Bytes as text: base64url without padding (RFC 4648 section 5, RFC 7515 section 2), and sizes for people."""

from base64 import urlsafe_b64decode
from binascii import b2a_base64
from typing import Final

MEBIBYTE: Final = 1024 * 1024
GIBIBYTE: Final = 1024 * MEBIBYTE
URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")


def base64url(data: bytes) -> str:
    # urlsafe_b64encode is these three steps with as many calls of Python.
    return b2a_base64(data, newline=False).rstrip(b"=").translate(URL_SAFE).decode("ascii")


def base64url_decoded(text: str) -> bytes:
    """Raises ValueError for an impossible length.

    Skips other characters than those of base64: check input before.
    """
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def format_size(count: int) -> str:
    """A number of bytes, such as `64.0 MiB`."""
    return f"{count / MEBIBYTE:,.1f} MiB" if count < GIBIBYTE else f"{count / GIBIBYTE:,.1f} GiB"
