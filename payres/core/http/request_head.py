"""Request heads: their maximum length, and heads that two readers could interpret differently."""

import re
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Final

import httptools

from payres.core.protocol.errors import HeadTooLarge, InvalidRequest
from payres.core.protocol.limits import MAX_HEADER_BYTES

Headers = Sequence[tuple[bytes, bytes]]

_FRAMING: Final = frozenset({b"host", b"transfer-encoding"})
# uri-host [":" port], which may be empty (RFC 9110 section 7.2); some clients send a zone inside the brackets. The
# parser keeps white space after a value, which is not part of it (RFC 9112 section 5.1).
_HOST: Final = re.compile(rb"(?:[0-9A-Za-z.%_~!$&'()*+,;=-]*|\[[0-9A-Za-z.:%_~-]+\])(?::[0-9]*)?[ \t]*")

MALFORMED: Final = "The request is not HTTP/1.1: mend its request line, its headers, or the chunks of its body"
_HOSTS: Final = "Send one Host header, with the host and the port of the URL and nothing else (RFC 9112 section 3.2)"
_CODINGS: Final = "The only Transfer-Encoding is chunked, named once, in HTTP/1.1 (RFC 9112 section 6.1)"


def section_bytes(scope: Mapping[str, Any]) -> int:
    """The length of a header section in its plain spelling, from the request line to the empty line (RFC 9112)."""
    target = len(scope["raw_path"]) + (len(scope["query_string"]) + len("?") if scope["query_string"] else 0)
    headers = scope["headers"]
    fields = sum(map(len, chain.from_iterable(headers))) + len(headers) * len(": \r\n")
    return len(scope["method"]) + target + len("  HTTP/1.1\r\n\r\n") + fields


def too_long() -> HeadTooLarge:
    """The error for too long a header section. Anything after it on the connection is not read (RFC 6585 section 5)."""
    sentence = f"The request line and the headers are longer than the {MAX_HEADER_BYTES} bytes that this server takes"
    return HeadTooLarge(sentence, {"Connection": "close"})


def malformed() -> InvalidRequest:
    """The error for invalid HTTP/1.1."""
    return InvalidRequest(MALFORMED)


def header(headers: Headers, wanted: bytes) -> bytes | None:
    """The value of the first header line with this lower-case name."""
    for name, value in headers:
        if name == wanted:
            return value
    return None


def credentials(headers: Headers, scheme: str) -> str | None:
    """The credentials in an Authorization header of this lower-case scheme, after blanks (RFC 9110 section 11.4)."""
    for name, value in headers:
        if name == b"authorization":
            named, _, found = value.decode("latin-1").partition(" ")
            return (found.strip() or None) if named.lower() == scheme else None
    return None


def declared_length(headers: Headers) -> int | None:
    """The length of the body after a parsed head; None if chunked."""
    for name, value in headers:
        if name == b"content-length":
            return int(value)
        if name == b"transfer-encoding":
            return None
    return 0


def ambiguity(version: str, headers: Headers) -> InvalidRequest | None:
    """The error for a request that another reader, such as a proxy, may interpret differently.

    `headers` have lower-case names. The parser has rejected a Content-Length that is repeated or combined with a
    Transfer-Encoding (RFC 9112 section 6.3), folded lines, and lines that do not end with CR and LF.
    """
    framing = [header for header in headers if header[0] in _FRAMING]
    if version == "1.1" and len(framing) == 1 and _is_host(framing[0]):
        return None  # the common case
    if version not in {"1.0", "1.1"}:
        return malformed()
    hosts = [header for header in framing if header[0] == b"host"]
    if len(hosts) > 1 or (not hosts and version == "1.1") or not all(map(_is_host, hosts)):
        return InvalidRequest(_HOSTS)
    codings = [value.strip(b" \t").lower() for name, value in framing if name == b"transfer-encoding"]
    if codings and (version == "1.0" or codings != [b"chunked"]):
        return InvalidRequest(_CODINGS)
    return None


def without_offer(parser: httptools.HttpRequestParser, target: bytes, headers: Headers) -> bytes:
    """The bytes of the head that the parser has read, without Upgrade."""
    lines = [b"%b %b HTTP/%b" % (parser.get_method(), target, parser.get_http_version().encode())]
    lines += [b"%b: %b" % field for field in headers if field[0] != b"upgrade"]
    return b"\r\n".join([*lines, b"", b""])


def _is_host(header: tuple[bytes, bytes]) -> bool:
    name, value = header
    return name == b"host" and _HOST.fullmatch(value) is not None
