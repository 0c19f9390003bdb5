"""The signature base (RFC 9421 section 2.5): the bytes that a signature signs."""

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

import msgspec

from payres.signatures.reasons import Reason, SignatureError, shown

Fields: TypeAlias = Mapping[bytes, Sequence[bytes]]

# As integers: on a hot path, `10 in value` is several times faster than `b"\n" in value`.
_LF, _CR, _NUL = b"\n\r\0"
# Starts only where a run of spaces starts, so that a long run is not scanned again from each of its spaces.
_OBSOLETE_FOLD = re.compile(rb"(?<![ \t])(?:[ \t]*+\r?\n[ \t]++)++")
_ABSOLUTE_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]+)([^?#]*)(\?[^#]*)?")
DEFAULT_PORTS: Final = MappingProxyType({"http": ":80", "https": ":443"})


class Message(msgspec.Struct, frozen=True):
    """A request as it was on the wire.

    `target_uri` is absolute: the server's public origin and the raw request target. Header names are lower-case, in the
    shape of ASGI's `scope["headers"]`. `body` is the raw bytes.
    """

    method: str
    target_uri: str
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes = b""

    def header(self, name: str) -> str:
        """The value of a header, its lines combined; empty when there is none."""
        return field_value(header_fields(self.headers).get(name.encode("ascii"), ())).decode("latin-1")


def header_fields(headers: Sequence[tuple[bytes, bytes]]) -> Fields:
    """Return the raw values of the header lines by name, in order."""
    fields: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        fields.setdefault(name, []).append(value)
    return fields


def field_value(lines: Sequence[bytes]) -> bytes:
    """Combine the lines of one header (RFC 9421 section 2.1): unfold and trim each, join with a comma and a space."""
    if len(lines) == 1 and _LF not in lines[0]:
        return lines[0].strip(b" \t")  # nearly always
    return b", ".join([_OBSOLETE_FOLD.sub(b" ", line).strip(b" \t") for line in lines])


def signature_base(message: Message, components: Sequence[str], parameters: str, fields: Fields | None = None) -> bytes:
    """Return the signature base of `message` over `components`.

    `parameters` is the text after `"@signature-params": `, the component list with its parameters as sent. `fields`
    saves reading the headers again. Raises SignatureError for a component that is unknown, absent or not one line.
    """
    fields = header_fields(message.headers) if fields is None else fields
    lines = []
    for name in components:
        value = _derived(message, name) if name[0] == "@" else _header(fields, name)
        # A line break would let one component's value pass for another component's line.
        if _LF in value or _CR in value or _NUL in value:
            raise SignatureError(Reason.MALFORMED_COMPONENT, f"The value of {shown(name)} has a line break.", name)
        lines.append(b'"%b": %b\n' % (name.encode("ascii"), value))
    lines.append(b'"@signature-params": ' + parameters.encode("ascii"))
    return b"".join(lines)


def _header(fields: Fields, name: str) -> bytes:
    lines = fields.get(name.encode("ascii"))
    if lines is None:
        raise SignatureError(
            Reason.COMPONENT_NOT_IN_MESSAGE, f"The signature covers {shown(name)}, but no such header arrived.", name
        )
    return field_value(lines)


def _derived(message: Message, name: str) -> bytes:
    if name == "@method":
        value = message.method
    elif name == "@target-uri":
        value = message.target_uri
    elif name in _FROM_TARGET_URI:
        match = _ABSOLUTE_URI.match(message.target_uri)
        if match is None:
            raise SignatureError(Reason.MALFORMED_COMPONENT, f"{name} needs an absolute target URI.", name)
        value = _FROM_TARGET_URI[name](match)
    else:
        raise SignatureError(Reason.UNSUPPORTED_COMPONENT, f"Do not cover the derived component {shown(name)}.", name)
    # surrogatepass: a request target may hold anything, and building a base must not fail on it.
    return value.encode("utf-8", "surrogatepass")


def _authority(uri: re.Match[str]) -> str:
    # RFC 9421 section 2.2.3: lower-case, without the scheme's default port.
    return uri[2].lower().removesuffix(DEFAULT_PORTS.get(uri[1].lower(), ""))


_FROM_TARGET_URI: Final[Mapping[str, Callable[[re.Match[str]], str]]] = MappingProxyType(
    {
        "@scheme": lambda uri: uri[1].lower(),
        "@authority": _authority,
        "@path": lambda uri: uri[3] or "/",
        # RFC 9421 section 2.2.7: the question mark stands alone when there is no query.
        "@query": lambda uri: uri[4] or "?",
        "@request-target": lambda uri: (uri[3] or "/") + (uri[4] or ""),
    }
)
