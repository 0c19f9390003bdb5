"""All connections of a server: their limits, in total and per address, and their buffers."""

import asyncio
import resource
from typing import Any, Final, Protocol, cast
from weakref import WeakKeyDictionary

from uvicorn import Config
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.server import ServerState

from payres.core.process.rate_limiter import counted_address
from payres.core.protocol.limits import MAX_BUFFERED_BYTES, MAX_CONNECTIONS, MAX_CONNECTIONS_PER_ADDRESS, SPARE_FILES


class BufferedConnection(Protocol):
    """The part of a connection used here."""

    transport: asyncio.Transport

    def buffered_bytes(self) -> int:
        """The current number of buffered bytes."""
        ...


class Connections:
    """The connections of a server: their number per address, and the total of buffered bytes.

    `trusted_proxies`, a list or comma-separated addresses, are not counted: many clients come through them.
    """

    def __init__(self, trusted_proxies: str | list[str]) -> None:
        self._proxies = ProxyHeadersMiddleware(cast("Any", None), trusted_proxies).trusted_hosts
        self._open: dict[str, int] = {}
        # In the order in which they began to buffer, with the bytes when last counted.
        self._buffers: dict[BufferedConnection, int] = {}
        self._total = 0
        self.is_stopping = False  # set by a server that stops: one that was accepted just before then ends at once

    def counted_address(self, client: tuple[str, int] | None) -> str | None:
        """The address that a connection counts for; None for a proxy and for this machine."""
        return None if client is None or client[0] in self._proxies else counted_address(client[0])

    def enter(self, address: str) -> int:
        """Counts a connection. Returns the new number for its address."""
        count = self._open[address] = self._open.get(address, 0) + 1
        return count

    def leave(self, address: str) -> None:
        """Removes a connection from the count."""
        count = self._open.pop(address) - 1
        if count:
            self._open[address] = count

    def buffer(self, connection: BufferedConnection, size: int) -> None:
        """Sets a connection's buffered bytes. If the total is too much, cuts connections that have buffered longest."""
        self._total += size - self._buffers.get(connection, 0)
        if size:
            self._buffers[connection] = size
        else:
            self._buffers.pop(connection, None)
        if self._total > MAX_BUFFERED_BYTES:
            self._make_room()

    def _make_room(self) -> None:
        # Counted only now, because counting at each step would cost too much: clients may have read in between.
        self._buffers = {connection: connection.buffered_bytes() for connection in self._buffers}
        self._total = sum(self._buffers.values())
        while self._total > MAX_BUFFERED_BYTES:
            longest = next(iter(self._buffers))
            self._total -= self._buffers.pop(longest)
            longest.transport.abort()


_OF_SERVERS: Final[WeakKeyDictionary[ServerState, Connections]] = WeakKeyDictionary()


def connections_of(server: ServerState, config: Config) -> Connections:
    """The connections of a server, however it was started."""
    found = _OF_SERVERS.get(server)
    if found is None:
        found = _OF_SERVERS[server] = Connections(config.forwarded_allow_ips)
    return found


def most_connections() -> int:
    """The maximum number of open connections: MAX_CONNECTIONS, or what the process's file limit allows."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if files == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, max(files - SPARE_FILES, 1))


def most_of_one_address(most: int) -> int:
    """The maximum number of connections per address, if `most` are allowed in total: at most half of them."""
    return min(MAX_CONNECTIONS_PER_ADDRESS, max(most // 2, 1))
