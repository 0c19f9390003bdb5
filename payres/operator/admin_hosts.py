"""Access to the operator's API: only from this machine, unless the setting `admin_hosts` allows more.

To everyone else the API does not exist. A request must pass two checks:

- Its source address. A proxy on this machine must not expose the API to its clients: a forwarded request does not count
  as local, whatever address it names, and passes only by an address or network in the setting.
- Its host name, so that a page in the operator's browser cannot reach the API by a name that resolves to this
  machine (DNS rebinding).
"""

import ipaddress
from typing import Final
from urllib.parse import urlsplit

from starlette.types import Scope

from payres.core.protocol.urls import is_loopback

# Headers of proxies, any of which shows that a request was forwarded.
FORWARDED: Final = frozenset(
    {b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip"}
)


class AdminHosts:
    """The setting: comma-separated addresses, networks and host names."""

    def __init__(self, setting: str) -> None:
        self._networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
        self._names: set[str] = set()
        for host in filter(None, setting.split(",")):
            try:
                self._networks.append(ipaddress.ip_network(host))
            except ValueError:
                self._names.add(host)

    def let_in(self, scope: Scope) -> bool:
        """Whether the request may access the operator's API."""
        names = {name for name, _ in scope["headers"]}
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        client = scope.get("client")
        if client is None or len(hosts) != 1:
            return False
        is_forwarded = not names.isdisjoint(FORWARDED)
        return self._is_good_address(client[0], is_forwarded) and self._is_good_name(hosts[0].decode("latin-1"))

    def _is_good_address(self, text: str, is_forwarded: bool) -> bool:
        address = _address(text)
        address = getattr(address, "ipv4_mapped", None) or address
        if address is None:
            return False
        is_here = address.is_loopback and not is_forwarded
        return is_here or any(address in network for network in self._networks)

    def _is_good_name(self, host: str) -> bool:
        """Whether the host is allowed. An IP address is, because it cannot be rebound."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return is_loopback(name) or name in self._names or _address(name) is not None


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
