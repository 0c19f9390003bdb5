"""URLs of wallets and resources, built from the public base URL, never from a request's `Host`; and the paths with a
special meaning before routing: for admission, CORS, logs and new wallets.

The routes are in `payres.core.http.routing`; tests compare these paths with them.
"""

import ipaddress
import re
from contextlib import suppress
from functools import lru_cache
from socket import inet_aton, inet_ntoa
from typing import Final, TypeVar
from urllib.parse import SplitResult, quote, urlsplit, urlunsplit

from payres.core.protocol.errors import InvalidRequest
from payres.core.protocol.limits import MAX_HOST_LENGTH, MAX_URL_LENGTH, MAX_WALLET_PATH_LENGTH

T = TypeVar("T")
# Where Interledger peers post packets; it has its own limits.
ILP: Final = "/ilp"
# The roots of the operator's pages and API.
ADMIN_ROOT: Final = "/admin"
ADMIN_API: Final = f"{ADMIN_ROOT}/v1"
# Where an operator sets a password; the secret of the link follows.
LINK_PATH: Final = f"{ADMIN_ROOT}/link/"
# The root of the links in mails that take away what the mail tells of.
NOT_ME: Final = "/not-me"
# The roots of the pages of owners, consent and payments.
PAGE_ROOTS: Final = ("/account", "/settings", "/pay", "/interact", NOT_ME)
# Prefixes of page paths, where errors are pages too.
PAGES: Final = ("/interact/", "/account/", "/settings/", "/pay/", f"{NOT_ME}/")
# The path prefix of a link to set an owner's password; the link's secret follows.
RESET_PATH: Final = "/account/reset/"
# Prefixes of paths closed to scripts of other origins.
CLOSED: Final = (f"{ADMIN_ROOT}/", *PAGES, "/metrics/")

# First segments of paths with signed requests, besides the root.
SIGNED_SEGMENTS: Final = frozenset(
    {"incoming-payments", "outgoing-payments", "outgoing-payment-grant", "quotes", "continue", "token"}
)
# First segments that no wallet may have: of present and future endpoints, and of well-known paths of any site.
RESERVED_SEGMENTS: Final = SIGNED_SEGMENTS | {
    *("ilp", "interact", "admin", "healthz", "readyz", "metrics", "openapi.json"),
    *("account", "discovery", "grant", "not-me", "pay", "settings", "static"),
    *(".well-known", "did.json", "favicon.ico", "jwks.json"),
}

ROOT_WALLET_PATH = ".well-known/pay"
DEFAULT_PORTS = {"http": 80, "https": 443}
RECEIVER = re.compile(r"https?://.+/incoming-payments/.+")
ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
STRAY_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
DOT_SEGMENT = re.compile(r"/\.\.?(?:/|\Z)")
# An application's own scheme is its maker's reversed domain name (RFC 8252 section 7.1), so it has a period (section
# 8.4). Schemes that browsers handle themselves, such as javascript, data, file and blob, have none.
APP_URL = re.compile(r"([A-Za-z][A-Za-z0-9+-]*(?:\.[A-Za-z0-9+-]+)+):/.*")
# An IPv4 address in any form that the system accepts: fewer numbers, octal, hexadecimal.
NUMERIC_HOST = re.compile(r"[0-9][0-9a-fx.]*")
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")
# A path that is already canonical, the common case.
CANONICAL_PATH = re.compile(r"[A-Za-z0-9_~-][A-Za-z0-9._~-]*+(?:/[A-Za-z0-9_~-][A-Za-z0-9._~-]*+)*+")
# Characters that no host has. To browsers a backslash is a slash, which would end the host.
NO_HOST = re.compile(r"[\\<>^|%]")


class Urls:
    """Builds and recognises the URLs under one public base URL."""

    def __init__(self, base_url: str) -> None:
        self.base = base_url.rstrip("/")
        self.host = urlsplit(base_url).hostname or ""
        self.auth_server = self.base + "/"
        self.canonical_base = canonical(self.base)
        self._bases = _spellings(self.canonical_base)
        self._prefix = f"{self.canonical_base}/"

    def wallet(self, path: str) -> str:
        """The wallet address for a path such as `alice`."""
        return f"{self.base}/{path}"

    def pointer(self, path: str) -> str | None:
        """The payment pointer of a wallet, for https only (paymentpointers.org); the root wallet's needs no path."""
        scheme, _, host = self.base.partition("://")
        if scheme != "https":
            return None
        return f"${host}" if path == ROOT_WALLET_PATH else f"${host}/{path}"

    def wallet_path(self, url: str) -> str | None:
        """The wallet path in a wallet address of this server, in lower case; None if it is another server's."""
        path = self._path(url)
        return None if path is None else path.lower()

    def is_ours(self, url: str) -> bool:
        """Whether a URL is under the base URL, however its host is spelled."""
        return self._path(url) is not None

    def own(self, url: str) -> str:
        """A URL with any spelling of the base URL replaced by the configured one; other URLs unchanged."""
        path = self._path(url)
        return url if path is None else f"{self.base}/{path}"

    def canonical_receiver(self, url: str) -> str | None:
        """The canonical URL of an incoming payment, local or remote; None if the URL cannot be one."""
        path = _canonical_path(self._prefix, url)
        if path is not None and path.startswith("incoming-payments/") and path.count("/") == 1:
            return self.resource("incoming-payments", path.rpartition("/")[2])
        plain = canonical_url(url)
        if plain is None or not RECEIVER.fullmatch(plain):
            return None
        identifier = self.resource_id("incoming-payments", plain)
        return plain if identifier is None else self.resource("incoming-payments", identifier)

    def did(self, path: str) -> str:
        """The did:web identifier of a wallet, which resolves to its did.json (did:web method, identifier syntax)."""
        segments = [self.base.partition("://")[2], *path.split("/")]
        return ":".join(["did", "web", *(quote(segment, safe="").replace("~", "%7E") for segment in segments)])

    def resource(self, collection: str, identifier: str) -> str:
        """The URL of a resource, such as `{base}/incoming-payments/{id}`."""
        return f"{self.base}/{collection}/{identifier}"

    def resource_id(self, collection: str, url: str) -> str | None:
        """The identifier in a resource URL of this server, or None if it is another server's or of another kind."""
        path = self._path(url)
        if path is None or not path.startswith(f"{collection}/"):
            return None
        identifier = path[len(collection) + 1 :]
        return None if "/" in identifier else identifier

    def _path(self, url: str) -> str | None:
        """The path after the base URL and a slash; None for a URL of another server."""
        path = _canonical_path(self._prefix, url)
        if path is not None:
            return path
        normal = canonical(url)
        for base in self._bases:
            if normal.startswith(base) and normal[len(base) : len(base) + 1] == "/":
                return normal[len(base) + 1 :]
        return None


def pointed(address: T) -> T | str:
    """The URL that a payment pointer such as $pay.example/bob stands for (paymentpointers.org); all else unchanged."""
    if not isinstance(address, str) or not address.startswith("$"):
        return address
    host, _, path = address[1:].partition("/")
    return f"https://{host}/{path or ROOT_WALLET_PATH}"


@lru_cache(maxsize=256)
def _canonical_path(prefix: str, url: str) -> str | None:
    """The path after the prefix (a base URL with a slash) in an obviously canonical URL; None for others."""
    # Cached, because the steps of a request use the same few URLs.
    if not url.startswith(prefix) or len(url) > MAX_URL_LENGTH:
        return None
    path = url[len(prefix) :]
    return path if CANONICAL_PATH.fullmatch(path) else None


def canonical(url: str) -> str:
    """The form in which different spellings of a URL compare equal (RFC 3986 section 6.2).

    Scheme and host in lower case, the host in ASCII without a trailing period, an IP address in its usual form; no
    default port, no escapes of letters, digits and - . _ ~, no trailing slashes, query or fragment. Any other text is
    returned unchanged, so that it equals nothing: one with user information, with dot segments, which every client
    resolves before it sends, or with a stray percent sign.
    """
    return canonical_url(url) or url


def canonical_url(url: str) -> str | None:
    """The canonical form of a URL; None for a text that has none."""
    return _plain(url) if len(url) <= MAX_URL_LENGTH else None


@lru_cache(maxsize=1024)
def _plain(url: str) -> str | None:
    # Cached, because requests compare the same few wallet addresses.
    parts = _split(url)
    if parts is None:
        return None
    path = parts.path
    if "%" in path:
        if STRAY_PERCENT.search(path):
            return None
        path = ESCAPE.sub(_unescaped, path)
    if "/." in path and DOT_SEGMENT.search(path):
        return None
    host, port = canonical_host(parts.hostname or ""), parts.port
    if ":" in host:
        host = f"[{host}]"
    if port is not None and port != DEFAULT_PORTS[parts.scheme]:
        host = f"{host}:{port}"
    return urlunsplit((parts.scheme, host, path.rstrip("/"), "", ""))


def is_loopback(host: str) -> bool:
    """Whether a host is this machine: a loopback address, or `localhost` or a subdomain of it (RFC 6761)."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost" or host.lower().endswith(".localhost")


def canonical_host(host: str) -> str:
    """The canonical form of a lower-case host, an IPv6 address without brackets; invalid hosts stay unchanged."""
    if ":" in host:
        with suppress(ValueError):
            host = str(ipaddress.IPv6Address(host))
        return host
    if not host.isascii():
        import idna  # rarely needed

        with suppress(idna.IDNAError):
            host = idna.encode(host).decode("ascii")
    host = host.removesuffix(".")
    if NUMERIC_HOST.fullmatch(host):
        with suppress(OSError):
            host = inet_ntoa(inet_aton(host))
    return host


def _spellings(base: str) -> tuple[str, ...]:
    """The canonical base URL, and for loopback also those with the machine's other loopback names."""
    parts = urlsplit(base)
    if f"[{parts.hostname}]" not in LOOPBACK_HOSTS and parts.hostname not in LOOPBACK_HOSTS:
        return (base,)
    port = "" if parts.port is None else f":{parts.port}"
    return (base, *(f"{parts.scheme}://{host}{port}" for host in LOOPBACK_HOSTS if f"//{host}{port}" not in base))


def is_http_url(url: str) -> bool:
    """Whether a text is an absolute http(s) URL without spaces, controls or user information."""
    return _split(url) is not None


def with_ascii_host(url: str) -> str | None:
    """An http(s) URL with its host in ASCII (RFC 5891), otherwise unchanged; None if it or its host is invalid."""
    parts = _split(url)
    if parts is None or parts.netloc.isascii():
        return None if parts is None else url
    if "[" in parts.netloc:  # IP addresses are ASCII
        return None
    host = canonical_host(parts.hostname or "")
    _, colon, port = parts.netloc.partition(":")
    return url.replace(parts.netloc, host + colon + port, 1) if host.isascii() else None


def app_scheme(url: str) -> str | None:
    """The scheme of a URL that opens an application, such as `com.example.app:/done`; None for any other text."""
    match = APP_URL.fullmatch(url) if _is_plain(url) else None
    return match[1].lower() if match else None


def new_wallet_path(path: str) -> str:
    """The path of a new wallet, as stored. Raises InvalidRequest, also if it would shadow the API."""
    clean = require_wallet_path(path)
    segments = clean.split("/")
    collections = {"incoming-payments", "outgoing-payments", "quotes"}  # wallets below them would look like resources
    reserved = segments[0] in RESERVED_SEGMENTS and clean != ROOT_WALLET_PATH
    if reserved or segments[-1] in {"jwks.json", "did.json"} or collections & set(segments):
        raise InvalidRequest(f"{path!r} is reserved by the server; choose another wallet path")
    return clean


def require_wallet_path(path: str) -> str:
    """A wallet's path under the base URL as stored: lower-case, no outer slashes. Raises InvalidRequest."""
    clean = path.strip("/").lower()
    if clean == ROOT_WALLET_PATH:
        return clean
    allowed = all(c.isalnum() or c in "-._~/" for c in clean) and clean.isascii()
    segments = clean.split("/")
    if not clean or not allowed or len(clean) > MAX_WALLET_PATH_LENGTH or any(s in {"", ".", ".."} for s in segments):
        raise InvalidRequest(f"{path!r} cannot be a wallet path: use letters, digits and - . _ ~, such as alice")
    return clean


def _split(url: str) -> SplitResult | None:
    """The parts of an absolute http(s) URL without spaces, controls or user information; None for any other text."""
    if not _is_plain(url):
        return None
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    if parts.scheme not in DEFAULT_PORTS or "@" in parts.netloc or NO_HOST.search(parts.netloc):
        return None
    # Checked before the slow conversion to ASCII, which makes no host shorter.
    return parts if 0 < len(parts.hostname or "") <= MAX_HOST_LENGTH else None


def _is_plain(url: str) -> bool:
    """Whether a text is short enough for a URL, without spaces and control characters."""
    return len(url) <= MAX_URL_LENGTH and url.isprintable() and " " not in url


def _unescaped(escape: re.Match[str]) -> str:
    """The character of an escape that is not needed (RFC 3986 section 2.3), else the escape in capitals."""
    character = chr(int(escape[1], 16))
    return character if character.isascii() and (character.isalnum() or character in "-._~") else escape[0].upper()
