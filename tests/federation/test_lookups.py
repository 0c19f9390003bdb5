"""Lookups, with name servers that are silent for as long as a test likes."""

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence

import pytest

from payres.federation import failed_names, lookups
from payres.federation.bounds import Bounds
from payres.federation.failures import FetchFailed
from payres.federation.http import GuardedClient
from payres.federation.lookups import Lookups
from payres.limits import (
    FAILED_LOOKUP_SECONDS,
    MAX_LOOKUPS,
    MAX_LOOKUPS_OF_CLIENT,
    MAX_LOOKUPS_OF_KEY,
    MAX_LOOKUPS_OF_REQUESTS,
    SLOW_LOOKUP_SECONDS,
)
from payres.requester import Requester, requested_by
from tests.helpers import TIMEOUT

ANSWER = ["93.184.216.34"]
A, B, CLIENT = ("203.0.113.1",), ("203.0.113.2",), ("https://shop.example/alice",)
KEY: Requester = ("203.0.113.2", "thumbprint")
Waiting = list["asyncio.Task[Sequence[str]]"]


class NameServers:
    """Silent for names with `slow` in them until they are told to speak; names with `none` in them are not known."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._heard = threading.Semaphore(0)
        self.spoken = threading.Event()
        self.now = 1000.0

    def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        self._heard.release()
        if "slow" in host:
            assert self.spoken.wait(TIMEOUT)
        if "none" in host:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return ANSWER

    def wait_for(self, count: int) -> None:
        """Returns once they have been asked so often."""
        assert all(self._heard.acquire(timeout=TIMEOUT) for _ in range(count))

    def lookups(self, bounds_requests: bool = True) -> Lookups:
        return Lookups(bounds_requests, self, lambda: self.now)


@pytest.fixture
def servers() -> Iterator[NameServers]:
    made = NameServers()
    yield made
    made.spoken.set()


async def resolve(made: Lookups, asker: Requester | None, name: str, port: int = 443) -> Sequence[str]:
    requested_by.set(asker)
    return await made.resolve(name, port)


async def begin(made: Lookups, asker: Requester | None, *names: str) -> Waiting:
    """Tasks, each of which has asked for a name and got no answer."""
    tasks = [asyncio.create_task(resolve(made, asker, name)) for name in names]
    await asyncio.sleep(0)
    assert not any(task.done() for task in tasks)
    return tasks


async def failure_of(made: Lookups, asker: Requester | None, name: str) -> FetchFailed:
    with pytest.raises(FetchFailed) as caught:
        await asyncio.create_task(resolve(made, asker, name))
    return caught.value


async def fails(made: Lookups, asker: Requester | None, name: str) -> bool:
    """Whether the name could not be looked up, now or a moment ago."""
    (outcome,) = await asyncio.gather(resolve(made, asker, name), return_exceptions=True)
    return isinstance(outcome, OSError)


def slow(count: int, prefix: str = "h") -> list[str]:
    return [f"{prefix}{number}.slow.example" for number in range(count)]


async def test_lookup_is_shared_by_all_who_ask_meanwhile(servers: NameServers) -> None:
    made = servers.lookups()
    tasks = [asyncio.create_task(resolve(made, asker, name, port)) for asker, name, port in [
        (A, "slow.example", 443), (A, "SLOW.example", 8443), (B, "slow.example", 1), (None, "slow.example", 443)
    ]]  # fmt: skip
    await asyncio.sleep(0)
    servers.spoken.set()
    assert await asyncio.gather(*tasks) == [ANSWER] * 4
    assert servers.asked == ["slow.example"]
    await resolve(made, A, "slow.example")
    assert servers.asked == ["slow.example"] * 2  # nothing is kept of what was found


async def test_lookup_that_fails_fails_for_all_who_ask_meanwhile(servers: NameServers) -> None:
    made = servers.lookups()
    tasks = await begin(made, A, *["none.slow.example"] * 2)
    servers.spoken.set()
    failures = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(failure) for failure in failures] == [socket.gaierror] * 2
    assert servers.asked == ["none.slow.example"]


@pytest.mark.parametrize("host", ["127.0.0.1", "2130706433", "0x7f.1", "::1"])
async def test_address_needs_no_lookup(servers: NameServers, host: str) -> None:
    made = servers.lookups()
    await begin(made, None, *slow(MAX_LOOKUPS))
    assert await resolve(made, A, host) == [{"::1": "::1"}.get(host, "127.0.0.1")]


async def test_lookups_of_a_client_are_limited(servers: NameServers) -> None:
    made = servers.lookups()
    await begin(made, A, *slow(MAX_LOOKUPS_OF_CLIENT - 1))
    assert await resolve(made, A, "good.example") == ANSWER
    await begin(made, A, "last.slow.example")
    failure = await failure_of(made, A, "good.example")
    assert (failure.reason, "good.example" in failure.sentence) == ("busy", True)
    for other in (B, KEY, CLIENT, None):
        assert await resolve(made, other, "good.example") == ANSWER
    assert len(servers.asked) == MAX_LOOKUPS_OF_CLIENT + 5


async def test_lookups_of_a_client_known_by_its_key_alone_are_limited(servers: NameServers) -> None:
    made = servers.lookups()
    await begin(made, KEY, *slow(MAX_LOOKUPS_OF_KEY - 1))
    assert await resolve(made, KEY, "good.example") == ANSWER
    await begin(made, KEY, "last.slow.example")
    assert (await failure_of(made, KEY, "good.example")).reason == "busy"
    assert await resolve(made, B, "good.example") == ANSWER


async def test_lookups_of_requests_are_limited_and_leave_room_for_payments(servers: NameServers) -> None:
    made = servers.lookups()
    for number in range(MAX_LOOKUPS_OF_REQUESTS // MAX_LOOKUPS_OF_CLIENT):
        names = slow(MAX_LOOKUPS_OF_CLIENT, f"{number}.")
        await begin(made, (f"192.0.2.{number}",), *(names if number else names[1:]))
    assert await resolve(made, A, "good.example") == ANSWER
    await begin(made, B, "last.slow.example")
    assert (await failure_of(made, A, "good.example")).reason == "busy"
    assert await resolve(made, None, "good.example") == ANSWER
    await begin(made, None, *slow(MAX_LOOKUPS - MAX_LOOKUPS_OF_REQUESTS, "own"))
    assert (await failure_of(made, None, "good.example")).reason == "busy"


async def test_lookups_in_all_are_limited(servers: NameServers) -> None:
    made = servers.lookups(bounds_requests=False)
    await begin(made, A, *slow(MAX_LOOKUPS - 1))
    assert await resolve(made, A, "good.example") == ANSWER
    tasks = await begin(made, A, "last.slow.example")
    for asker in (A, None):
        assert (await failure_of(made, asker, "good.example")).reason == "busy"
    joined = await begin(made, A, "last.slow.example")  # takes no thread of its own
    servers.spoken.set()
    assert await asyncio.gather(*tasks, *joined) == [ANSWER] * 2
    assert await resolve(made, A, "good.example") == ANSWER


async def test_lookup_that_was_given_up_counts_until_the_system_gives_up(servers: NameServers) -> None:
    made = servers.lookups()
    names = slow(MAX_LOOKUPS_OF_CLIENT)
    given_up = await begin(made, A, *names)
    for task in given_up:
        task.cancel()
    await asyncio.wait(given_up)
    assert all(task.cancelled() for task in given_up)
    assert (await failure_of(made, A, "good.example")).reason == "busy"
    last = await begin(made, A, *names)  # the same names are still being looked up
    servers.spoken.set()
    await asyncio.gather(*last)
    assert await resolve(made, A, "good.example") == ANSWER
    assert len(servers.asked) == MAX_LOOKUPS_OF_CLIENT + 1


async def test_lookup_that_hangs_keeps_no_further_request_waiting(servers: NameServers) -> None:
    made = servers.lookups()
    first = await begin(made, A, "slow.example")
    servers.now += SLOW_LOOKUP_SECONDS - 0.1
    first += await begin(made, A, "slow.example")
    servers.now += 0.1
    failure = await failure_of(made, B, "slow.example")
    assert (failure.reason, "slow.example" in failure.sentence) == ("timeout", True)
    first += await begin(made, None, "slow.example")
    servers.spoken.set()
    assert await asyncio.gather(*first) == [ANSWER] * 3
    assert await resolve(made, B, "slow.example") == ANSWER


async def test_name_that_failed_is_not_looked_up_for_requests_a_while(servers: NameServers) -> None:
    made = servers.lookups()
    for later, asker, asked in [
        (0, A, 1),
        (0, B, 1),
        (FAILED_LOOKUP_SECONDS - 0.1, A, 1),
        (0.1, A, 2),  # which fails again
        (0.1, CLIENT, 2),
        (0.1, None, 3),
    ]:
        servers.now += later
        assert await fails(made, asker, "none.example")
        assert len(servers.asked) == asked


async def test_name_that_is_found_again_is_good_for_all(servers: NameServers) -> None:
    known: list[str] = []

    def find(host: str, port: int) -> Sequence[str]:
        if not known:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return known

    made = Lookups(find=find, clock=lambda: 1000.0)
    assert await fails(made, A, "new.example")
    known += ANSWER
    assert await fails(made, A, "new.example")
    assert await asyncio.create_task(resolve(made, None, "new.example")) == ANSWER
    assert await asyncio.create_task(resolve(made, A, "new.example")) == ANSWER


async def test_names_that_failed_are_remembered_up_to_a_bound(
    servers: NameServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failed_names, "MAX_FAILED_NAMES", 2)
    made = servers.lookups()
    for name in ("1.none.example", "2.none.example", "3.none.example", "3.none.example", "1.none.example"):
        assert await fails(made, A, name)
    assert servers.asked == ["1.none.example", "2.none.example", "3.none.example", "1.none.example"]


async def test_known_hosts_are_looked_up_without_regard_to_who_asks(servers: NameServers) -> None:
    made = servers.lookups(bounds_requests=False)
    await begin(made, A, *slow(MAX_LOOKUPS_OF_CLIENT), "slow.example")
    servers.now += SLOW_LOOKUP_SECONDS
    await begin(made, A, "slow.example")
    for _ in range(2):
        assert await fails(made, A, "none.example")
    assert servers.asked.count("none.example") == 2


async def test_thread_that_cannot_be_had_is_a_failure(servers: NameServers, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    made = servers.lookups()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        for _ in range(MAX_LOOKUPS + 1):
            assert (await failure_of(made, A, "good.example")).reason == "busy"
    assert await resolve(made, A, "good.example") == ANSWER


async def test_clients_hold_nothing_of_each_other(servers: NameServers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has lookups of its own, and what hangs goes on to count when its connections are closed."""
    monkeypatch.setattr(lookups, "find_addresses", servers)
    one, other = (GuardedClient(False, Bounds(in_all=MAX_LOOKUPS, untrusted_hosts=False)) for _ in range(2))
    tasks = [asyncio.create_task(one.get_json(f"https://{name}/")) for name in slow(MAX_LOOKUPS)]
    await asyncio.to_thread(servers.wait_for, MAX_LOOKUPS)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    await one.aclose()
    for client, reason in ((one, "busy"), (other, "unresolvable")):
        async with client:
            with pytest.raises(FetchFailed) as caught:
                await client.get_json("https://none.example/")
        assert (caught.value.reason, caught.value.unsent) == (reason, True)


def test_lookup_that_ends_after_its_loop_is_no_fault(
    servers: NameServers, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults: list[object] = []
    monkeypatch.setattr(threading, "excepthook", faults.append)
    before = set(threading.enumerate())

    async def give_up() -> None:
        (task,) = await begin(servers.lookups(), A, "slow.example")
        task.cancel()

    asyncio.run(give_up())
    (thread,) = set(threading.enumerate()) - before
    servers.spoken.set()
    thread.join(TIMEOUT)
    assert (faults, caplog.text, thread.is_alive()) == ([], "", False)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_process_ends_while_lookups_hang(loop: str) -> None:
    program = f"""
import asyncio, threading, {loop}
from payres.federation.bounds import Bounds
from payres.federation.http import GuardedClient
from payres.federation import failed_names, lookups
lookups.find_addresses = lambda host, port: threading.Event().wait()
async def main():
    async with GuardedClient(False, Bounds(seconds=0.05)) as client:
        try:
            await client.get_json("https://slow.example/")
        except lookups.FetchFailed as error:
            print(error.reason, [thread.name for thread in threading.enumerate()])
{loop}.run(main())
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "timeout ['MainThread', 'lookup']\n", "")
