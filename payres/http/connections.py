"""The connections of one server together: how many each address has, which are idle, and how many bytes all buffer."""

import resource
from typing import Final, Protocol
from weakref import WeakKeyDictionary

from uvicorn.config import Config
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.server import ServerState

from payres.limits import MAX_BUFFERED_BYTES, MAX_CONNECTIONS, MAX_CONNECTIONS_PER_ADDRESS, SPARE_FILES
from payres.requester import counted_address


def most_connections() -> int:
    """How many connections may be open: MAX_CONNECTIONS, or what the process's files allow."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if files == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, max(files - SPARE_FILES, 1))


def most_of_one_address(most: int) -> int:
    """How many connections one address may have where there may be so many: never more than half of them."""
    return min(MAX_CONNECTIONS_PER_ADDRESS, max(most // 2, 1))


class Connection(Protocol):
    """What is looked at and done with a connection here."""

    def buffered_bytes(self) -> int:
        """How many there are now."""
        ...

    def cut(self) -> None:
        """Ends the connection at once, and drops its buffers."""
        ...

    def shutdown(self) -> None:
        """Closes an idle connection."""
        ...


class Connections:
    """The counts of one server."""

    def __init__(self, config: Config) -> None:
        proxies = ProxyHeadersMiddleware(config.loaded_app, config.forwarded_allow_ips).trusted_hosts
        self._proxies = proxies if config.proxy_headers else ()
        self._open: dict[str, int] = {}
        # In the order in which they became idle: all of them, and those of each address that is counted.
        self._idle: dict[Connection, str | None] = {}
        self._idle_of: dict[str, dict[Connection, None]] = {}
        # In the order in which they began to need it; the bytes are what there was when it was last looked.
        self._buffers: dict[Connection, int] = {}
        self._total = 0

    def counted_address(self, client: tuple[str, int] | None) -> str | None:
        """The address that a connection counts for; None for a proxy, through which many come, and for this machine."""
        return None if client is None or client[0] in self._proxies else counted_address(client[0])

    def enter(self, address: str) -> int:
        """Counts a connection. Returns how many there are of its address now."""
        count = self._open[address] = self._open.get(address, 0) + 1
        return count

    def leave(self, address: str) -> None:
        """A connection that was counted has ended."""
        count = self._open.pop(address) - 1
        if count:
            self._open[address] = count

    def enter_idle(self, connection: Connection, address: str | None) -> None:
        """The connection, which counts for this address, waits for its next request."""
        self._idle[connection] = address
        if address is not None:
            self._idle_of.setdefault(address, {})[connection] = None

    def leave_idle(self, connection: Connection) -> None:
        """The connection has a request, or ends."""
        address = self._idle.pop(connection, None)
        if address is not None:
            of_address = self._idle_of[address]
            del of_address[connection]
            if not of_address:
                del self._idle_of[address]

    def close_idle(self, address: str | None = None) -> bool:
        """Closes the connection that has been idle for longest, of this address or of all; False when none is idle."""
        connection = next(iter(self._idle if address is None else self._idle_of.get(address, ())), None)
        if connection is None:
            return False
        self.leave_idle(connection)
        connection.shutdown()
        return True

    def buffer(self, connection: Connection) -> None:
        """Counts what a connection buffers. When that is too much in all, those that began first are cut."""
        size = connection.buffered_bytes()
        self._total += size - self._buffers.get(connection, 0)
        self._buffers[connection] = size
        if self._total > MAX_BUFFERED_BYTES:
            self._make_room()

    def release(self, connection: Connection) -> None:
        """The connection buffers nothing any more."""
        self._total -= self._buffers.pop(connection, 0)

    def _make_room(self) -> None:
        # What clients have read since is only known now: to look at each step would cost too much.
        self._buffers = {connection: connection.buffered_bytes() for connection in self._buffers}
        self._total = sum(self._buffers.values())
        while self._total > MAX_BUFFERED_BYTES:
            longest = next(iter(self._buffers))
            self.release(longest)
            longest.cut()


_OF_SERVERS: Final[WeakKeyDictionary[ServerState, Connections]] = WeakKeyDictionary()


def connections_of(server: ServerState, config: Config) -> Connections:
    """The counts of this server, of which a process may run several."""
    found = _OF_SERVERS.get(server)
    if found is None:
        found = _OF_SERVERS[server] = Connections(config)
    return found
