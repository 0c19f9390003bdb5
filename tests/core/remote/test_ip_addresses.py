"""Which addresses may be connected to, and lookups with name servers that do not answer."""

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.core.process.rate_limiter import Requester, requested_by
from payres.core.process.worker import cancel_all
from payres.core.protocol import limits
from payres.core.protocol.limits import (
    FAILED_LOOKUP_SECONDS,
    MAX_LOOKUPS,
    MAX_LOOKUPS_OF_CLIENT,
    MAX_LOOKUPS_OF_KEY,
    MAX_LOOKUPS_OF_REQUESTS,
    SLOW_LOOKUP_SECONDS,
)
from payres.core.remote import ip_addresses
from payres.core.remote.connection import FetchFailed, SilentServer
from payres.core.remote.ip_addresses import Lookups, RecentFailures, is_permitted
from tests.core.remote.conftest import Elapse, NameServers
from tests.helpers import TIMEOUT

PUBLIC = [
    *("1.1.1.1", "93.184.216.34", "192.0.1.1", "168.63.129.15", "2606:4700:4700::1111", "2a00:1450:4001:80b::200e"),
    *("2001:200::1", "::ffff:1.1.1.1", "64:ff9b::101:101"),
]
PRIVATE = [
    *("127.0.0.1", "127.255.255.254", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "::1"),
    *("fc00::1", "fd00:ec2::254", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::c0a8:101"),
]
NEVER = [
    *("0.0.0.0", "169.254.169.254", "169.254.0.1", "224.0.0.1", "239.255.255.250", "::", "fe80::1", "fe80::1%eth0"),
    *("ff02::1", "ff0e::1", "::ffff:0.0.0.0", "::ffff:169.254.169.254", "::ffff:a9fe:a9fe", "64:ff9b::a9fe:a9fe"),
    *("64:ff9b::", "localhost", "2130706433", "0x7f.1", "127.1", "127.0.0.01", "1.1.1.1/32", "[::1]", "", "1.1.1.1 "),
]
SPECIAL = [
    *("0.1.2.3", "100.100.100.200", "192.0.0.1", "192.0.0.192", "192.0.2.1", "192.88.99.1", "198.18.0.1"),
    *("198.51.100.1", "203.0.113.1", "240.0.0.1", "255.255.255.255", "168.63.129.16", "::7f00:1"),
    *("64:ff9b:1::101:101", "100::1", "2001::1", "2001:0:7f00:1::", "2001:db8::1", "2002:7f00:1::1"),
    *("2002:101:101::1", "3fff::1", "5f00::1", "fec0::1"),
]


@pytest.mark.parametrize(
    ("addresses", "as_public", "as_private"),
    [(PUBLIC, True, True), (PRIVATE, False, True), (SPECIAL, False, None), (NEVER, False, False)],
    ids=["public", "private", "for special purposes", "never"],
)
def test_addresses_that_are_permitted(addresses: list[str], as_public: bool, as_private: bool | None) -> None:
    for address in addresses:
        assert is_permitted(address, allow_private_hosts=False) is as_public, address
        assert as_private is None or is_permitted(address, allow_private_hosts=True) is as_private, address


@given(st.ip_addresses(v=4))
def test_is_permitted_judges_an_embedded_address_like_the_address_itself(address: IPv4Address) -> None:
    alone = is_permitted(str(address), allow_private_hosts=False)
    assert is_permitted(f"::ffff:{address}", allow_private_hosts=False) is alone
    assert is_permitted(f"64:ff9b::{address}", allow_private_hosts=False) is alone


@given(st.ip_addresses(v=4) | st.ip_addresses(v=6, network="2000::/3"))
def test_is_permitted_takes_no_more_than_python_calls_global(address: IPv4Address | IPv6Address) -> None:
    assert address.is_global or not is_permitted(str(address), allow_private_hosts=False)


ANSWER = ["93.184.216.34"]
A, B, CLIENT = ("203.0.113.1",), ("203.0.113.2",), ("https://shop.example/alice",)
KEY: Requester = ("203.0.113.2", "thumbprint")
Waiting = list["asyncio.Task[Sequence[str]]"]


@pytest.fixture
def lookups(name_servers: NameServers) -> Lookups:
    return Lookups(RecentFailures())


async def resolve(lookups: Lookups, asker: Requester | None, name: str, port: int = 443) -> Sequence[str]:
    requested_by.set(asker)
    return await lookups.resolve(name, port)


async def begin(lookups: Lookups, asker: Requester | None, *names: str, port: int = 443) -> Waiting:
    """Tasks, each of which has asked for a name and got no answer."""
    tasks = [asyncio.create_task(resolve(lookups, asker, name, port)) for name in names]
    await asyncio.sleep(0)
    assert not any(task.done() for task in tasks)
    return tasks


async def failure_of(lookups: Lookups, asker: Requester | None, name: str) -> FetchFailed:
    with pytest.raises(FetchFailed) as caught:
        await asyncio.create_task(resolve(lookups, asker, name))
    return caught.value


async def fail(lookups: Lookups, asker: Requester | None, name: str = "none.example") -> None:
    """Asks for a name that could not be looked up, now or a moment ago."""
    with pytest.raises(OSError, match=r"known|moment ago"):
        await asyncio.create_task(resolve(lookups, asker, name))


def slow(count: int, prefix: str = "h") -> list[str]:
    return [f"{prefix}{number}.slow.example" for number in range(count)]


async def test_lookup_is_shared_by_all_who_ask_meanwhile(lookups: Lookups, name_servers: NameServers) -> None:
    tasks = await begin(lookups, A, "slow.example")
    tasks += await begin(lookups, A, "SLOW.example", port=8443)
    for asker in (B, None):
        tasks += await begin(lookups, asker, "slow.example", port=1)
    name_servers.spoken.set()
    assert await asyncio.gather(*tasks) == [ANSWER] * 4
    assert name_servers.asked == ["slow.example"]
    await resolve(lookups, A, "slow.example")
    assert name_servers.asked == ["slow.example"] * 2  # nothing is kept of what was found


async def test_lookup_that_fails_fails_for_all_who_ask_meanwhile(lookups: Lookups, name_servers: NameServers) -> None:
    tasks = await begin(lookups, A, *["none.slow.example"] * 2)
    name_servers.spoken.set()
    failures = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(failure) for failure in failures] == [socket.gaierror] * 2
    assert name_servers.asked == ["none.slow.example"]


@pytest.mark.parametrize("host", ["127.0.0.1", "2130706433", "0x7f.1", "::1"])
async def test_address_needs_no_lookup(lookups: Lookups, name_servers: NameServers, host: str) -> None:
    await begin(lookups, None, *slow(MAX_LOOKUPS))
    assert await resolve(lookups, A, host) == [{"::1": "::1"}.get(host, "127.0.0.1")]


ADDRESSES = [(f"192.0.2.{number}",) for number in range(MAX_LOOKUPS_OF_REQUESTS // MAX_LOOKUPS_OF_CLIENT)]


@pytest.mark.parametrize(
    ("untrusted_hosts", "asked"),
    [
        (True, [(who, MAX_LOOKUPS_OF_CLIENT + 1, MAX_LOOKUPS_OF_CLIENT) for who in (A, B, CLIENT)]),
        (True, [(KEY, MAX_LOOKUPS_OF_KEY + 1, MAX_LOOKUPS_OF_KEY), (B, 9, MAX_LOOKUPS_OF_CLIENT - MAX_LOOKUPS_OF_KEY)]),
        (
            True,
            [
                *((who, MAX_LOOKUPS_OF_CLIENT, MAX_LOOKUPS_OF_CLIENT) for who in ADDRESSES),
                (A, 1, 0),
                (None, MAX_LOOKUPS, MAX_LOOKUPS - MAX_LOOKUPS_OF_REQUESTS),  # payments have the others
            ],
        ),
        (False, [(A, MAX_LOOKUPS + 1, MAX_LOOKUPS), (None, 1, 0)]),
    ],
    ids=["of a client", "of a key", "of requests", "in all"],
)
async def test_lookups_are_limited(
    name_servers: NameServers, untrusted_hosts: bool, asked: list[tuple[Requester | None, int, int]]
) -> None:
    lookups = Lookups(RecentFailures(), untrusted_hosts)
    tasks: Waiting = []
    for asker, count, begun in asked:
        tasks += await begin(lookups, asker, *slow(begun, str(len(tasks))))
        for _ in range(count - begun):
            failure = await failure_of(lookups, asker, "good.example")
            assert (failure.reason, "good.example" in failure.sentence) == ("busy", True)
    assert len(name_servers.asked) == len(tasks)
    joined = await begin(lookups, asked[0][0], "00.slow.example")  # takes no thread of its own
    name_servers.spoken.set()
    assert await asyncio.gather(*tasks, *joined) == [ANSWER] * (len(tasks) + 1)
    assert await resolve(lookups, asked[0][0], "good.example") == ANSWER


async def test_lookup_that_was_given_up_counts_until_the_system_gives_up(
    lookups: Lookups, name_servers: NameServers
) -> None:
    names = slow(MAX_LOOKUPS_OF_CLIENT)
    await cancel_all(await begin(lookups, A, *names))
    assert (await failure_of(lookups, A, "good.example")).reason == "busy"
    last = await begin(lookups, A, *names)  # the same names are still being looked up
    name_servers.spoken.set()
    await asyncio.gather(*last)
    assert await resolve(lookups, A, "good.example") == ANSWER
    assert len(name_servers.asked) == MAX_LOOKUPS_OF_CLIENT + 1


async def test_lookup_that_hangs_keeps_no_further_request_waiting(
    lookups: Lookups, name_servers: NameServers, elapse: Elapse
) -> None:
    first = await begin(lookups, A, "slow.example")
    elapse(SLOW_LOOKUP_SECONDS - 0.5)
    first += await begin(lookups, A, "slow.example")
    elapse(0.5)
    failure = await failure_of(lookups, B, "slow.example")
    assert (type(failure), failure.sentence) == (
        SilentServer,
        "The name servers for slow.example do not answer; try again in a few seconds",
    )
    first += await begin(lookups, None, "slow.example")
    name_servers.spoken.set()
    assert await asyncio.gather(*first) == [ANSWER] * 3
    assert await resolve(lookups, B, "slow.example") == ANSWER


async def test_name_that_failed_is_not_looked_up_for_requests_a_while(
    lookups: Lookups, name_servers: NameServers, elapse: Elapse
) -> None:
    for later, asker, asked in [
        (0, A, 1),
        (0, B, 1),
        (FAILED_LOOKUP_SECONDS - 0.5, A, 1),
        (0.5, A, 2),  # which fails again
        (0.1, CLIENT, 2),
        (0.1, None, 3),
    ]:
        elapse(later)
        await fail(lookups, asker)
        assert len(name_servers.asked) == asked


async def test_name_that_is_found_again_is_good_for_all(lookups: Lookups, monkeypatch: pytest.MonkeyPatch) -> None:
    await fail(lookups, A)
    monkeypatch.setattr(ip_addresses, "find_addresses", lambda host, port: ANSWER)
    await fail(lookups, A)
    for asker in (None, A):
        assert await asyncio.create_task(resolve(lookups, asker, "none.example")) == ANSWER


async def test_names_that_failed_are_remembered_up_to_a_bound(
    name_servers: NameServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_FAILED_NAMES", 2)
    lookups = Lookups(RecentFailures())
    for name in ("1.none.example", "2.none.example", "3.none.example", "3.none.example", "1.none.example"):
        await fail(lookups, A, name)
    assert name_servers.asked == ["1.none.example", "2.none.example", "3.none.example", "1.none.example"]


async def test_known_hosts_are_looked_up_without_regard_to_who_asks(name_servers: NameServers, elapse: Elapse) -> None:
    lookups = Lookups(RecentFailures(), untrusted_hosts=False)
    await begin(lookups, A, *slow(MAX_LOOKUPS_OF_CLIENT), "slow.example")
    elapse(SLOW_LOOKUP_SECONDS)
    await begin(lookups, A, "slow.example")
    for _ in range(2):
        await fail(lookups, A)
    assert name_servers.asked.count("none.example") == 2


async def test_thread_that_cannot_be_had_is_a_failure(
    lookups: Lookups, name_servers: NameServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        for _ in range(MAX_LOOKUPS + 1):
            assert (await failure_of(lookups, A, "good.example")).reason == "busy"
    assert await resolve(lookups, A, "good.example") == ANSWER


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_process_ends_while_lookups_hang(loop: str) -> None:
    program = f"""
import asyncio, threading, {loop}
from payres.core.remote import http, ip_addresses
from payres.core.remote.connection import FetchFailed
ip_addresses.find_addresses = lambda host, port: threading.Event().wait()
async def main():
    try:
        await http.GuardedClient(False, http.Bounds(seconds=0.05)).get_json("https://slow.example/")
    except FetchFailed:
        print([thread.name for thread in threading.enumerate()])
{loop}.run(main())
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "['MainThread', 'lookup']\n", "")
