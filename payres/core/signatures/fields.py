"""The headers of a signature: the members of Signature-Input and Signature, their parameters, and Content-Digest (RFC
9530).

http_sf parses structured fields (RFC 9651). The signature headers are split into members here first, for two reasons: a
signature covers the text of its member as sent, and official SDKs send invalid structured fields. PHP omits the colons
of the signature, Rust sends a signature without a label and component names without quotes.
"""

import hashlib
import hmac
import re
from base64 import b64encode
from binascii import a2b_base64
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, NoReturn

import http_sf
import msgspec

from payres.core.protocol.errors import SignatureError, shown
from payres.core.protocol.limits import MAX_KEYID_LENGTH, MAX_NONCE_LENGTH, MAX_SIGNATURE_HEADER_BYTES, MAX_SIGNATURES

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
# have sixteen spellings. Colons on both sides or (PHP) on neither; padding is optional (RFC 9651 section 4.2.7).
_SIGNATURE = re.compile(r"(:?)([A-Za-z0-9+/]{85}[AQgw])(?:==)?\1")
_UNLABELLED_SIGNATURE = re.compile(rb"[A-Za-z0-9+/]{86}(?:==)?")
_UNQUOTED_COMPONENTS = re.compile(r"\(([@A-Za-z0-9-]+(?: [@A-Za-z0-9-]+)*)\)")
_COMPONENT = re.compile(r"@?[a-z0-9!#$%&'*+.^_`|~-]+")
# The parameters of nearly every client: strings without escapes, and integers (RFC 9651 sections 4.2.4 and 4.2.5).
_PLAIN = r';([a-z]++)=(?:"([ !#-\[\]-~]*+)"|([0-9]{1,15}+))'
_PLAIN_PARAMETER = re.compile(_PLAIN)
_PLAIN_PARAMETERS = re.compile(rf"(?:{_PLAIN})*+")
# The only digest algorithms that RFC 9530 section 7.2 lists as active.
_ALGORITHMS: Final = MappingProxyType({"sha-256": hashlib.sha256, "sha-512": hashlib.sha512})


class SignatureMember(msgspec.Struct, frozen=True):
    """A member of Signature-Input with the member of Signature that has its label, as text: `components` is `(...)`,
    `parameters` is `;created=...` or empty."""

    components: str
    parameters: str
    signature: str

    @property
    def signed_text(self) -> str:
        """The member of Signature-Input as sent, which the last line of the signature base repeats."""
        return self.components + self.parameters


class Parameters(msgspec.Struct, frozen=True):
    """The parameters of a signature; `created` and `expires` are Unix seconds."""

    keyid: str
    created: int
    nonce: str | None
    expires: int | None


def read_signatures(input_value: bytes, signature_value: bytes) -> list[SignatureMember]:
    """Return the signatures of a Signature-Input and a Signature header in order, those with a label in both.

    A bare base64 value without a label (Rust SDK) belongs to the only member of Signature-Input. Raises SignatureError
    if a header is missing or not well-formed, or no label is in both.
    """
    if not input_value or not signature_value:
        absent = "Signature" if input_value else "Signature-Input"
        raise SignatureError("missing_signature", f"Sign the request: it has no {absent} header.")
    inputs = _split(input_value, "Signature-Input", "malformed_signature_input")
    for label, components, _ in inputs:
        if not components:
            says = f'Signature-Input {shown(label)} must be a list of components: ("@method" ...).'
            raise SignatureError("malformed_signature_input", says)
    if len(inputs) == 1 and _UNLABELLED_SIGNATURE.fullmatch(signature_value):
        signatures = {inputs[0][0]: signature_value.decode("ascii")}
    else:
        members = _split(signature_value, "Signature", "malformed_signature")
        signatures = {label: components + rest for label, components, rest in members}
    found = [SignatureMember(names, rest, signatures[label]) for label, names, rest in inputs if label in signatures]
    if not found:
        says = "Use the same label in the Signature-Input and the Signature header."
        raise SignatureError("missing_signature", says)
    return found


def signature_bytes(text: str) -> bytes:
    """Decode one Signature member to its 64 bytes; raise SignatureError if it is anything else."""
    match = _SIGNATURE.fullmatch(text)
    if match is None:
        says = "Send the 64 bytes of an Ed25519 signature as canonical base64 between colons."
        raise SignatureError("malformed_signature", says)
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
            says = f"Component {shown(name)} is not a lower-case header name or derived component."
            raise SignatureError("unsupported_component", says, name[:64])
        if name in seen:
            raise SignatureError("duplicate_component", f"List component {shown(name)} only once.", name[:64])
        seen.add(name)
    return names


def read_parameters(text: str) -> Parameters:
    """Read `;created=...;keyid=...`; raise SignatureError for the first parameter that is malformed or not allowed.

    Parameters without a meaning here are signed like the others, and ignored.
    """
    found = _parse_parameters(text)
    keyid, created, expires, nonce = found.get("keyid"), found.get("created"), found.get("expires"), found.get("nonce")
    # type() rather than isinstance() or ==: to Python a structured-field boolean is an int and a token equals its text.
    if type(keyid) is not str or not 0 < len(keyid) <= MAX_KEYID_LENGTH:
        raise SignatureError("missing_keyid", "Give the kid of your key as the string parameter keyid.")
    _check_fixed(found, "alg", "ed25519", "unsupported_algorithm")
    _check_fixed(found, "tag", "gnap", "unsupported_tag")
    if type(created) is not int:
        raise SignatureError("missing_created", "Give the time of signing as created, an integer of Unix seconds.")
    if expires is not None and type(expires) is not int:
        raise SignatureError("expired", "The expires parameter must be an integer of Unix seconds.")
    if nonce is not None and (type(nonce) is not str or not 0 < len(nonce) <= MAX_NONCE_LENGTH):
        says = f"The nonce must be a string of 1 to {MAX_NONCE_LENGTH} characters."
        raise SignatureError("malformed_nonce", says)
    return Parameters(keyid, created, nonce, expires)


def content_digest(body: bytes, algorithm: str = "sha-512") -> str:
    """Return the Content-Digest value of the raw `body`; `algorithm` is sha-256 or sha-512."""
    return f"{algorithm}=:{b64encode(_ALGORITHMS[algorithm](body).digest()).decode('ascii')}:"


def digest_problem(header: str, body: bytes) -> str | None:
    """Return None if the Content-Digest `header` matches the raw `body`, else the reason why not.

    At least one supported algorithm must be listed and every supported one must match; others are ignored.
    """
    # Nearly every client sends the header exactly as we would write it, which needs no parser.
    algorithm = header.partition("=")[0]
    if algorithm in _ALGORITHMS and header == content_digest(body, algorithm):
        return None
    if len(header) > MAX_SIGNATURE_HEADER_BYTES:
        return "digest_malformed"
    try:
        members = http_sf.parse(header.encode("ascii"), tltype="dictionary", on_duplicate_key=_reject_duplicate)
    except ValueError:
        return "digest_malformed"
    if not isinstance(members, dict) or not members:
        return "digest_malformed"
    supported = {name: member for name, member in members.items() if name in _ALGORITHMS}
    if not supported:
        return "digest_unsupported"
    for name, member in supported.items():
        value = member[0] if isinstance(member, tuple) else member
        if not isinstance(value, bytes):
            return "digest_malformed"
        if not hmac.compare_digest(value, _ALGORITHMS[name](body).digest()):
            return "digest_mismatch"
    return None


def _split(value: bytes, header: str, reason: str) -> list[tuple[str, str, str]]:
    """Return (label, inner list or empty, rest) of every member of a dictionary."""
    if len(value) > MAX_SIGNATURE_HEADER_BYTES:
        says = f"The {header} header is longer than {MAX_SIGNATURE_HEADER_BYTES} bytes; send one signature."
        raise SignatureError(reason, says)
    if not value.isascii():
        raise SignatureError(reason, f"The {header} header must be ASCII.")
    text = value.decode("ascii")
    members: list[tuple[str, str, str]] = []
    position, expected = 0, True
    while expected:
        match = _MEMBER.match(text, position)
        if match is None:
            raise SignatureError(reason, f"The {header} header is not a dictionary such as sig1=...")
        label, components, rest = match[1], match[2] or "", match[3].rstrip(" \t")
        if any(label == member[0] for member in members):
            raise SignatureError(reason, f"The {header} header has the label {shown(label)} twice.")
        if len(members) == MAX_SIGNATURES:
            says = f"At most {MAX_SIGNATURES} signatures are examined; send one."
            raise SignatureError("too_many_signatures", says)
        members.append((label, components, rest))
        position, expected = match.end(), match[4] is not None
    return members


def _component_names(text: str) -> tuple[str, ...]:
    unquoted = _UNQUOTED_COMPONENTS.fullmatch(text)
    if unquoted:
        return tuple(unquoted[1].split(" "))
    try:
        parsed: Any = http_sf.parse(text.encode("ascii"), tltype="list")
        [(items, _)] = parsed
    except ValueError as error:
        raise _malformed_input("component list", "is", error) from None
    for name, parameters in items:
        if type(name) is not str:
            raise SignatureError("malformed_signature_input", "Component names must be quoted strings.")
        if parameters:
            says = f"Cover {shown(name)} without component parameters."
            raise SignatureError("unsupported_component", says, name[:64])
    return tuple(name for name, _ in items)


def _parse_parameters(text: str) -> Mapping[str, object]:
    if _PLAIN_PARAMETERS.fullmatch(text):
        members = _PLAIN_PARAMETER.findall(text)
        found = {name: int(number) if number else string for name, string, number in members}
        if len(found) == len(members):
            return found
    try:
        # The components were parsed before; an empty list in their place carries the parameters.
        parsed: Any = http_sf.parse(b"()" + text.encode("ascii"), tltype="list", on_duplicate_key=_reject_duplicate)
        [(_, parameters)] = parsed
    except ValueError as error:
        raise _malformed_input("parameters", "are", error) from None
    read: Mapping[str, object] = parameters
    return read


def _check_fixed(found: Mapping[str, object], name: str, only: str, reason: str) -> None:
    value = found.get(name, only)
    if type(value) is not str or value != only:
        raise SignatureError(reason, f'Leave the {name} parameter out or send {name}="{only}".')


def _malformed_input(part: str, verb: str, error: ValueError) -> SignatureError:
    says = f"The {part} of Signature-Input {verb} malformed: {str(error)[:160]}."
    return SignatureError("malformed_signature_input", says)


def _reject_duplicate(name: str, _kind: str) -> NoReturn:
    """Raises ValueError for a repeated name. By RFC 9651 the last one counts, but two parsers could disagree."""
    raise ValueError(f"{name} appears twice")
