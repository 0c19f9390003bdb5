"""Binary as text: base64url without padding (RFC 4648 section 5, RFC 7515 section 2)."""

from base64 import urlsafe_b64decode, urlsafe_b64encode


def base64url(data: bytes) -> str:
    """Return the bytes as base64url without padding."""
    return urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def base64url_decoded(text: str) -> bytes:
    """Return the bytes of base64url without padding; raise ValueError (binascii.Error) for an impossible length.

    Characters that are no base64 are skipped, so check text from outside before.
    """
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
