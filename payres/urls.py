"""URLs of wallets and resources: built from the public base URL, never from what a request claims in `Host`."""

from urllib.parse import urlsplit, urlunsplit

from payres.errors import Refusal, invalid_request

# First path segments that belong to the API; a wallet may not shadow them (contract: URLs).
RESERVED_SEGMENTS = frozenset(
    {
        *("incoming-payments", "outgoing-payments", "outgoing-payment-grant", "quotes", "ilp"),
        *("continue", "token", "interact", "grant", "discovery", "account", "admin", "static"),
        *("healthz", "readyz", "metrics", "jwks.json", "did.json", ".well-known", "favicon.ico"),
    }
)
ROOT_WALLET_PATH = ".well-known/pay"
DEFAULT_PORTS = {"http": 80, "https": 443}
MAX_URL_LENGTH = 2048


class Urls:
    """Builds and recognises the URLs under one public base URL."""

    def __init__(self, base_url: str) -> None:
        self.base = base_url.rstrip("/")
        self.auth_server = self.base + "/"
        self.resource_server = self.base
        self.normal_base = normalise(self.base)

    def wallet(self, path: str) -> str:
        """The wallet address for a path such as `alice`."""
        return f"{self.base}/{path}"

    def wallet_path(self, url: str) -> str | None:
        """The path under the base URL that a wallet address names, or None when it is not on this server."""
        normal = normalise(url)
        if not normal.startswith(self.normal_base + "/"):
            return None
        return normal[len(self.normal_base) + 1 :].lower()

    def resource(self, collection: str, identifier: str) -> str:
        """The URL of a resource, such as `{base}/incoming-payments/{id}`."""
        return f"{self.base}/{collection}/{identifier}"

    def resource_id(self, collection: str, url: str) -> str | None:
        """The identifier in a resource URL of this server, or None when it is another server's or another kind."""
        normal = normalise(url)
        prefix = f"{self.normal_base}/{collection}/"
        if not normal.startswith(prefix):
            return None
        identifier = normal[len(prefix) :]
        return None if "/" in identifier else identifier


def normalise(url: str) -> str:
    """The form in which two spellings of one URL compare equal.

    Host and scheme lower-case, default port dropped, trailing slashes, query and fragment dropped. A text that is not a
    URL comes back unchanged, so that it equals nothing.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return url
    if not parts.scheme or not parts.hostname:
        return url
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    if port is not None and port != DEFAULT_PORTS.get(parts.scheme):
        host = f"{host}:{port}"
    return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))


def require_http_url(field: str, url: str) -> str:
    """`url` itself when it is an absolute http or https URL; refuses with 400 naming `field` otherwise."""
    if is_http_url(url):
        return url
    raise invalid_request(f"{field} must be an absolute http or https URL", field=field)


def is_http_url(url: str) -> bool:
    """Whether a text is an absolute http(s) URL without spaces, controls or user information."""
    if len(url) > MAX_URL_LENGTH or not url.isprintable() or " " in url:
        return False
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme in DEFAULT_PORTS and bool(parts.hostname) and parts.username is None


def require_wallet_path(path: str) -> str:
    """A wallet's path under the base URL as stored: lower-case, no outer slashes. Refuses what would shadow the API."""
    clean = path.strip("/").lower()
    if clean == ROOT_WALLET_PATH:
        return clean
    allowed = all(c.isalnum() or c in "-._~/" for c in clean) and clean.isascii()
    segments = clean.split("/")
    if not clean or not allowed or len(clean) > 200 or any(s in {"", ".", ".."} for s in segments):
        raise Refusal(
            400, "invalid_request", f"{path!r} cannot be a wallet path: use letters, digits and - . _ ~, such as alice"
        )
    if segments[0] in RESERVED_SEGMENTS or segments[-1] in {"jwks.json", "did.json"}:
        raise Refusal(400, "invalid_request", f"{path!r} is reserved by the server; choose another wallet path")
    return clean
