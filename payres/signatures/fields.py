"""The Signature-Input and Signature headers: their members, raw, and what each part of a member says.

http_sf parses what is a structured field (RFC 9651). A split of our own comes first, for two reasons: a signature
covers the text of its member as it was sent, and official SDKs send forms that are no structured fields. PHP leaves out
the colons of the signature, Rust sends a signature without a label and component names without quotes.
"""

import re
from binascii import a2b_base64
from functools import lru_cache
from typing import NoReturn, TypeAlias, cast

import http_sf
import msgspec
from http_sf.types import ParamsType

from payres.limits import MAX_SIGNATURE_HEADER_BYTES, MAX_SIGNATURES
from payres.signatures.reasons import Reason, SignatureError, shown

# One dictionary member: key, an inner list if there is one, the rest up to the next comma outside quotes. Every
# quantifier is possessive, so no input makes it backtrack.
_QUOTED = r'"(?:[^"\\]++|\\.)*+"'
_MEMBER = re.compile(
    r"([a-z*][a-z0-9_.*-]*+)="
    rf'(\((?:[^"()]++|{_QUOTED})*+\))?+'
    rf'((?:[^",()]++|{_QUOTED})*+)'
    r"(?:(,)[ \t]*+|\Z)"
)
# 64 bytes in base64 are 86 characters, whose last carries four unused bits. They must be zero, or one signature would
# have sixteen spellings. Colons on both sides or (PHP) on neither; padding may be left out (RFC 9651 section 4.2.7).
_SIGNATURE = re.compile(r"(:?)([A-Za-z0-9+/]{85}[AQgw])(?:==)?\1")
_UNLABELLED_SIGNATURE = re.compile(r"[A-Za-z0-9+/]{86}(?:==)?")
_UNQUOTED_COMPONENTS = re.compile(r"\(([@A-Za-z0-9-]+(?: [@A-Za-z0-9-]+)*)\)")
_COMPONENT = re.compile(r"@?[a-z0-9!#$%&'*+.^_`|~-]+")


# What http_sf gives for a list of inner lists of items; its own types are a union of all that a field may be.
_InnerLists: TypeAlias = list[tuple[list[tuple[object, ParamsType]], ParamsType]]


class SignatureInput(msgspec.Struct, frozen=True):
    """One member of Signature-Input as text: `components` is `(...)`, `parameters` is `;created=...` or empty."""

    label: str
    components: str
    parameters: str

    @property
    def text(self) -> str:
        """The member's value as sent, which is what the last line of the signature base repeats."""
        return self.components + self.parameters


def split_signature_input(value: bytes) -> list[SignatureInput]:
    """Return the members of a Signature-Input header in order; raise SignatureError if it is not well-formed."""
    reason = Reason.MALFORMED_SIGNATURE_INPUT
    inputs = []
    for label, components, parameters in _split(_text(value, "Signature-Input", reason), "Signature-Input", reason):
        if not components:
            raise SignatureError(
                reason, f'Signature-Input {shown(label)} must be a list of components: ("@method" ...).'
            )
        inputs.append(SignatureInput(label, components, parameters))
    return inputs


def split_signature(value: bytes, inputs: list[SignatureInput]) -> dict[str, str]:
    """Return the undecoded signatures of a Signature header by label; raise SignatureError if it is not well-formed.

    A bare base64 value without a label (Rust SDK) belongs to the only member of Signature-Input.
    """
    reason = Reason.MALFORMED_SIGNATURE
    text = _text(value, "Signature", reason)
    if len(inputs) == 1 and _UNLABELLED_SIGNATURE.fullmatch(text):
        return {inputs[0].label: text}
    return {label: components + rest for label, components, rest in _split(text, "Signature", reason)}


def signature_bytes(text: str) -> bytes:
    """Decode one Signature member to its 64 bytes; raise SignatureError if it is anything else."""
    match = _SIGNATURE.fullmatch(text)
    if match is None:
        raise SignatureError(
            Reason.MALFORMED_SIGNATURE, "Send the 64 bytes of an Ed25519 signature as canonical base64 between colons."
        )
    return a2b_base64(match[2] + "==")


@lru_cache(maxsize=256)
def covered_components(text: str) -> tuple[str, ...]:
    """Return the names in a component list `(...)`; raise SignatureError for a name that cannot be covered.

    Cached, because a client sends the same few lists with every request.
    """
    names = _component_names(text)
    seen: set[str] = set()
    for name in names:
        if not _COMPONENT.fullmatch(name):
            raise SignatureError(
                Reason.UNSUPPORTED_COMPONENT,
                f"Component {shown(name)} is not a lower-case header name or derived component.",
                name[:64],
            )
        if name in seen:
            raise SignatureError(Reason.DUPLICATE_COMPONENT, f"List component {shown(name)} only once.", name[:64])
        seen.add(name)
    return names


def _component_names(text: str) -> tuple[str, ...]:
    unquoted = _UNQUOTED_COMPONENTS.fullmatch(text)
    if unquoted:
        return tuple(unquoted[1].split(" "))
    try:
        parsed = cast(_InnerLists, http_sf.parse(text.encode("ascii"), tltype="list"))
        [(items, _)] = parsed
    except ValueError as error:
        raise SignatureError(
            Reason.MALFORMED_SIGNATURE_INPUT, f"The component list of Signature-Input is malformed: {str(error)[:160]}."
        ) from None
    names = []
    for name, parameters in items:
        if type(name) is not str:
            raise SignatureError(Reason.MALFORMED_SIGNATURE_INPUT, "Component names must be quoted strings.")
        if parameters:
            raise SignatureError(
                Reason.UNSUPPORTED_COMPONENT, f"Cover {shown(name)} without component parameters.", name[:64]
            )
        names.append(name)
    return tuple(names)


def reject_duplicate(name: str, _kind: str) -> NoReturn:
    """Raises ValueError for a member or parameter that occurs twice, of which RFC 9651 lets the last one win: no two
    readers can then see different values."""
    raise ValueError(f"{name} appears twice")


def _text(value: bytes, header: str, reason: Reason) -> str:
    if len(value) > MAX_SIGNATURE_HEADER_BYTES:
        raise SignatureError(
            reason, f"The {header} header is longer than {MAX_SIGNATURE_HEADER_BYTES} bytes; send one signature."
        )
    try:
        return value.decode("ascii")
    except UnicodeDecodeError:
        raise SignatureError(reason, f"The {header} header must be ASCII.") from None


def _split(text: str, header: str, reason: Reason) -> list[tuple[str, str, str]]:
    """Return (label, inner list or empty, rest) of every member of a dictionary."""
    members: list[tuple[str, str, str]] = []
    position, expected = 0, True
    while expected:
        match = _MEMBER.match(text, position)
        if match is None:
            raise SignatureError(reason, f"The {header} header is not a dictionary such as sig1=...")
        label, components, rest = match[1], match[2] or "", match[3].rstrip(" \t")
        if members and any(label == member[0] for member in members):
            raise SignatureError(reason, f"The {header} header has the label {shown(label)} twice.")
        if len(members) == MAX_SIGNATURES:
            raise SignatureError(
                Reason.TOO_MANY_SIGNATURES, f"At most {MAX_SIGNATURES} signatures are examined; send one."
            )
        members.append((label, components, rest))
        position, expected = match.end(), match[4] is not None
    return members
