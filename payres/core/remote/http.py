"""The guarded client: requests to other servers, at public https addresses only."""

import asyncio
import re
from collections.abc import Hashable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

from payres.core.process.rate_limiter import RateLimiter, Requester, requested_by, too_many
from payres.core.process.slots import SlotKey, Slots, SlotsBusy
from payres.core.protocol.limits import FAILED_SERVER_SECONDS, MAX_EXCHANGES_OF_CLIENT, MAX_EXCHANGES_OF_KEY
from payres.core.protocol.urls import DEFAULT_PORTS, canonical, is_http_url
from payres.core.remote.connection import FetchFailed, Response, Server, SilentServer
from payres.core.remote.ip_addresses import Lookups, RecentFailures
from payres.core.remote.transport import Bounds, Transport, system_tls

# Unescaped characters in paths and queries, besides letters, digits and - . _ ~ (RFC 3986 section 3.3 and 3.4, and what
# browsers leave unescaped too).
PATH_SAFE: Final = "!$%&'()*+,/:;=@[\\]^|"
QUERY_SAFE: Final = PATH_SAFE + "?`{}"

_URL = re.compile(r"https?://([^/?#]*)([^?#]*)(\?[^#]*)?", re.IGNORECASE)
_IPV6_AUTHORITY = re.compile(r"\[[^\[\]]+\](?::[0-9]*)?")
_IPV4 = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+")
# How many exchanges may wait per one in flight; more fail at once.
WAITING_FOR_SLOT: Final = 3
_NAMES = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # header names, concatenated (RFC 9110 section 5.1)


class Target(NamedTuple):
    """A URL as sent in a request, in ASCII: an IPv6 host has no brackets, and `path` includes the query."""

    server: Server
    path: str

    @property
    def url(self) -> str:
        """The full URL, which signatures cover."""
        return f"{self.server.scheme}://{self.server.authority}{self.path}"


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
    server = Server(split.scheme, host, split.port or DEFAULT_PORTS[split.scheme])
    return Target(server, quote(_without_dots(path) or "/", PATH_SAFE) + quote(query, QUERY_SAFE))


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


class RemoteEffect(NamedTuple):
    """What a request makes on another server, and who ends it, and when: a row of the table in docs/peering.md."""

    what: str
    ended: str


NOTHING: Final = RemoteEffect("", "")


class GuardedClient(AbstractAsyncContextManager["GuardedClient"]):
    """Sends requests to other servers; every failure is a FetchFailed.

    Private and loopback addresses and plain http need `allow_private_hosts`. `failed_reads` limits how many failed
    requests one client may cause: other servers would count them against this server.
    """

    def __init__(
        self, allow_private_hosts: bool, bounds: Bounds | None = None, failed_reads: RateLimiter | None = None
    ) -> None:
        self._allow_private_hosts = allow_private_hosts
        self._bounds = bounds = bounds or Bounds()
        self._failed_reads = failed_reads
        self._failed = RecentFailures()
        self._transport = Transport(allow_private_hosts, bounds, Lookups(self._failed, bounds.untrusted_hosts))
        # One requester may have half of a host's slots. That slot is taken first: a waiter for it has no other slot.
        per_host = bounds.per_host
        self._of_hosts = Slots(None, None, per_host, max(per_host // 2, 1), queue=WAITING_FOR_SLOT)
        shares = (bounds.in_all, MAX_EXCHANGES_OF_CLIENT, MAX_EXCHANGES_OF_KEY)
        self._slots = Slots(None, *shares, queue=WAITING_FOR_SLOT)

    async def get_json(self, url: str) -> tuple[Any, Mapping[str, str]]:
        """The decoded JSON at a URL, and the response headers. Raises FetchFailed, also for a status other than 200."""
        response = await self.request("GET", url, {"Accept": "application/json"})
        if response.status != 200:
            raise FetchFailed(f"{url} answered {response.status} instead of 200", retryable=response.is_temporary)
        return response.decoded(object, f"{url} did not answer with JSON"), response.headers

    async def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        seconds: float | None = None,
        makes: RemoteEffect | None = None,
    ) -> Response:
        """Sends one request and reads the whole answer, which may be a redirect or an error.

        Raises FetchFailed; TooManyRequests if the client caused too many failures. `seconds` can shorten the timeout.
        A POST says what it `makes` there.
        """
        assert makes or method != "POST", f"say what this makes at {url}, and who ends it"
        target = parse_target(url)
        server = target.server
        if server.scheme != "https" and not self._allow_private_hosts:
            raise FetchFailed(f"{url} must start with https://", retryable=False)
        requester = requested_by.get() if self._bounds.untrusted_hosts else None
        self._check_failures(server, requester)
        request = _head(method, target, headers or {}, body) + body
        limit = self._bounds.seconds if seconds is None else min(seconds, self._bounds.seconds)
        at_host: SlotKey = ("own", server.host) if requester is None else ("request", server.host, requester[0])
        in_all: SlotKey = ("own",) if requester is None else ("request", *requester)
        try:
            async with (
                self._of_hosts.slot(*at_host, seconds=self._bounds.queue_seconds),
                self._slots.slot(*in_all, seconds=self._bounds.queue_seconds),
            ):
                return await self._exchange(server, request, limit, requester)
        except SlotsBusy as error:
            too_busy = "was not asked: too many requests to other servers are in progress; try again shortly"
            raise FetchFailed(f"{server.authority} {too_busy}", "busy") from error

    async def aclose(self) -> None:
        """Closes the idle connections. A later request opens new ones."""
        await self._transport.aclose()

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _check_failures(self, server: Server, requester: Requester | None) -> None:
        """Raises SilentServer for a server that has just failed, TooManyRequests."""
        counted = _counted(requester)
        wait = 0 if self._failed_reads is None or counted is None else self._failed_reads.wait(counted)
        if wait:
            sentence = "Too many requests to other servers have failed for this client. Wait as Retry-After says"
            raise too_many(wait, sentence)
        if requester is not None and (
            (server.authority, None) in self._failed or (server.authority, requester) in self._failed
        ):
            raise SilentServer(f"{server.authority} did not answer a moment ago; try again in a few seconds")

    async def _exchange(self, server: Server, request: bytes, seconds: float, requester: Requester | None) -> Response:
        """Makes one exchange, and records what its outcome says about the server."""
        # Before the timeout starts: reading the certificates takes a while.
        tls = system_tls() if server.scheme == "https" else None
        is_sent = False
        try:
            try:
                async with asyncio.timeout(seconds):
                    connection = await self._transport.connect(server, tls)
                    is_sent = True
                    response = await connection.exchange(request)
            except asyncio.CancelledError as cancelled:
                cancelled.add_note(server.authority)  # names the slow host to callers that time several exchanges
                raise
            except TimeoutError as error:
                raise SilentServer(f"{server.authority} did not answer within {seconds:g} seconds") from error
        except FetchFailed as error:
            error.unsent = not is_sent
            if error.reason != "busy":  # not the requester's fault
                self._count_failure(requester)
            if isinstance(error, SilentServer) and requester is not None:
                # A server that accepts connections may be slow only for this requester's requests.
                self._failed.add((server.authority, requester if is_sent else None), FAILED_SERVER_SECONDS)
            raise
        self._transport.keep(connection)
        self._failed.discard((server.authority, None))
        if response.status >= 400:
            self._count_failure(requester)
        return response

    def _count_failure(self, requester: Requester | None) -> None:
        counted = _counted(requester)
        if self._failed_reads is not None and counted is not None:
            self._failed_reads.take(counted)


def _counted(requester: Requester | None) -> Hashable:
    """The key that failures are counted under; None for an unauthenticated client without an address."""
    return None if requester in {None, ("",)} else requester[0] or requester


def _head(method: str, target: Target, given: Mapping[str, str], body: bytes) -> bytes:
    """The head of a request with the given headers, in lower case, and those required by HTTP. Raises FetchFailed."""
    headers = {"host": target.server.authority, "accept-encoding": "identity", "user-agent": "payres"}
    if body or method != "GET":
        headers["content-length"] = str(len(body))
    headers |= {name.lower(): value for name, value in given.items()}
    first, lines = f"{method} {target.path} HTTP/1.1", [f"{name}: {value}" for name, value in headers.items()]
    text = "".join((first, *lines))
    if first.count(" ") != 2 or not (text.isascii() and text.isprintable() and _NAMES.fullmatch("".join(headers))):
        raise FetchFailed(f"The request to {target.server.authority} cannot be written as HTTP", retryable=False)
    return "\r\n".join((first, *lines, "\r\n")).encode("ascii")
