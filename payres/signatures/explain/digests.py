"""Why a Content-Digest does not match: digests of other bodies, in other encodings, in other headers."""

import re
from base64 import b64decode, urlsafe_b64decode
from collections.abc import Iterator
from typing import Final

from payres.signatures.base import Message, field_value, header_fields
from payres.signatures.digest import ALGORITHMS
from payres.signatures.explain.bodies import Body, other_bodies
from payres.signatures.explain.cause import Cause

_MEMBER = re.compile(r'([A-Za-z0-9_*.-]+)[ ]?=[ ]?([:"]?)([A-Za-z0-9+/_-]+={0,2})([:"]?)')
_HEX = re.compile(r"(?:[0-9A-Fa-f]{2})+")
# Names of the header before RFC 9530, or of its sisters.
_OTHER_HEADERS: Final = ("digest", "repr-digest", "x-content-digest", "content-sha256", "content-md5")


def digest_causes(message: Message) -> Iterator[Cause]:
    """What the digest in the request is really one of, for every member of the header that can be recognised."""
    fields = header_fields(message.headers)
    if b"content-digest" not in fields:
        yield from _in_other_headers(message)
        return
    for label, opening, digits, closing in _MEMBER.findall(field_value(fields[b"content-digest"]).decode("latin-1")):
        found = _recognised(message, digits)
        if found is None:
            continue
        algorithm, encoding, body = found
        if body is not None:
            says = f"The digest matches when the body is {body.what}, so {body.advice}."
            yield Cause(body.cause, says)
        if label != algorithm:
            says = f"The digest matches when the algorithm is {algorithm}, so write {algorithm} instead of {label}."
            yield Cause("digest_algorithm", says)
        if encoding or (opening, closing) != (":", ":"):
            how = encoding or "read without its two colons"
            says = f"The digest matches when it is {how}, so write it in base64 between colons: {algorithm}=:...:."
            yield Cause("digest_encoding", says)


def _in_other_headers(message: Message) -> Iterator[Cause]:
    fields = header_fields(message.headers)
    for name in _OTHER_HEADERS:
        value = field_value(fields.get(name.encode("ascii"), ())).decode("latin-1")
        values = [digits for _, _, digits, _ in _MEMBER.findall(value)] or [value]
        if any(_recognised(message, digits) for digits in values):
            yield Cause(
                "digest_header", f"The header {name} holds the digest of the body, so send it as content-digest."
            )


def _recognised(message: Message, digits: str) -> tuple[str, str, Body | None] | None:
    """(algorithm, encoding or nothing for base64, body or None for the one that was sent) of a digest."""
    for encoding, digest in _decoded(digits):
        for algorithm, compute in ALGORITHMS.items():
            if digest == compute(message.body):
                return algorithm, encoding, None
            for body in other_bodies(message.body):
                if digest == compute(body.content):
                    return algorithm, encoding, body
    return None


def _decoded(digits: str) -> Iterator[tuple[str, bytes]]:
    if _HEX.fullmatch(digits):
        yield "read as hexadecimal", bytes.fromhex(digits)
    padded = digits.rstrip("=") + "=" * (-len(digits.rstrip("=")) % 4)
    try:
        plain = b64decode(padded, validate=True)
        yield "", plain
        if _HEX.fullmatch(plain.decode("latin-1")):
            yield "read as base64 of hexadecimal", bytes.fromhex(plain.decode("ascii"))
    except ValueError:
        pass
    if "-" in digits or "_" in digits:
        yield "read as base64url", urlsafe_b64decode(padded)
