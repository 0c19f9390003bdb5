"""The transport under the guarded client: it looks a name up, checks the addresses and connects to what it checked.

Importing it imports httpcore2, which takes a while; `payres.federation.http` does so when it is first needed.
"""

import logging
import os
import re
import ssl
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from functools import cache
from typing import Any

import httpcore2

from payres.federation.addresses import is_permitted
from payres.federation.failures import FetchFailed
from payres.federation.http import Bounds, Resolver, Response, Trace
from payres.federation.targets import Target

MAX_ADDRESSES = 8
# Servers commonly hang up after 5 s of silence; a connection that is older may be gone when it is used.
KEEPALIVE_SECONDS = 4.0

# Where distributions have their certificates, for a Python whose OpenSSL looks in another place.
_CERTIFICATE_FILES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/cert.pem",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
)
_HASHED_NAME = re.compile(r"[0-9a-f]{8}\.[0-9]")

log = logging.getLogger("payres.federation")


class Transport:
    """Exchanges over a pool of connections. HTTP/1.1 only; no proxies, redirects or cookies."""

    def __init__(self, network: httpcore2.AsyncNetworkBackend, tls: ssl.SSLContext, bounds: Bounds) -> None:
        self._max_body_bytes = bounds.max_body_bytes
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=2 * bounds.in_all if bounds.untrusted_hosts else bounds.in_all,
            max_keepalive_connections=min(bounds.in_all, bounds.idle),
            keepalive_expiry=KEEPALIVE_SECONDS,
            network_backend=network,
        )

    async def exchange(
        self, method: str, target: Target, request_headers: Mapping[str, str], body: bytes, trace: Trace
    ) -> Response:
        """Sends a request with these headers alone, and reads the whole answer. Raises FetchFailed.

        `trace` is called at each step (httpcore2's trace extension).
        """
        try:
            lines = [(name.encode("ascii"), value.encode("ascii")) for name, value in request_headers.items()]
        except UnicodeEncodeError as error:
            raise FetchFailed("bad_request", f"The request to {target.host} cannot be written as HTTP") from error
        url = httpcore2.URL(scheme=target.scheme, host=target.host, port=target.port, target=target.path)
        request = httpcore2.Request(method, url, headers=lines, content=body, extensions={"trace": trace})
        with _translated(target.host):
            response = await self._pool.handle_async_request(request)
            try:
                headers = _joined(response.headers)
                if headers.get("content-encoding", "identity").lower() != "identity":
                    sentence = f"{target.host} answered with a content coding although none was accepted"
                    raise FetchFailed("bad_response", sentence)
                return Response(response.status, headers, await self._read(target.host, response))
            finally:
                await response.aclose()

    async def _read(self, host: str, response: httpcore2.Response) -> bytes:
        body = bytearray()
        async with aclosing(response.aiter_stream()) as parts:
            async for part in parts:
                body += part
                if len(body) > self._max_body_bytes:
                    raise FetchFailed("too_large", f"{host} answered with more than {self._max_body_bytes} bytes")
        return bytes(body)

    async def aclose(self) -> None:
        """Closes every connection."""
        await self._pool.aclose()


class GuardedNetwork(httpcore2.AsyncNetworkBackend):
    """Opens connections to permitted addresses only.

    The check and the connection use the same answer of one lookup, so a name that has another address a moment later
    changes nothing. TLS still verifies the name: the connection pool hands it to the handshake.
    """

    def __init__(
        self,
        allow_private_hosts: bool,
        resolver: Resolver,
        seconds: float,
        opener: httpcore2.AsyncNetworkBackend | None = None,
    ) -> None:
        self._allow_private_hosts = allow_private_hosts
        self._resolver = resolver
        self._seconds = seconds
        self._opener = opener or httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the base class's signature
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """A connection to the first permitted address that takes one. Raises FetchFailed or a httpcore2 exception."""
        *first, last = await self._permitted(host, port)
        # An address that swallows packets must leave time for the next one.
        seconds = self._seconds / min(len(first) + 1, 4)
        for address in first:
            try:
                return _Stream(await self._opener.connect_tcp(address, port, seconds, local_address, socket_options))
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        return _Stream(await self._opener.connect_tcp(last, port, seconds, local_address, socket_options))

    async def _permitted(self, host: str, port: int) -> list[str]:
        """The addresses of a host that may be connected to, at least one. Raises FetchFailed."""
        try:
            found = list(dict.fromkeys(await self._resolver(host, port)))
        except (OSError, ValueError) as error:
            log.debug("the lookup of %s failed: %s", host, error)
            found = []
        permitted = [address for address in found if is_permitted(address, self._allow_private_hosts)]
        if permitted:
            return permitted[:MAX_ADDRESSES]
        if not self._allow_private_hosts:
            # One message for both cases: two would show clients which names there are inside the network.
            log.debug("%s was not asked; its addresses: %s", host, ", ".join(found) or "none")
            raise FetchFailed("unresolvable", f"{host} has no public address; name a host that all the net can reach")
        if found:
            raise FetchFailed(
                "forbidden_address", f"{host} is at an address that is never asked, such as link-local ones"
            )
        raise FetchFailed("unresolvable", f"The name {host} has no address")


class _Stream(httpcore2.AsyncNetworkStream):
    """A connection that is closed when its TLS handshake is cancelled, which httpcore2 does not do."""

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


def _joined(lines: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """Header lines by lower-case name; several of one name are joined with commas (RFC 9110 section 5.3)."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in lines:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


@contextmanager
def _translated(host: str) -> Iterator[None]:
    """Turns what can go wrong on a connection into FetchFailed; the original is its cause."""
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


@cache
def system_tls() -> ssl.SSLContext:
    """Trusts whom the operating system trusted when it was first asked: to read all certificates takes tens of
    milliseconds. The environment cannot name others, as `create_default_context` lets it.

    OpenSSL looks in a directory of hashed names or in a file, depending on the distribution.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    paths = ssl.get_default_verify_paths()
    directory = paths.openssl_capath if _has_hashed_names(paths.openssl_capath) else None
    candidates = (paths.openssl_cafile, *(() if directory else _CERTIFICATE_FILES))
    file = next(filter(os.path.isfile, candidates), None)
    if file or directory:
        context.load_verify_locations(file, directory)
    return context


def _has_hashed_names(directory: str) -> bool:
    return os.path.isdir(directory) and any(_HASHED_NAME.fullmatch(name) for name in os.listdir(directory))
