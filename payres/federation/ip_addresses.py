"""Which IP addresses payres may connect to for an unauthenticated client that names a URL: the guard against SSRF
(server-side request forgery).

The tables are written out where Python's own differ between the versions that payres runs on.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

from payres.urls import canonical_host, is_loopback

# Besides what Python 3.11.0 knows to be not global (IANA special-purpose registry, RFC 6890).
_NOT_PUBLIC_V4 = (
    IPv4Network("192.0.0.0/24"),  # protocol assignments; one cloud's metadata service is among them
    IPv4Network("192.88.99.0/24"),  # 6to4 relays
    IPv4Network("168.63.129.16/32"),  # the host agent of another cloud, which looks public and is not
)
# All unicast assigned so far, so that what is defined later is not public.
_GLOBAL_UNICAST = IPv6Network("2000::/3")
_NOT_PUBLIC_V6 = (
    IPv6Network("2001::/23"),  # protocol assignments; Teredo, which carries an IPv4 address
    IPv6Network("2001:db8::/32"),  # documentation
    IPv6Network("2002::/16"),  # 6to4, which carries an IPv4 address and is no longer in use (RFC 7526)
    IPv6Network("3fff::/20"),  # documentation
)
_NAT64 = IPv6Network("64:ff9b::/96")


def is_permitted(address: str, allow_private_hosts: bool) -> bool:
    """Whether a connection may be made to an address in its usual text form.

    With `allow_private_hosts` all are permitted but link-local (where clouds have credentials), multicast and
    unspecified addresses.
    """
    try:
        parsed = _reached(ip_address(address))
    except ValueError:
        return False
    if not allow_private_hosts:
        return _is_public(parsed)
    return not (parsed.is_link_local or parsed.is_multicast or parsed.is_unspecified)


def names_private_host(url: str) -> bool:
    """Whether the host of a URL is spelled as an address that is not public, or as this machine. What other names
    resolve to is checked with each request."""
    host = canonical_host(urlsplit(url).hostname or "")
    try:
        ip_address(host)
    except ValueError:
        return is_loopback(host)
    return not is_permitted(host, allow_private_hosts=False)


def _reached(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The address where packets end up: the IPv4 address inside a mapped (RFC 4291) or NAT64 (RFC 6052) one."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv6Address):
        return address in _GLOBAL_UNICAST and not any(address in network for network in _NOT_PUBLIC_V6)
    return address.is_global and not address.is_multicast and not any(address in network for network in _NOT_PUBLIC_V4)
