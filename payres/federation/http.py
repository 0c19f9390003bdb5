"""The HTTP client for URLs that strangers name: https, public addresses, small bodies, little time, no redirects."""

import asyncio
import ssl
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from payres.federation.failures import FetchFailed
from payres.federation.lookups import Lookups
from payres.federation.places import Places
from payres.limits import MAX_FETCHED_BYTES
from payres.urls import is_http_url

if TYPE_CHECKING:
    import httpcore2
    import httpx2

    from payres.federation.transport import Resolver

__all__ = ["Bounds", "FetchFailed", "GuardedClient", "Response"]


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """What one exchange may cost: seconds from the lookup to the last byte, seconds of waiting before, body bytes.

    `per_host` and `in_all` bound the exchanges at a time, `idle` the connections kept for the next ones. `strangers`
    says that requests name the hosts, so that the lookups that an address asks for are bounded too.
    """

    seconds: float = 5.0
    patience: float = 2.0
    max_body_bytes: int = MAX_FETCHED_BYTES
    per_host: int = 4
    in_all: int = 32
    idle: int = 16
    strangers: bool = True


class Response(msgspec.Struct, frozen=True):
    """An answer, whatever its status. Header names are lower-case; lines of one name are joined with commas."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class GuardedClient:
    """Asks other servers; every failure is a FetchFailed.

    Private and loopback addresses and plain http are for `allow_private_hosts`. `resolver` looks names up, `tls` says
    whose certificates count and `opener` opens the connections; by default they are the operating system's.
    """

    def __init__(
        self,
        allow_private_hosts: bool,
        bounds: Bounds | None = None,
        *,
        resolver: "Resolver | None" = None,
        tls: ssl.SSLContext | None = None,
        opener: "httpcore2.AsyncNetworkBackend | None" = None,
    ) -> None:
        self._allow_private_hosts = allow_private_hosts
        self._bounds = bounds or Bounds()
        # Kept when the connections are closed: what hangs goes on to count.
        self._resolver = resolver or Lookups(self._bounds.strangers).resolve
        self._tls = tls
        self._opener = opener
        self._places = Places(self._bounds.per_host, self._bounds.in_all, self._bounds.patience)
        self._client: httpx2.AsyncClient | None = None

    async def get_json(self, url: str) -> Any:
        """The decoded JSON at a URL. Raises FetchFailed, `bad_status` unless the answer is 200."""
        response = await self.request("GET", url, {"Accept": "application/json"})
        if response.status != 200:
            raise FetchFailed("bad_status", f"{url} answered {response.status} instead of 200", response.status)
        try:
            return msgspec.json.decode(response.body)
        except (ValueError, RecursionError) as error:
            raise FetchFailed("bad_content", f"{url} did not answer with JSON") from error

    async def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        seconds: float | None = None,
    ) -> Response:
        """Send one request and read the whole answer, a redirect or an error too. Raises FetchFailed.

        `seconds` shortens the time that the bounds give the exchange.
        """
        departure = _Departure()
        try:
            client = self._opened()
            request = self._built(client, method, url, headers or {}, body)
            request.extensions["trace"] = departure.watch
            async with self._places.place(request.url.host):
                most = self._bounds.seconds
                return await self._timed(client, request, most if seconds is None else min(seconds, most))
        except FetchFailed as error:
            error.unsent = not departure.begun
            raise

    async def aclose(self) -> None:
        """Close the connections that are kept open. A later request opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _opened(self) -> "httpx2.AsyncClient":
        if self._client is None:
            # Imported here because it takes longer than all the rest of the start, and many servers never need it.
            from http.cookiejar import CookieJar, DefaultCookiePolicy

            import httpcore2
            import httpx2

            from payres.federation.transport import GuardedNetwork, GuardedTransport

            network = GuardedNetwork(
                self._allow_private_hosts,
                self._resolver,
                self._bounds.seconds,
                self._opener or httpcore2.AnyIOBackend(),
            )
            tls = self._tls or httpx2.create_ssl_context(trust_env=False)
            # A jar that takes cookies from nobody: strangers shall not mark us.
            jar = CookieJar(DefaultCookiePolicy(allowed_domains=()))
            self._client = httpx2.AsyncClient(
                transport=GuardedTransport(network, tls, self._bounds.in_all, self._bounds.idle),
                headers={"Accept-Encoding": "identity", "User-Agent": "payres"},
                cookies=jar,
                timeout=None,  # the whole exchange has one deadline
                follow_redirects=False,
                trust_env=False,
            )
        return self._client

    def _built(
        self, client: "httpx2.AsyncClient", method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> "httpx2.Request":
        import httpx2

        if not is_http_url(url):
            raise FetchFailed("bad_url", "The URL is not an absolute http or https URL without user information")
        try:
            request = client.build_request(method, url, headers=dict(headers), content=body or None)
        except httpx2.InvalidURL as error:
            raise FetchFailed("bad_url", f"{url} cannot be parsed as a URL") from error
        except ValueError as error:
            raise FetchFailed("bad_request", f"The request to {url} cannot be written as HTTP") from error
        # Asked of the URL as it will be used, because two parsers may read one text differently.
        parsed = request.url
        if parsed.scheme != "https" and not (parsed.scheme == "http" and self._allow_private_hosts):
            raise FetchFailed("bad_url", f"{url} must start with https://")
        if parsed.userinfo or not parsed.host:
            raise FetchFailed("bad_url", f"{url} must name a host and no user")
        return request

    async def _timed(self, client: "httpx2.AsyncClient", request: "httpx2.Request", seconds: float) -> Response:
        try:
            async with asyncio.timeout(seconds):
                return await self._exchanged(client, request)
        except TimeoutError as error:
            raise FetchFailed("timeout", f"{request.url.host} did not answer within {seconds:g} seconds") from error

    async def _exchanged(self, client: "httpx2.AsyncClient", request: "httpx2.Request") -> Response:
        host = request.url.host
        response = await client.send(request, stream=True)
        try:
            if response.headers.get("content-encoding", "identity").lower() != "identity":
                raise FetchFailed("bad_response", f"{host} answered with a content coding although none was accepted")
            body = bytearray()
            async for part in response.aiter_raw():
                body += part
                if len(body) > self._bounds.max_body_bytes:
                    raise FetchFailed(
                        "too_large", f"{host} answered with more than {self._bounds.max_body_bytes} bytes"
                    )
        finally:
            await response.aclose()
        return Response(response.status_code, dict(response.headers.items()), bytes(body))


class _Departure:
    """Watches an exchange, by httpcore2's trace extension, for the moment when the request begins to leave."""

    def __init__(self) -> None:
        self.begun = False

    async def watch(self, event: str, _info: Mapping[str, Any]) -> None:
        self.begun = self.begun or event.endswith("send_request_headers.started")
