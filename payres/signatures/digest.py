"""Content-Digest (RFC 9530): the header for a body, and whether a header matches a body."""

import hashlib
import hmac
from base64 import b64encode
from types import MappingProxyType
from typing import Final

import http_sf

from payres.limits import MAX_SIGNATURE_HEADER_BYTES
from payres.signatures.fields import reject_duplicate
from payres.signatures.reasons import Reason

# The only algorithms RFC 9530 section 7.2 lists as active.
ALGORITHMS: Final = MappingProxyType({"sha-256": hashlib.sha256, "sha-512": hashlib.sha512})


def content_digest(body: bytes, algorithm: str = "sha-512") -> str:
    """Return the Content-Digest value of the raw `body`; raise ValueError unless it is sha-256 or sha-512."""
    digest = ALGORITHMS.get(algorithm)
    if digest is None:
        raise ValueError(f"Content-Digest algorithm {algorithm!r} is not supported; use {' or '.join(ALGORITHMS)}")
    return f"{algorithm}=:{b64encode(digest(body).digest()).decode('ascii')}:"


def digest_problem(header: str, body: bytes) -> Reason | None:
    """Return None if the Content-Digest `header` matches the raw `body`, else the reason why not.

    At least one supported algorithm must be listed and every supported one must match; others are ignored.
    """
    # What nearly every client sends is exactly what we would write ourselves, and needs no parser.
    algorithm = header.partition("=")[0]
    if algorithm in ALGORITHMS and header == content_digest(body, algorithm):
        return None
    digests = _parse(header)
    if digests is None:
        return Reason.DIGEST_MALFORMED
    supported = {name: value for name, value in digests.items() if name in ALGORITHMS}
    if not supported:
        return Reason.DIGEST_UNSUPPORTED
    for name, value in supported.items():
        if not isinstance(value, bytes):
            return Reason.DIGEST_MALFORMED
        if not hmac.compare_digest(value, ALGORITHMS[name](body).digest()):
            return Reason.DIGEST_MISMATCH
    return None


def _parse(header: str) -> dict[str, object] | None:
    """Return the dictionary's bare values by key, or None if the header is not a dictionary or repeats a key."""
    if len(header) > MAX_SIGNATURE_HEADER_BYTES:
        return None
    try:
        parsed = http_sf.parse(header.encode("ascii"), tltype="dictionary", on_duplicate_key=reject_duplicate)
    except ValueError:
        return None
    if not isinstance(parsed, dict) or not parsed:
        return None
    return {name: member[0] if isinstance(member, tuple) else member for name, member in parsed.items()}
