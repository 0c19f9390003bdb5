"""Messages, their signature base (RFC 9421 section 2.5), and signing (3.1) as every Open Payments server accepts."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

import http_sf
import msgspec

from payres.core.protocol.errors import SignatureError, shown
from payres.core.signatures.fields import content_digest

Fields: TypeAlias = Mapping[bytes, Sequence[bytes]]

# Existing servers look for exactly this label.
_LABEL: Final = "sig1"
# As integers: on a hot path, `10 in value` is several times faster than `b"\n" in value`.
_LF, _CR, _NUL = b"\n\r\0"
# Matches only at the start of a run of spaces, so that a long run is not scanned again from each of them.
_OBSOLETE_FOLD = re.compile(rb"(?<![ \t])(?:[ \t]*+\r?\n[ \t]++)++")
_ABSOLUTE_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]+)([^?#]*)(\?[^#]*)?")
_DEFAULT_PORTS: Final = MappingProxyType({"http": ":80", "https": ":443"})
_FROM_TARGET_URI: Final[Mapping[str, Callable[[re.Match[str]], str]]] = MappingProxyType(
    {
        "@scheme": lambda uri: uri[1].lower(),
        # RFC 9421 section 2.2.3: lower-case, without the scheme's default port.
        "@authority": lambda uri: uri[2].lower().removesuffix(_DEFAULT_PORTS.get(uri[1].lower(), "")),
        "@path": lambda uri: uri[3] or "/",
        # RFC 9421 section 2.2.7: a lone question mark if there is no query.
        "@query": lambda uri: uri[4] or "?",
        "@request-target": lambda uri: (uri[3] or "/") + (uri[4] or ""),
    }
)


class Message(msgspec.Struct, frozen=True):
    """A request as it was on the wire.

    `target_uri` is absolute: the server's public origin and the raw request target. Header names are lower-case, in the
    shape of ASGI's `scope["headers"]`. `body` is the raw bytes.
    """

    method: str
    target_uri: str
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes = b""


class Unsigned(NamedTuple):
    """The bytes to sign for a message, and the other headers to add to it."""

    base: bytes
    parameters: str
    content: Mapping[str, str]

    def signed(self, signature: bytes) -> dict[str, str]:
        """All headers to add, given the Ed25519 signature of `base`."""
        fields = {"Signature-Input": f"{_LABEL}={self.parameters}", "Signature": f"{_LABEL}={http_sf.ser(signature)}"}
        return {**self.content, **fields}


def sign(
    message: Message, ed25519: Callable[[bytes], bytes], keyid: str, created: int, also: Sequence[str] = ()
) -> dict[str, str]:
    """Return the headers to add to `message`: Signature-Input and Signature, and with a body Content-Digest and
    Content-Length unless the message has them.

    `ed25519` signs bytes with a private key (RFC 8032), from any library. `created` is Unix seconds. `also` are further
    headers to cover, such as `idempotency-key`, if the message has them. A message with a body must have a
    Content-Type. Raises ValueError if it has none, if the keyid is not printable ASCII, or if a covered value cannot be
    signed.
    """
    unsigned = prepare(message, keyid, created, also)
    return unsigned.signed(ed25519(unsigned.base))


def prepare(message: Message, keyid: str, created: int, also: Sequence[str] = ()) -> Unsigned:
    """The first half of `sign`, for a key in another process or in a slow service."""
    fields = header_fields(message.headers)
    components, added = ["@method", "@target-uri"], {}
    if b"authorization" in fields:
        components.append("authorization")
    if message.body:
        if b"content-type" not in fields:
            raise ValueError("A message with a body needs a content-type header to be signed")
        content = {"Content-Digest": content_digest(message.body), "Content-Length": str(len(message.body))}
        added = {name: value for name, value in content.items() if name.lower().encode("ascii") not in fields}
        fields |= {name.lower().encode("ascii"): [value.encode("ascii")] for name, value in added.items()}
        components += ["content-digest", "content-length", "content-type"]
    components += [name for name in also if name.encode("ascii") in fields]
    quoted = " ".join(f'"{name}"' for name in components)
    # The order of the official JavaScript client; servers find keyid by its position after a semicolon.
    parameters = f"({quoted});keyid={_serialized(keyid)};created={created}"
    try:
        return Unsigned(signature_base(message, components, parameters, fields), parameters, added)
    except SignatureError as error:
        raise ValueError(str(error)) from error


@lru_cache(maxsize=16)  # serializing checks every character
def _serialized(keyid: str) -> str:
    return http_sf.ser(keyid)


def header_fields(headers: Sequence[tuple[bytes, bytes]]) -> dict[bytes, list[bytes]]:
    """Return the raw values of the header lines by name, in order."""
    fields: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        fields.setdefault(name, []).append(value)
    return fields


def field_value(lines: Sequence[bytes]) -> bytes:
    """Combine the lines of one header (RFC 9421 section 2.1): unfold and trim each, join with a comma and a space."""
    if len(lines) == 1 and _LF not in lines[0]:
        return lines[0].strip(b" \t")  # the common case
    return b", ".join([_OBSOLETE_FOLD.sub(b" ", line).strip(b" \t") for line in lines])


def signature_base(message: Message, components: Sequence[str], parameters: str, fields: Fields | None = None) -> bytes:
    """Return the signature base of `message` over `components`.

    `parameters` is the text after `"@signature-params": `, the component list with its parameters as sent. `fields`
    avoids reading the headers again. Raises SignatureError for a component that is unknown, absent or not one line.
    """
    fields = header_fields(message.headers) if fields is None else fields
    lines = []
    for name in components:
        value = _derived(message, name) if name[0] == "@" else _header(fields, name)
        # A line break would let one component's value imitate another component's line.
        if _LF in value or _CR in value or _NUL in value:
            raise SignatureError("malformed_component", f"The value of {shown(name)} has a line break.", name)
        lines.append(b'"%b": %b\n' % (name.encode("ascii"), value))
    lines.append(b'"@signature-params": ' + parameters.encode("ascii"))
    return b"".join(lines)


def _header(fields: Fields, name: str) -> bytes:
    lines = fields.get(name.encode("ascii"))
    if lines is None:
        says = f"The signature covers {shown(name)}, but no such header arrived."
        raise SignatureError("component_not_in_message", says, name)
    return field_value(lines)


def _derived(message: Message, name: str) -> bytes:
    if name == "@method":
        value = message.method
    elif name == "@target-uri":
        value = message.target_uri
    elif name in _FROM_TARGET_URI:
        match = _ABSOLUTE_URI.match(message.target_uri)
        if match is None:
            raise SignatureError("malformed_component", f"{name} needs an absolute target URI.", name)
        value = _FROM_TARGET_URI[name](match)
    else:
        raise SignatureError("unsupported_component", f"Do not cover the derived component {shown(name)}.", name)
    # surrogatepass: a request target may contain anything, and must not make this fail.
    return value.encode("utf-8", "surrogatepass")
