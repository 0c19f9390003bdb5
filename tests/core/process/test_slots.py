"""Concurrency slots: how many a key may hold, in which order they are given out, and that none gets lost."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Hashable, Sequence
from contextlib import asynccontextmanager

import pytest

from payres.core.process.slots import Slots, SlotsBusy
from tests.helpers import TIMEOUT, settle


class Holders:
    """Tasks that hold a slot until they are ended, noted in the order in which they got it."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.acquired: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._ends: dict[str, asyncio.Event] = {}

    async def start(self, *names: str) -> None:
        """Each is a key of one part, its first letter."""
        for name in names:
            self._ends[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._hold(name))
        await settle()

    async def end(self, *names: str) -> None:
        for name in names:
            self._ends[name].set()
        await settle()

    async def _hold(self, name: str) -> None:
        async with self.slots.slot(name[0]):
            self.acquired.append(name)
            await self._ends[name].wait()


@asynccontextmanager
async def holders_of(slots: Slots) -> AsyncIterator[Holders]:
    """Tasks on these slots; at the end all are ended, and then every slot is free and nothing is kept."""
    holders = Holders(slots)
    yield holders
    await holders.end(*holders.tasks)
    await asyncio.gather(*holders.tasks.values(), return_exceptions=True)
    assert slots._levels == {}  # clients make up keys without end


@pytest.mark.parametrize(
    ("limits", "keys", "refused"),
    [
        ((2,), ["", "", ""], [2]),  # in all
        ((3, 2), ["a", "a", "a", "b", "c"], [2, 4]),
        ((None, 1), ["a", "a", "b", "c", "c"], [1, 4]),
        ((None, 3, 2), ["pa", "pa", "pa", "pb", "pb", "pc", "qa"], [2, 4, 5]),
        ((4, 2, 1), ["ra", "ra", "r", "r", "", "", ""], [1, 3, 6]),  # a shorter key has the first limits alone
    ],
)
async def test_slots_are_limited_in_all_and_for_each_part_of_a_key(
    limits: Sequence[int | None], keys: Sequence[str], refused: Sequence[int]
) -> None:
    slots = Slots(*limits)
    assert [number for number, key in enumerate(keys) if not slots.try_take(*key)] == refused
    for number, key in enumerate(keys):
        if number not in refused:
            slots.release(*key)
    assert [number for number, key in enumerate(keys) if not slots.try_take(*key)] == refused


async def test_slots_are_given_out_in_the_order_of_asking_and_a_full_key_waits_apart() -> None:
    async with holders_of(Slots(4, 3)) as holders:
        await holders.start("a1", "a2", "a3", "a4", "b1", "b2", "c1")
        assert holders.acquired == ["a1", "a2", "a3", "b1"]  # a4 waits for one of its own key
        await holders.end("b1")
        assert holders.acquired[4:] == ["b2"]
        await holders.end("a1")
        assert holders.acquired[5:] == ["c1"]  # it stood before a4 in the queue for all
        await holders.end("a2")
        assert holders.acquired[6:] == ["a4"]


async def test_who_comes_just_as_a_slot_is_given_back_does_not_overtake() -> None:
    async with holders_of(Slots(1, 1)) as holders:
        await holders.start("a1", "b1")
        holders.tasks["a1"].cancel()
        while not holders.tasks["a1"].done():
            await asyncio.sleep(0)
            assert not holders.slots.try_take("c")
        await settle()
        assert holders.acquired == ["a1", "b1"]


async def test_who_would_wait_behind_too_many_is_turned_away_at_once() -> None:
    async with holders_of(Slots(2, 1, queue=3)) as holders:
        await holders.start("a1", "a2", "a3", "a4", "a5")
        with pytest.raises(SlotsBusy):
            await holders.tasks["a5"]
        await holders.start("b1", "c1", "d1", "e1", "f1")
        with pytest.raises(SlotsBusy):
            await holders.tasks["f1"]
        assert holders.acquired == ["a1", "b1"]
    assert sorted(holders.acquired) == ["a1", "a2", "a3", "a4", "b1", "c1", "d1", "e1"]


@pytest.mark.parametrize("seconds", [0, 0.01])
async def test_who_waited_too_long_is_turned_away_and_forgotten(seconds: float) -> None:
    slots = Slots(1, 1)
    async with slots.slot("a", seconds=seconds):
        for key in ("a", "b"):
            with pytest.raises(SlotsBusy):
                await slots.slot(key, seconds=seconds).__aenter__()
    assert slots._levels == {}
    async with slots.slot("b", seconds=0):
        pass


async def test_timeout_bounds_the_wait_and_not_the_block() -> None:
    slots = Slots(1)
    async with slots.slot(seconds=0):
        await settle()
    with pytest.raises(TimeoutError):
        async with slots.slot(seconds=0):
            raise TimeoutError


@pytest.mark.parametrize("key", ["a", "d"], ids=["waits for its key", "waits for any"])
async def test_who_is_cancelled_while_waiting_takes_no_slot_along(key: str) -> None:
    slots = Slots(4, 3)
    async with holders_of(slots) as holders:
        await holders.start("a1", "a2", "a3", "b1")
        waiting = [f"{key}{number}" for number in range(5, 10)]
        await holders.start(*waiting)
        for name in waiting:
            holders.tasks[name].cancel()
        await settle()
        assert all(holders.tasks[name].cancelled() for name in waiting)
        assert holders.acquired == ["a1", "a2", "a3", "b1"]
        await holders.end("a1", "a2", "a3", "b1")
        await holders.start("a11", "a12", "a13", "c1")
        assert holders.acquired[4:] == ["a11", "a12", "a13", "c1"]


async def test_who_is_cancelled_as_its_slot_comes_hands_it_on() -> None:
    async with holders_of(Slots(2, 1)) as holders:
        assert holders.slots.try_take("a")
        await holders.start("a1", "a2")
        holders.slots.release("a")  # to a1, which has not run since
        holders.tasks["a1"].cancel()
        await settle()
        assert holders.tasks["a1"].cancelled()
        assert holders.acquired == ["a2"]


async def test_no_slot_is_lost_or_given_twice_whatever_happens() -> None:
    """Tasks of random keys that wait, hold, fail, time out and are cancelled, checked at every step."""
    draw = random.Random(7)
    slots = Slots(5, 3, 2, queue=4)
    held: Counter[tuple[Hashable, ...]] = Counter()

    async def visit(key: tuple[Hashable, ...]) -> None:
        async with slots.slot(*key, seconds=draw.choice([None, None, 0])):
            held.update(key[:length] for length in range(len(key) + 1))
            try:
                for _ in range(draw.randrange(4)):
                    if draw.random() < 0.05:
                        raise LookupError
                    assert all(count <= (5, 3, 2)[len(prefix)] for prefix, count in held.items())
                    await asyncio.sleep(0)
            finally:
                held.subtract(key[:length] for length in range(len(key) + 1))

    tasks: list[asyncio.Task[None]] = []
    for _ in range(2000):
        key: tuple[Hashable, ...] = (draw.choice("ab"), draw.choice("xyz"))
        tasks.append(asyncio.create_task(visit(key[: draw.randrange(3)])))
        if draw.random() < 0.3:
            draw.choice(tasks).cancel()
        if draw.random() < 0.5:
            await asyncio.sleep(0)
    async with asyncio.timeout(TIMEOUT):
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {type(None), SlotsBusy, asyncio.CancelledError, LookupError}
    assert slots._levels == {}
