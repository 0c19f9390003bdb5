"""Whom a request is counted for: its address, and the requester under whom it has slots, so that nobody uses up the
slots of others.

A known client is counted by itself, from any address. New clients are counted together with all others of their
address, and so are clients known by their key alone, because anyone can make any number of keys.
"""

import ipaddress
from contextvars import ContextVar
from functools import lru_cache
from typing import Final

from starlette.types import Scope

# The key for all addresses that cannot be parsed; no address is written like this.
UNREADABLE: Final = "unreadable"
# Characters of an IPv6 address that ends as an IPv4 one. Longer texts are not parsed.
MAX_ADDRESS_LENGTH: Final = 45

# The identity of a known client, or an address as requests are counted by ("" where there is none to count by), with
# the identity of the client there that is known by its key alone.
Requester = tuple[str] | tuple[str, str]

# The requester of the request that is being served; None outside of requests, for the server's own work.
requested_by: ContextVar[Requester | None] = ContextVar("requested_by", default=None)


def count_for_client(identity: str, is_key: bool) -> None:
    """Counts the request for this client; `is_key` for one that is known by its key alone."""
    requester = requested_by.get()
    if requester is not None:
        requested_by.set((requester[0], identity) if is_key else (identity,))


def address_of(scope: Scope) -> str | None:
    """The address that a request is counted under, from the connection or its proxy.

    None for a connection of this machine: a proxy here that names no client must not be counted as one client. Requests
    that a proxy forwards with an unreadable address are counted together, so that they are limited too.
    """
    client = scope.get("client")
    if client is None:
        return None
    found = counted_address(client[0])
    if found is None:
        for name, _ in scope["headers"]:  # a plain loop, because every request passes here
            if name == b"x-forwarded-for":
                return UNREADABLE
    return found


def counted_address(address: str) -> str | None:
    """The key that an address is counted under: itself, or its /64 network for IPv6, which one customer has (RFC 6177).

    None for loopback. UNREADABLE for a text that is no address.
    """
    return _counted(address) if len(address) <= MAX_ADDRESS_LENGTH else UNREADABLE


@lru_cache(maxsize=4096)
def _counted(address: str) -> str | None:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return UNREADABLE
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return _counted(str(parsed.ipv4_mapped))
        if not parsed.is_loopback:
            return str(ipaddress.IPv6Network((parsed, 64), strict=False))
    return None if parsed.is_loopback else str(parsed)
