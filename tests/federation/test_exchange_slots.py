"""Slots of the exchanges with other servers, and servers that have just failed."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from payres.federation.bounds import Bounds
from payres.federation.exchange_slots import ExchangeSlots
from payres.federation.failures import FetchFailed, Reason
from payres.federation.http import GuardedClient
from payres.limits import FAILED_SERVER_SECONDS, MAX_EXCHANGES, MAX_EXCHANGES_OF_CLIENT, MAX_EXCHANGES_OF_KEY
from payres.requester import Requester, count_for_client, requested_by
from tests.federation.conftest import Elapse, Serve

ADDRESS, CLIENT = ("203.0.113.1",), ("https://shop.example/alice",)
KEY: Requester = ("203.0.113.1", "thumbprint")
PER_HOST = 4


@pytest.fixture(autouse=True)
def nobody() -> Iterator[None]:
    """No test leaves its requester to the next."""
    yield
    requested_by.set(None)


@pytest.fixture
def slots() -> ExchangeSlots:
    return ExchangeSlots(Bounds(per_host=PER_HOST, in_all=MAX_EXCHANGES, queue_seconds=0))


class Holder:
    """Holds slots, each for a host of its own, until the test ends."""

    def __init__(self, slots: ExchangeSlots, stack: AsyncExitStack) -> None:
        self.slots = slots
        self.stack = stack
        self.hosts = 0

    async def take(self, requester: Requester | None, host: str | None = None) -> bool:
        """Whether there was a slot."""
        requested_by.set(requester)
        self.hosts += 1
        name = host or f"h{self.hosts}.example"
        try:
            await self.stack.enter_async_context(self.slots.slot(name, name, lambda: False))
        except FetchFailed as error:
            return error.reason != "busy"
        return True


async def test_exchanges_are_limited_for_whoever_asks(slots: ExchangeSlots) -> None:
    async with AsyncExitStack() as stack:
        holder = Holder(slots, stack)
        taken = [await holder.take(KEY) for _ in range(MAX_EXCHANGES_OF_KEY + 1)]
        assert taken == [True] * MAX_EXCHANGES_OF_KEY + [False]
        left = MAX_EXCHANGES_OF_CLIENT - MAX_EXCHANGES_OF_KEY
        assert [await holder.take(ADDRESS) for _ in range(left + 1)] == [True] * left + [False]
        taken = [await holder.take(CLIENT) for _ in range(MAX_EXCHANGES_OF_CLIENT + 1)]
        assert taken == [True] * MAX_EXCHANGES_OF_CLIENT + [False]


async def test_payments_have_exchanges_of_their_own(slots: ExchangeSlots) -> None:
    async with AsyncExitStack() as stack:
        holder = Holder(slots, stack)
        askers = [(f"192.0.2.{number % 8}",) for number in range(MAX_EXCHANGES)]
        assert all([await holder.take(asker) for asker in askers])
        assert not await holder.take(CLIENT)
        assert [await holder.take(None) for _ in range(MAX_EXCHANGES + 1)] == [True] * MAX_EXCHANGES + [False]


async def test_one_who_asks_has_half_of_the_exchanges_with_a_host(slots: ExchangeSlots) -> None:
    async with AsyncExitStack() as stack:
        holder = Holder(slots, stack)
        half = PER_HOST // 2
        for asker in (ADDRESS, CLIENT):
            assert [await holder.take(asker, "host") for _ in range(half + 1)] == [True] * half + [False]
        assert not await holder.take(("192.0.2.1",), "host")
        assert [await holder.take(None, "host") for _ in range(PER_HOST + 1)] == [True] * PER_HOST + [False]


async def fail(slots: ExchangeSlots, requester: Requester | None, reason: Reason, *, is_sent: bool) -> bool:
    """Whether the server was asked, which then failed."""
    requested_by.set(requester)
    try:
        async with slots.slot("host", "host:1", lambda: is_sent):
            raise FetchFailed(reason, "It failed")
    except FetchFailed as error:
        return error.sentence == "It failed"


@pytest.mark.parametrize("reason", ["timeout", "connection_failed"])
async def test_server_that_cannot_be_reached_is_not_asked_again_for_requests_a_while(
    slots: ExchangeSlots, elapse: Elapse, reason: Reason
) -> None:
    assert await fail(slots, ADDRESS, reason, is_sent=False)
    elapse(FAILED_SERVER_SECONDS - 0.1)
    assert not await fail(slots, CLIENT, reason, is_sent=False)
    assert await fail(slots, None, reason, is_sent=False), "a payment asks all the same, and what it finds counts not"
    async with slots.slot("host", "host:2", lambda: False):
        pass
    elapse(0.1)
    assert await fail(slots, CLIENT, reason, is_sent=False)


async def test_server_that_is_slow_for_one_is_asked_for_others(slots: ExchangeSlots) -> None:
    """What one asks for may take long where nothing else does."""
    assert await fail(slots, ADDRESS, "timeout", is_sent=True)
    assert not await fail(slots, ADDRESS, "timeout", is_sent=True)
    assert await fail(slots, CLIENT, "timeout", is_sent=True)


async def test_server_that_answers_is_asked_again(slots: ExchangeSlots) -> None:
    assert await fail(slots, ADDRESS, "bad_status", is_sent=True)
    assert await fail(slots, ADDRESS, "connection_failed", is_sent=False)
    requested_by.set(None)
    async with slots.slot("host", "host:1", lambda: True):
        pass
    assert await fail(slots, ADDRESS, "too_large", is_sent=True)
    assert await fail(slots, ADDRESS, "bad_response", is_sent=True)


async def test_known_hosts_are_shared_by_all(serve: Serve) -> None:
    requested_by.set(KEY)
    port = await serve(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}")
    count = 2 * MAX_EXCHANGES_OF_CLIENT
    async with GuardedClient(
        True, Bounds(per_host=count, in_all=count, queue_seconds=0, untrusted_hosts=False)
    ) as http:
        found = await asyncio.gather(*(http.get_json(f"http://127.0.0.1:{port}/") for _ in range(count)))
    assert found == [{}] * count


@pytest.mark.parametrize(
    ("before", "is_key", "after"),
    [
        (None, False, None),
        (None, True, None),
        (ADDRESS, False, CLIENT),
        (ADDRESS, True, (*ADDRESS, *CLIENT)),
        (KEY, True, (*ADDRESS, *CLIENT)),
        (CLIENT, False, CLIENT),
    ],
)
def test_count_for_client(before: Requester | None, is_key: bool, after: Requester | None) -> None:
    requested_by.set(before)
    count_for_client(CLIENT[0], is_key)
    assert requested_by.get() == after
