from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.federation.ip_addresses import is_permitted

PUBLIC = [
    "1.1.1.1",
    "93.184.216.34",
    "192.0.1.1",
    "168.63.129.15",
    "2606:4700:4700::1111",
    "2a00:1450:4001:80b::200e",
    "2001:200::1",
    "::ffff:1.1.1.1",
    "64:ff9b::101:101",
]
PRIVATE = [
    "127.0.0.1",
    "127.255.255.254",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "100.64.0.1",
    "::1",
    "fc00::1",
    "fd00:ec2::254",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::c0a8:101",
]
NEVER = [
    "0.0.0.0",
    "169.254.169.254",
    "169.254.0.1",
    "224.0.0.1",
    "239.255.255.250",
    "::",
    "fe80::1",
    "fe80::1%eth0",
    "ff02::1",
    "ff0e::1",
    "::ffff:0.0.0.0",
    "::ffff:169.254.169.254",
    "::ffff:a9fe:a9fe",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b::",
    "",
    "localhost",
    "2130706433",
    "0x7f.1",
    "127.1",
    "127.0.0.01",
    "1.1.1.1/32",
    "1.1.1.1 ",
    "[::1]",
]
SPECIAL = [
    "0.1.2.3",
    "100.100.100.200",
    "192.0.0.1",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "240.0.0.1",
    "255.255.255.255",
    "168.63.129.16",
    "::7f00:1",
    "64:ff9b:1::101:101",
    "100::1",
    "2001::1",
    "2001:0:7f00:1::",
    "2001:db8::1",
    "2002:7f00:1::1",
    "2002:101:101::1",
    "3fff::1",
    "5f00::1",
    "fec0::1",
]


@pytest.mark.parametrize("address", PUBLIC)
def test_is_permitted_takes_public_addresses(address: str) -> None:
    assert is_permitted(address, allow_private_hosts=False)
    assert is_permitted(address, allow_private_hosts=True)


@pytest.mark.parametrize("address", [*PRIVATE, *SPECIAL, *NEVER])
def test_is_permitted_refuses_what_is_not_public(address: str) -> None:
    assert not is_permitted(address, allow_private_hosts=False)


@pytest.mark.parametrize("address", PRIVATE)
def test_is_permitted_takes_private_addresses_when_allowed(address: str) -> None:
    assert is_permitted(address, allow_private_hosts=True)


@pytest.mark.parametrize("address", NEVER)
def test_is_permitted_never_takes_metadata_multicast_or_nonsense(address: str) -> None:
    assert not is_permitted(address, allow_private_hosts=True)


@given(st.ip_addresses(v=4))
def test_is_permitted_judges_an_embedded_address_like_the_address_itself(address: IPv4Address) -> None:
    alone = is_permitted(str(address), allow_private_hosts=False)
    assert is_permitted(f"::ffff:{address}", allow_private_hosts=False) is alone
    assert is_permitted(f"64:ff9b::{address}", allow_private_hosts=False) is alone


@given(st.ip_addresses(v=4) | st.ip_addresses(v=6, network="2000::/3"))
def test_is_permitted_takes_no_more_than_python_calls_global(address: IPv4Address | IPv6Address) -> None:
    assert address.is_global or not is_permitted(str(address), allow_private_hosts=False)
