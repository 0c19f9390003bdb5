"""Heads of requests that two readers could understand in two ways: which host is meant, and where the body ends."""

import re
from collections.abc import Sequence
from typing import Final

from payres.http.error_responses import ErrorResponse

_TELLING: Final = frozenset({b"host", b"transfer-encoding"})
# uri-host [":" port], which may be empty (RFC 9110 section 7.2); some clients send a zone inside the brackets.
# The parser leaves white space after a value, which does not belong to it (RFC 9112 section 5.1).
_HOST: Final = re.compile(rb"(?:[0-9A-Za-z.%_~!$&'()*+,;=-]*|\[[0-9A-Za-z.:%_~-]+\])(?::[0-9]*)?[ \t]*")

MALFORMED: Final = "The request is not HTTP/1.1: mend its request line, its headers, or the chunks of its body"
_HOSTS: Final = "Send one Host header, with the host and the port of the URL and nothing else (RFC 9112 section 3.2)"
_CODINGS: Final = "The only Transfer-Encoding is chunked, named once, in HTTP/1.1 (RFC 9112 section 6.1)"
_UPGRADE: Final = "Leave the Upgrade header out of a request with a body: this server speaks HTTP/1.1 only"


def ambiguity(version: str, headers: Sequence[tuple[bytes, bytes]], offers_upgrade: bool) -> ErrorResponse | None:
    """The refusal of a request that another reader on its way, such as a proxy, may understand in another way.

    `headers` have lower-case names. The parser has refused a Content-Length that is repeated or stands beside a
    Transfer-Encoding (RFC 9112 section 6.3), folded lines, and lines that do not end with CR and LF.
    """
    telling = [header for header in headers if header[0] in _TELLING]
    if version == "1.1" and len(telling) == 1 and not offers_upgrade and _is_host(telling[0]):
        return None  # nearly all
    return _judge(version, telling, headers, offers_upgrade)


def _is_host(header: tuple[bytes, bytes]) -> bool:
    name, value = header
    return name == b"host" and _HOST.fullmatch(value) is not None


def _judge(
    version: str, telling: list[tuple[bytes, bytes]], headers: Sequence[tuple[bytes, bytes]], offers_upgrade: bool
) -> ErrorResponse | None:
    if version not in {"1.0", "1.1"}:
        return _refusal(MALFORMED)
    hosts = [header for header in telling if header[0] == b"host"]
    if len(hosts) > 1 or (not hosts and version == "1.1") or not all(map(_is_host, hosts)):
        return _refusal(_HOSTS)
    codings = [value.strip(b" \t").lower() for name, value in telling if name == b"transfer-encoding"]
    if codings and (version == "1.0" or codings != [b"chunked"]):
        return _refusal(_CODINGS)
    # The parser takes what follows such a head for the other protocol: a body would be read as the next request.
    if offers_upgrade and (
        codings or any(name == b"content-length" and value.strip(b" \t0") for name, value in headers)
    ):
        return _refusal(_UPGRADE)
    return None


def _refusal(sentence: str) -> ErrorResponse:
    return ErrorResponse(400, "invalid_request", sentence)
