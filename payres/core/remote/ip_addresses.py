"""IP addresses of other servers: name lookup, and which addresses payres may connect to.

The system's lookup cannot be cancelled: its thread stays until the system gives up, long after the requesters have
gone. So each lookup has its own thread, and a slot until that thread ends.
"""

import asyncio
import socket
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from threading import Thread
from typing import Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

from payres.core.process.bounded_mapping import Newest
from payres.core.process.rate_limiter import Requester, requested_by
from payres.core.process.slots import Slots
from payres.core.protocol import limits
from payres.core.protocol.urls import canonical_host, is_loopback
from payres.core.remote.connection import FetchFailed, SilentServer

T = TypeVar("T")

# The tables are explicit where Python's own differ between supported versions. These add to the networks that Python
# 3.11.0 knows to be not global (IANA special-purpose registry, RFC 6890).
_NOT_PUBLIC_V4 = (
    IPv4Network("192.0.0.0/24"),  # protocol assignments; one cloud's metadata service is among them
    IPv4Network("192.88.99.0/24"),  # 6to4 relays
    IPv4Network("168.63.129.16/32"),  # the host agent of another cloud, which only looks public
)
# All unicast assigned so far: later assignments are not public.
_GLOBAL_UNICAST = IPv6Network("2000::/3")
_NOT_PUBLIC_V6 = (
    IPv6Network("2001::/23"),  # protocol assignments; Teredo, which carries an IPv4 address
    IPv6Network("2001:db8::/32"),  # documentation
    IPv6Network("2002::/16"),  # 6to4, which carries an IPv4 address and is no longer in use (RFC 7526)
    IPv6Network("3fff::/20"),  # documentation
)
_NAT64 = IPv6Network("64:ff9b::/96")


class RecentFailures:
    """Names and servers that have just failed, so that requests do not try them again at once.

    Beyond MAX_FAILED_NAMES the oldest is dropped.
    """

    def __init__(self) -> None:
        self._until: Final = Newest[Hashable, float](limits.MAX_FAILED_NAMES)  # by the event loop's clock

    def __contains__(self, name: Hashable) -> bool:
        return name in self._until and asyncio.get_running_loop().time() < self._until[name]

    def add(self, name: Hashable, seconds: float) -> None:
        self._until[name] = asyncio.get_running_loop().time() + seconds

    def discard(self, name: Hashable) -> None:
        self._until.pop(name, None)


class Lookups:
    """The lookups of one HTTP client, which remembers names that `failed`.

    Concurrent requests for a name share one lookup. With `untrusted_hosts`, requests may use only a part of the
    threads, and each client a few of them; they fail fast for names that have just failed or hang.
    """

    def __init__(self, failed: RecentFailures, untrusted_hosts: bool = True) -> None:
        self._untrusted_hosts: Final = untrusted_hosts
        self._slots: Final = Slots(
            limits.MAX_LOOKUPS, limits.MAX_LOOKUPS_OF_REQUESTS, limits.MAX_LOOKUPS_OF_CLIENT, limits.MAX_LOOKUPS_OF_KEY
        )
        self._in_flight: Final[dict[str, _Lookup]] = {}
        self._failed: Final = failed

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """The addresses of a host, best first. Raises FetchFailed (without waiting), OSError and ValueError."""
        with suppress(socket.gaierror):  # addresses, in any spelling that the system accepts, need no lookup
            return _addresses(host, port, socket.AI_NUMERICHOST)
        name = host.lower()  # without the port, which does not change the addresses
        lookup = self._in_flight.get(name)
        requester = requested_by.get() if self._untrusted_hosts else None
        if requester is not None:
            if lookup is not None and asyncio.get_running_loop().time() >= lookup.begun_at + limits.SLOW_LOOKUP_SECONDS:
                raise SilentServer(f"The name servers for {name} do not answer; try again in a few seconds")
            if name in self._failed:
                raise OSError("the name could not be looked up a moment ago")
        lookup = lookup or self._begin(name, port, requester)
        return await asyncio.shield(lookup.addresses)  # others may await the same lookup

    def _begin(self, name: str, port: int, requester: Requester | None) -> "_Lookup":
        key = () if requester is None else ("request", *requester)
        busy = f"The name {name} is not looked up while so many others are; try again in a few seconds"
        if not self._slots.try_take(*key):
            raise FetchFailed(busy, "busy")
        loop = asyncio.get_running_loop()
        try:
            looking = loop.run_in_executor(THREADS, find_addresses, name, port)
        except RuntimeError as error:
            self._slots.release(*key)
            raise FetchFailed(busy, "busy") from error
        lookup = _Lookup(name, key, loop.time(), looking)
        self._in_flight[name] = lookup
        looking.add_done_callback(partial(self._end, lookup))
        return lookup

    def _end(self, lookup: "_Lookup", found: "asyncio.Future[Sequence[str]]") -> None:
        del self._in_flight[lookup.name]
        self._slots.release(*lookup.key)
        if found.exception() is None:  # asked, so that asyncio logs nothing if nobody waits for it
            self._failed.discard(lookup.name)
        else:
            self._failed.add(lookup.name, limits.FAILED_LOOKUP_SECONDS)


class _Threads(Executor):
    """A thread for each call. The interpreter would wait at exit for those of other executors."""

    def submit(self, function: Callable[..., T], /, *args: object, **options: object) -> "Future[T]":
        """Raises RuntimeError if the system has no more threads."""
        future = Future[T]()
        future.set_running_or_notify_cancel()  # who waits may stop, and the thread goes on

        def run() -> None:
            try:
                result = function(*args, **options)
            except Exception as error:  # raised in the waiting tasks
                future.set_exception(error)
            else:
                future.set_result(result)

        Thread(target=run, name="lookup", daemon=True).start()
        return future


THREADS: Final = _Threads()


class _Lookup(NamedTuple):
    """A lookup in progress, with the key of its slot."""

    name: str
    key: tuple[str, ...]
    begun_at: float
    addresses: "asyncio.Future[Sequence[str]]"


def find_addresses(host: str, port: int) -> Sequence[str]:
    """The addresses of a host from the operating system; may block for long. Raises OSError, ValueError."""
    return _addresses(host, port)


def _addresses(host: str, port: int, flags: int = 0) -> Sequence[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return [str(address[0]) for *_, address in found]


def is_permitted(address: str, allow_private_hosts: bool) -> bool:
    """Whether connecting to an address (in its usual text form) is permitted for a URL from a client: the guard against
    server-side request forgery (SSRF).

    With `allow_private_hosts` all are permitted except link-local (where clouds have credentials), multicast and
    unspecified addresses.
    """
    try:
        parsed = _reached(ip_address(address))
    except ValueError:
        return False
    if allow_private_hosts:
        return not (parsed.is_link_local or parsed.is_multicast or parsed.is_unspecified)
    if isinstance(parsed, IPv6Address):
        return parsed in _GLOBAL_UNICAST and not any(parsed in network for network in _NOT_PUBLIC_V6)
    return parsed.is_global and not parsed.is_multicast and not any(parsed in network for network in _NOT_PUBLIC_V4)


def names_private_host(url: str) -> bool:
    """Whether the host of a URL is a literal non-public address, or names this machine. The addresses of other names
    are checked with each request."""
    host = canonical_host(urlsplit(url).hostname or "")
    try:
        ip_address(host)
    except ValueError:
        return is_loopback(host)
    return not is_permitted(host, allow_private_hosts=False)


def _reached(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The address where packets end up: for mapped (RFC 4291) and NAT64 (RFC 6052) ones, the IPv4 address inside."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFFFFFF)
    return address
