"""Binary as text: base64url without padding (RFC 4648 section 5, RFC 7515 section 2)."""

from base64 import urlsafe_b64decode
from binascii import b2a_base64
from typing import Final

URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")


def base64url(data: bytes) -> str:
    """Return the bytes as base64url without padding."""
    # urlsafe_b64encode is these three steps with as many calls of Python.
    return b2a_base64(data, newline=False).rstrip(b"=").translate(URL_SAFE).decode("ascii")


def base64url_decoded(text: str) -> bytes:
    """Return the bytes of base64url without padding; raise ValueError (binascii.Error) for an impossible length.

    Characters that are no base64 are skipped, so check text from outside before.
    """
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
