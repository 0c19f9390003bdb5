"""The transport under the guarded client: it looks a name up, checks the addresses and connects to what it checked.

Importing it imports httpx2, which takes a while; `payres.federation.http` does so when it is first needed.
"""

import logging
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpcore2
import httpx2

from payres.federation.addresses import is_permitted
from payres.federation.failures import FetchFailed

# Looks a host and port up: IP addresses in their usual text form, best first. Raises FetchFailed, OSError and
# ValueError.
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]

log = logging.getLogger("payres.federation")

MAX_ADDRESSES = 8
# Servers commonly hang up after 5 s of silence; a connection that is older may be gone when it is used.
KEEPALIVE_SECONDS = 4.0


class GuardedNetwork(httpcore2.AsyncNetworkBackend):
    """Opens connections to permitted addresses only.

    The check and the connection use the same answer of one lookup, so a name that points elsewhere a moment later
    changes nothing. TLS still proves the name: the connection pool hands it to the handshake.
    """

    def __init__(
        self, allow_private_hosts: bool, resolver: Resolver, seconds: float, opener: httpcore2.AsyncNetworkBackend
    ) -> None:
        self._allow_private_hosts = allow_private_hosts
        self._resolver = resolver
        self._seconds = seconds
        self._opener = opener

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the base class's signature
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """A connection to the first permitted address that takes one. Raises FetchFailed or a httpcore2 exception."""
        addresses = await self._permitted(host, port)
        # An address that swallows packets must leave time for the next one.
        share = self._seconds / min(len(addresses), 4)
        for address in addresses[:-1]:
            try:
                return _Opened(await self._opener.connect_tcp(address, port, share, local_address, socket_options))
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        return _Opened(await self._opener.connect_tcp(addresses[-1], port, share, local_address, socket_options))

    async def _permitted(self, host: str, port: int) -> list[str]:
        found = await self._looked_up(host, port)
        permitted = [address for address in found if is_permitted(address, self._allow_private_hosts)]
        if permitted:
            return permitted[:MAX_ADDRESSES]
        if not self._allow_private_hosts:
            # One answer for both cases: the other one would tell strangers which names there are inside the network.
            log.debug("%s was not asked; its addresses: %s", host, ", ".join(found) or "none")
            raise FetchFailed("unresolvable", f"{host} has no public address; name a host that all the net can reach")
        if found:
            raise FetchFailed(
                "forbidden_address", f"{host} is at an address that is never asked, such as link-local ones"
            )
        raise FetchFailed("unresolvable", f"The name {host} has no address")

    async def _looked_up(self, host: str, port: int) -> list[str]:
        """The addresses of a host; none also when the lookup fails. Raises FetchFailed when there was none."""
        try:
            return list(dict.fromkeys(await self._resolver(host, port)))
        except (OSError, ValueError) as error:
            log.debug("the lookup of %s failed: %s", host, error)
            return []


class _Opened(httpcore2.AsyncNetworkStream):
    """A connection that is closed when its TLS handshake is cut short, which the library forgets for a deadline."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream) -> None:
        self._stream = stream

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - as above
        return await self._stream.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as above
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the base class's signature
    ) -> httpcore2.AsyncNetworkStream:
        try:
            return await self._stream.start_tls(ssl_context, server_hostname, timeout)
        except BaseException:
            await self._stream.aclose()
            raise


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Pools connections made by one network. No proxies, no Unix sockets, HTTP/1.1 only."""

    def __init__(
        self, network: httpcore2.AsyncNetworkBackend, tls: ssl.SSLContext, max_connections: int, max_idle: int
    ) -> None:
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=max_connections,
            max_keepalive_connections=min(max_connections, max_idle),
            keepalive_expiry=KEEPALIVE_SECONDS,
            network_backend=network,
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request. Raises FetchFailed, here and while the body is read."""
        url = request.url
        assert isinstance(request.stream, httpx2.AsyncByteStream)
        with _translated(url.host):
            response = await self._pool.handle_async_request(
                httpcore2.Request(
                    method=request.method,
                    url=httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
                    headers=request.headers.raw,
                    content=request.stream,
                    extensions=request.extensions,
                )
            )
        assert isinstance(response.stream, AsyncIterable)
        return httpx2.Response(status_code=response.status, headers=response.headers, stream=_Body(url.host, response))

    async def aclose(self) -> None:
        """Close every connection."""
        await self._pool.aclose()


class _Body(httpx2.AsyncByteStream):
    def __init__(self, host: str, response: httpcore2.Response) -> None:
        self._host = host
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _translated(self._host):
            async for part in self._response.aiter_stream():
                yield part

    async def aclose(self) -> None:
        await self._response.aclose()


@contextmanager
def _translated(host: str) -> Iterator[None]:
    """Turns what can go wrong on a connection into FetchFailed; the original is kept as its cause."""
    try:
        yield
    except httpcore2.TimeoutException as error:
        raise FetchFailed("timeout", f"{host} did not take a connection in time") from error
    except httpcore2.LocalProtocolError as error:
        raise FetchFailed("bad_request", f"The request to {host} cannot be written as HTTP") from error
    except httpcore2.RemoteProtocolError as error:
        raise FetchFailed("bad_response", f"The answer of {host} broke off, or is not valid HTTP/1.1") from error
    except (httpcore2.NetworkError, OSError, ValueError) as error:
        # OSError and ValueError come from the TLS layer: a broken record, or a name that no certificate can have.
        raise FetchFailed("connection_failed", f"The connection to {host} failed; check that it is up") from error
