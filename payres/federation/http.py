"""The HTTP client for URLs that clients name: https, public addresses, small bodies, short timeouts, no redirects."""

import asyncio
import ssl
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import msgspec

from payres.federation.bounds import Bounds
from payres.federation.connection import Response
from payres.federation.exchange_slots import ExchangeSlots
from payres.federation.failures import FetchFailed
from payres.federation.lookups import Lookups
from payres.federation.targets import Target, parse_target
from payres.federation.transport import Opener, Resolver, Transport, system_tls
from payres.rate_limiter import RateLimiter


class GuardedClient:
    """Sends requests to other servers; every failure is a FetchFailed.

    Private and loopback addresses and plain http need `allow_private_hosts`. `resolver` looks names up, `tls` has the
    trusted certificates and `opener` opens the connections; by default they are the operating system's. `failed_reads`
    is as for ExchangeSlots.
    """

    def __init__(
        self,
        allow_private_hosts: bool,
        bounds: Bounds | None = None,
        *,
        resolver: Resolver | None = None,
        tls: ssl.SSLContext | None = None,
        opener: Opener | None = None,
        failed_reads: RateLimiter | None = None,
    ) -> None:
        self._allow_private_hosts = allow_private_hosts
        self._bounds = bounds or Bounds()
        self._tls = tls
        self._slots = ExchangeSlots(self._bounds, failed_reads)
        resolver = resolver or Lookups(self._bounds.untrusted_hosts).resolve
        self._transport = Transport(allow_private_hosts, resolver, self._bounds, opener)

    async def get_json(self, url: str) -> Any:
        """The decoded JSON at a URL. Raises FetchFailed, `bad_status` unless the answer is 200."""
        content, _ = await self.get_document(url)
        return content

    async def get_document(self, url: str) -> tuple[Any, Mapping[str, str]]:
        """The same, with the headers of the answer."""
        response = await self.request("GET", url, {"Accept": "application/json"})
        if response.status != 200:
            raise FetchFailed("bad_status", f"{url} answered {response.status} instead of 200")
        try:
            return msgspec.json.decode(response.body), response.headers
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
        """Sends one request and reads the whole answer, also a redirect or an error.

        Raises FetchFailed, and TooManyRequests for a client that caused too many failed requests. `seconds` shortens
        the timeout of the bounds.
        """
        is_sent = False

        def note_sent() -> None:
            nonlocal is_sent
            is_sent = True

        try:
            target = self._permitted(url)
            all_headers = _complete(headers or {}, method, target, body)
            limit = self._bounds.seconds if seconds is None else min(seconds, self._bounds.seconds)
            tls = self._trusted() if target.scheme == "https" else None  # before the timeout begins: it takes a while
            async with self._slots.slot(target.host, target.authority, lambda: is_sent):
                try:
                    async with asyncio.timeout(limit):
                        response = await self._transport.exchange(method, target, all_headers, body, tls, note_sent)
                except TimeoutError as error:
                    raise FetchFailed("timeout", f"{target.host} did not answer within {limit:g} seconds") from error
                if response.status >= 400:
                    self._slots.count_failure()
                return response
        except FetchFailed as error:
            error.unsent = not is_sent
            raise

    async def aclose(self) -> None:
        """Closes the connections that are idle. A later request opens new ones."""
        await self._transport.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _permitted(self, url: str) -> Target:
        target = parse_target(url)
        if target.scheme != "https" and not self._allow_private_hosts:
            raise FetchFailed("bad_url", f"{url} must start with https://")
        return target

    def _trusted(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = system_tls()
        return self._tls


def _complete(given: Mapping[str, str], method: str, target: Target, body: bytes) -> dict[str, str]:
    """The headers of a request: those given, whose names become lower-case, and what HTTP needs besides."""
    headers = {"host": target.authority, "accept-encoding": "identity", "user-agent": "payres"}
    if body or method != "GET":
        headers["content-length"] = str(len(body))
    return headers | {name.lower(): value for name, value in given.items()}
