"""Places on links: how many a holder may have, in which order they are given out, and that none gets lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress

import pytest

from payres.interledger.shares import NoPlace, Shares

PEER, OTHER_PEER = 1, 2


@pytest.fixture
def shares() -> Shares:
    return Shares(places=4, share=3)


@pytest.fixture
async def held() -> AsyncIterator[AsyncExitStack]:
    """What is entered here ends with the test, or before when it is closed."""
    async with AsyncExitStack() as stack:
        yield stack


async def hold(held: AsyncExitStack, shares: Shares, holder: str, count: int, peer: int = PEER) -> None:
    for _ in range(count):
        await held.enter_async_context(shares.place(peer, holder, 0))


async def is_full(shares: Shares, holder: str, peer: int = PEER) -> bool:
    with suppress(NoPlace):
        async with shares.place(peer, holder, 0):
            return False
    return True


async def settle() -> None:
    """Lets every task go as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_holder_has_its_share_of_a_link_and_no_more(shares: Shares, held: AsyncExitStack) -> None:
    await hold(held, shares, "alice", 3)
    assert await is_full(shares, "alice")
    assert not await is_full(shares, "bob")
    assert not await is_full(shares, "alice", OTHER_PEER)


async def test_link_has_its_places_and_no_more(shares: Shares, held: AsyncExitStack) -> None:
    await hold(held, shares, "alice", 3)
    await hold(held, shares, "bob", 1)
    assert await is_full(shares, "bob")
    assert await is_full(shares, "carol")
    await held.aclose()
    assert not await is_full(shares, "carol")


async def test_places_are_given_out_in_the_order_of_asking_and_a_full_share_waits_apart(shares: Shares) -> None:
    order: list[str] = []
    ends = {name: asyncio.Event() for name in ("a1", "a2", "a3", "a4", "b1", "b2", "c1")}

    async def send(name: str) -> None:
        async with shares.place(PEER, name[0]):
            order.append(name)
            await ends[name].wait()

    async with asyncio.TaskGroup() as tasks:
        for name in ends:
            tasks.create_task(send(name))
        await settle()
        assert order == ["a1", "a2", "a3", "b1"]  # a4 waits for one of its own kind
        ends["b1"].set()
        await settle()
        assert order[4:] == ["b2"]
        ends["a1"].set()
        await settle()
        assert order[5:] == ["c1"]  # it stood before a4 in the queue of the link
        ends["a2"].set()
        await settle()
        assert order[6:] == ["a4"]
        for end in ends.values():
            end.set()


@pytest.mark.parametrize("waits_for", ["share", "link"])
async def test_who_is_cancelled_while_waiting_takes_no_place_along(
    shares: Shares, held: AsyncExitStack, waits_for: str
) -> None:
    await hold(held, shares, "alice", 3)
    await hold(held, shares, "bob", 1)

    async def send() -> None:
        async with shares.place(PEER, "alice" if waits_for == "share" else "carol"):
            pytest.fail("there is no place")

    waiting = [asyncio.create_task(send()) for _ in range(5)]
    await settle()
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert all(task.cancelled() for task in waiting)
    await held.aclose()
    for holder in ("alice", "carol"):
        async with AsyncExitStack() as again:
            await hold(again, shares, holder, 3)
            assert not await is_full(shares, "dave")


async def test_failure_inside_gives_the_place_back(shares: Shares) -> None:
    for _ in range(5):
        with pytest.raises(ZeroDivisionError):
            async with shares.place(PEER, "alice", 0):
                raise ZeroDivisionError
    assert not await is_full(shares, "alice")


async def test_nothing_is_remembered_of_who_has_gone(shares: Shares, held: AsyncExitStack) -> None:
    await hold(held, shares, "alice", 2)
    assert (len(shares._links), len(shares._shares)) == (1, 1)
    await held.aclose()
    assert (len(shares._links), len(shares._shares)) == (0, 0)
