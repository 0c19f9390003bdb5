"""URLs of other servers as request targets, and their origins."""

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import Final, NamedTuple
from urllib.parse import quote, urlsplit

from payres.core.protocol.urls import DEFAULT_PORTS, canonical, is_http_url
from payres.core.remote.connection import FetchFailed, Server

# Unescaped characters in paths and queries, besides letters, digits and - . _ ~ (RFC 3986 section 3.3 and 3.4, and what
# browsers leave unescaped too).
PATH_SAFE: Final = "!$%&'()*+,/:;=@[\\]^|"
QUERY_SAFE: Final = PATH_SAFE + "?`{}"

_URL = re.compile(r"https?://([^/?#]*)([^?#]*)(\?[^#]*)?", re.IGNORECASE)
_IPV6_AUTHORITY = re.compile(r"\[[^\[\]]+\](?::[0-9]*)?")
_IPV4 = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+")


class Target(NamedTuple):
    """A URL as sent in a request, in ASCII. An IPv6 host has no brackets; `path` includes the query."""

    scheme: str
    host: str
    port: int | None
    path: str

    @property
    def authority(self) -> str:
        """Host and port as in a Host header; without the scheme's default port."""
        return self.server.authority

    @property
    def server(self) -> Server:
        return Server(self.scheme, self.host, self.port or DEFAULT_PORTS[self.scheme])

    @property
    def url(self) -> str:
        """The full URL, which signatures cover."""
        return f"{self.scheme}://{self.authority}{self.path}"


@lru_cache(maxsize=256)  # a request parses its URL twice, to sign and send it; peers' URLs recur
def parse_target(url: str) -> Target:
    """The target of an http or https URL.

    Raises FetchFailed. Like browsers, resolves dot segments and escapes non-ASCII text (RFC 3986 sections 5.2.4, 2.1).
    """
    parts = _URL.match(url) if is_http_url(url) else None
    if parts is None:
        raise FetchFailed("The URL is not an absolute http or https URL without user information", retryable=False)
    authority, path, query = parts.groups("")
    split = urlsplit(url)
    try:
        host = _ascii_host(authority, split.hostname or "")
    except ValueError as error:
        raise FetchFailed(f"{url} cannot be parsed as a URL", retryable=False) from error
    port = split.port
    target = quote(_without_dots(path) or "/", PATH_SAFE) + quote(query, QUERY_SAFE)
    return Target(split.scheme, host, None if port == DEFAULT_PORTS[split.scheme] else port, target)


def origin_of(url: str) -> str:
    """Scheme, host and port of a URL in canonical form, which identify a server (RFC 6454)."""
    parts = urlsplit(canonical(url))
    return f"{parts.scheme}://{parts.netloc}"


def _ascii_host(authority: str, host: str) -> str:
    """The host to look up. Raises ValueError if it only looks like an IP address, or is not a name."""
    if "[" in authority:
        if not _IPV6_AUTHORITY.fullmatch(authority):
            raise ValueError("brackets are for IPv6 addresses")
        IPv6Address(host)
    elif _IPV4.fullmatch(host):
        IPv4Address(host)
    if host.isascii():
        return host
    import idna  # rarely needed

    return idna.encode(host).decode("ascii")


def _without_dots(path: str) -> str:
    if "/." not in path:
        return path
    segments: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            segments = segments[:1] + segments[1:-1]
        elif segment != ".":
            segments.append(segment)
    return "/".join(segments)
