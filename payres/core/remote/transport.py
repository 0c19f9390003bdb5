"""Connections to other servers: looks up the name, checks the addresses, and connects to a checked address."""

import asyncio
import logging
import os
import re
import socket
import ssl
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import msgspec

from payres.core.protocol.limits import MAX_EXCHANGES, MAX_FETCHED_BYTES
from payres.core.remote.connection import FetchFailed, GuardedConnection, NoAddress, Server, SilentServer
from payres.core.remote.ip_addresses import Lookups, is_permitted

MAX_ADDRESSES = 8
# Servers commonly close a connection after 5 s of inactivity, so longer idle ones may be closed when used.
KEEPALIVE_SECONDS = 4.0

# The certificates of distributions, for a Python whose OpenSSL looks elsewhere.
_CERTIFICATE_FILES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/cert.pem",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
)
_HASHED_NAME = re.compile(r"[0-9a-f]{8}\.[0-9]")

log = logging.getLogger("payres.federation")


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one exchange: seconds from the lookup to the last byte, seconds of waiting before it, body bytes.

    `per_host` and `in_all` limit the concurrent exchanges, `idle` the connections kept open. `untrusted_hosts` means
    that clients' requests name the hosts: these share the exchanges and lookups fairly, and payments have as many
    exchanges of their own.
    """

    seconds: float = 4.0
    queue_seconds: float = 2.0
    max_body_bytes: int = MAX_FETCHED_BYTES
    per_host: int = 4
    in_all: int = MAX_EXCHANGES
    idle: int = 16
    untrusted_hosts: bool = True


class Transport:
    """Opens connections to permitted addresses, without proxies, and keeps some for reuse.

    Connects to exactly the addresses that were checked, from the same lookup, so that a change of the name's address in
    between does not matter (DNS rebinding). TLS still verifies the name.
    """

    def __init__(self, allow_private_hosts: bool, bounds: Bounds, lookups: Lookups) -> None:
        self._allow_private_hosts = allow_private_hosts
        self._bounds = bounds
        self._lookups = lookups
        self._most_idle = bounds.idle
        self._idle: list[GuardedConnection] = []  # longest idle first

    async def connect(self, server: Server, tls: ssl.SSLContext | None) -> GuardedConnection:
        """An idle connection or a new one. `keep` it after its use. Raises FetchFailed.

        `tls` has the trusted certificates; None for plain http.
        """
        return self._kept(server) or await self._connect(server, tls)

    def keep(self, connection: GuardedConnection) -> None:
        """Keeps a connection for another exchange, if it is reusable."""
        if connection.reusable:
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.append(connection)
            if len(self._idle) > self._most_idle:
                self._idle.pop(0).close()

    async def aclose(self) -> None:
        """Closes all idle connections, and from now on each connection after its use."""
        self._most_idle = 0
        while self._idle:
            self._idle.pop().close()
        await asyncio.sleep(0)  # lets them close before the loop ends

    def _kept(self, server: Server) -> GuardedConnection | None:
        """An idle connection to the server that is most likely still open, if any."""
        now = asyncio.get_running_loop().time()
        while self._idle and self._idle[0].idle_since + KEEPALIVE_SECONDS <= now:
            self._idle.pop(0).close()
        for number, connection in enumerate(self._idle):
            if connection.server == server and connection.reusable:
                return self._idle.pop(number)
        return None

    async def _connect(self, server: Server, tls: ssl.SSLContext | None) -> GuardedConnection:
        """A connection to the first permitted address that accepts one. Raises FetchFailed."""
        addresses = await self._permitted(server.host, server.port)
        # An address that drops packets must leave time for the next address.
        seconds = self._bounds.seconds / min(len(addresses), 4)
        options: dict[str, Any] = {}
        if tls is not None:
            tls.set_alpn_protocols(["http/1.1"])
            options = {"ssl": tls, "server_hostname": server.host}
        failure: Exception | None = None
        for address in addresses:
            try:
                async with asyncio.timeout(seconds):
                    opened = partial(GuardedConnection, server, self._bounds.max_body_bytes)
                    return (await open_connection(opened, address, server.port, **options))[1]
            except (OSError, ValueError) as error:
                failure = error
                if isinstance(error, ssl.SSLError | ValueError):  # ValueError: a name that no certificate can have
                    break
        assert failure is not None, "there is at least one address"
        raise no_connection(server.authority, failure) from failure

    async def _permitted(self, host: str, port: int) -> list[str]:
        """The permitted addresses of a host, at least one. Raises FetchFailed."""
        try:
            found = list(dict.fromkeys(await self._lookups.resolve(host, port)))
        except (OSError, ValueError) as error:
            log.debug("the lookup of %s failed: %s", host, error)
            found = []
        permitted = [address for address in found if is_permitted(address, self._allow_private_hosts)]
        if permitted:
            return permitted[:MAX_ADDRESSES]
        if not self._allow_private_hosts:
            # One message for both cases: two would reveal which names exist inside the network.
            log.debug("no request was sent to %s; its addresses: %s", host, ", ".join(found) or "none")
            raise NoAddress(f"{host} has no public address; name a host that all the net can reach")
        if found:
            never = "is at an address that is never asked, such as link-local ones"
            raise FetchFailed(f"{host} {never}", retryable=False)
        raise NoAddress(f"The name {host} has no address")


def no_connection(authority: str, failure: BaseException, speaks: str = "HTTPS") -> FetchFailed:
    """The error, in words, for a connection to a server that failed so, or whose TLS did."""
    if isinstance(failure, ssl.SSLCertVerificationError):  # it has answered, so it is not avoided for a while
        sentence = f"The certificate of {authority} is not trusted: {failure.verify_message.rstrip('.')}"
        return FetchFailed(sentence, "untrusted_certificate")
    if isinstance(failure, ssl.SSLError):
        return SilentServer(f"TLS with {authority} failed; check that it speaks {speaks} at this port")
    if isinstance(failure, socket.gaierror):
        return NoAddress(f"The name {authority} has no address")
    if isinstance(failure, TimeoutError):
        return SilentServer(f"{authority} did not take a connection in time")
    return SilentServer(f"The connection to {authority} failed; check that it is up")


async def open_connection(
    protocol: Callable[[], GuardedConnection], address: str, port: int, **tls: Any
) -> tuple[asyncio.BaseTransport, GuardedConnection]:
    """An operating system connection. Raises OSError, ValueError."""
    return await asyncio.get_running_loop().create_connection(protocol, address, port, **tls)


@cache
def system_tls() -> ssl.SSLContext:
    """The certificates that the operating system trusted at the first call, or those of SSL_CERT_FILE and SSL_CERT_DIR:
    reading them takes tens of milliseconds. Unlike `create_default_context`, it respects no other variables.

    OpenSSL uses a directory of hashed names or a file, depending on the distribution.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    given = [os.environ.get(name) or None for name in ("SSL_CERT_FILE", "SSL_CERT_DIR")]
    if any(given):
        try:
            context.load_verify_locations(*given)
        except OSError as error:  # also that of ssl
            log.warning("SSL_CERT_FILE or SSL_CERT_DIR cannot be read, so that no other server is trusted: %s", error)
        return context
    paths = ssl.get_default_verify_paths()
    directory = paths.openssl_capath if _has_hashed_names(paths.openssl_capath) else None
    candidates = (paths.openssl_cafile, *(() if directory else _CERTIFICATE_FILES))
    file = next(filter(os.path.isfile, candidates), None)
    if file or directory:
        context.load_verify_locations(file, directory)
    return context


def _has_hashed_names(directory: str) -> bool:
    return os.path.isdir(directory) and any(_HASHED_NAME.fullmatch(name) for name in os.listdir(directory))
