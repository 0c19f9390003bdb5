"""What a signer may have signed: a reading of the request that can be varied and tried against a key."""

import re
from base64 import b64decode, urlsafe_b64decode
from collections.abc import Callable, Iterator

import msgspec
from cryptography.exceptions import InvalidSignature

from payres.limits import MAX_SIGNATURE_HEADER_BYTES
from payres.signatures.base import Fields, Message, field_value, header_fields, signature_base
from payres.signatures.fields import SignatureInput
from payres.signatures.jwk import JWK, public_key
from payres.signatures.reasons import SignatureError
from payres.signatures.verify import respelled

# Much more than the verifier takes: a label may be missing, names unquoted, blanks anywhere.
_INPUT = re.compile(r'(?:([A-Za-z0-9_.*-]+)[ ]?=[ ]?)?(\([^()]*\))((?:[ ]?;[^,;"]*(?:"[^"]*")?)*)')
_NAME = re.compile(r'"([^"]*)"|([^\s"()]+)')
_SIGNATURE = re.compile(r"(?:([A-Za-z0-9_.*-]+)[ ]?=[ ]?)?([:\"']?)([A-Za-z0-9+/_-]{64,128}={0,2})([:\"']?)")
_HEX = re.compile(r"[0-9A-Fa-f]{128}")
_KEYID = re.compile(r';\s*keyid\s*=\s*(?:"([^"]*)"|([^;\s"]+))', re.IGNORECASE)


class KnownKey(msgspec.Struct, frozen=True):
    """A key to try; `unusable` is why the server does not take it, such as "was revoked", or None when it does."""

    jwk: JWK
    unusable: str | None = None


def as_it_is(base: bytes) -> bytes:
    """The base itself, which is what should be signed."""
    return base


class Guess(msgspec.Struct, frozen=True):
    """One way in which the signature may have come about. `parameters` is what the last line of the base repeats;
    `spelling` turns the base into the bytes that were signed."""

    message: Message
    components: tuple[str, ...]
    parameters: str
    signature: bytes
    key: KnownKey
    spelling: Callable[[bytes], bytes] = as_it_is

    def verifies(self) -> bool:
        """Whether the signature is one over just this."""
        try:
            base = signature_base(self.message, self.components, self.parameters)
            public_key(self.key.jwk.x).verify(self.signature, self.spelling(base))
        except (SignatureError, UnicodeError, InvalidSignature):
            return False
        return True


def is_taken(guess: Guess) -> bool:
    """Whether the verifier takes the signature: it forgives one spelling of the target."""
    other = respelled(guess.message)
    return guess.verifies() or (other is not None and msgspec.structs.replace(guess, message=other).verifies())


class Reading(msgspec.Struct, frozen=True):
    """A signature read with more patience than the verifier has. `oddities` are the forms it had to forgive, each as
    a clause about what to send instead."""

    entry: SignatureInput
    components: tuple[str, ...]
    keyid: str | None
    signature: bytes
    oddities: tuple[str, ...]


def read_patiently(message: Message) -> Iterator[Reading]:
    """Every pair of an input and a signature that can be made out of the two headers, those of one label first."""
    fields = header_fields(message.headers)
    inputs = [match.groups() for match in _INPUT.finditer(_text(fields, b"signature-input")) if match[2]]
    signatures = [match.groups() for match in _SIGNATURE.finditer(_text(fields, b"signature"))]
    pairs = [(one, other) for one in inputs[:4] for other in signatures[:4]]
    for (label, components, parameters), (other, opening, digits, closing) in sorted(
        pairs, key=lambda pair: pair[0][0] != pair[1][0]
    ):
        decoded, oddity = _decoded(digits)
        if len(decoded) != 64:
            continue
        odd = [*_odd_labels(label, other), *_odd_marks(opening, closing), *oddity]
        keyid = _KEYID.search(parameters)
        yield Reading(
            entry=SignatureInput(label or other or "", components, parameters),
            components=tuple(quoted or bare for quoted, bare in _NAME.findall(components)),
            keyid=(keyid[1] or keyid[2]) if keyid else None,
            signature=decoded,
            oddities=tuple(odd),
        )


def _text(fields: Fields, name: bytes) -> str:
    return field_value(fields.get(name, ()))[:MAX_SIGNATURE_HEADER_BYTES].decode("latin-1")


def _decoded(digits: str) -> tuple[bytes, list[str]]:
    if _HEX.fullmatch(digits):
        return bytes.fromhex(digits), ["write the signature in base64, and not in hexadecimal"]
    padded = digits.rstrip("=") + "=" * (-len(digits.rstrip("=")) % 4)
    try:
        if "-" in digits or "_" in digits:
            return urlsafe_b64decode(padded), ["write the signature in base64 with + and /, and not in base64url"]
        return b64decode(padded, validate=True), []
    except ValueError:
        return b"", []


def _odd_labels(label: str | None, other: str | None) -> list[str]:
    if label is None:
        return ["begin Signature-Input with a label, as in sig1=(...)"]
    # A bare signature beside a single input is taken; a label of its own has to be the same.
    if other is not None and other != label:
        return [f"use one label in both headers; Signature-Input has {label} and Signature has {other}"]
    return []


def _odd_marks(opening: str, closing: str) -> list[str]:
    if (opening, closing) in ((":", ":"), ("", "")):
        return []
    return ["put the base64 of the signature between two colons, as in sig1=:...:"]
