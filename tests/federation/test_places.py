import asyncio

import pytest

from payres.federation.failures import FetchFailed
from payres.federation.places import Places


class Crowd:
    """Tasks that hold a place until they are let go."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.inside: list[str] = []
        self.most = 0
        self.let_go = asyncio.Event()

    async def visit(self, host: str) -> None:
        async with self.places.place(host):
            self.inside.append(host)
            self.most = max(self.most, len(self.inside))
            await self.let_go.wait()
            self.inside.remove(host)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_place_bounds_exchanges_with_one_host_and_in_all() -> None:
    crowd = Crowd(Places(per_host=2, in_all=3, patience=5))
    tasks = [asyncio.create_task(crowd.visit(host)) for host in ("a", "a", "a", "a", "b", "b", "c")]
    await settle()
    assert sorted(crowd.inside) == ["a", "a", "b"]
    crowd.let_go.set()
    await asyncio.gather(*tasks)
    assert crowd.most == 3
    assert crowd.inside == []


async def test_place_waiting_for_a_slow_host_takes_nothing_from_the_others() -> None:
    crowd = Crowd(Places(per_host=1, in_all=2, patience=5))
    tasks = [asyncio.create_task(crowd.visit(host)) for host in ("slow", "slow", "slow", "other")]
    await settle()
    assert sorted(crowd.inside) == ["other", "slow"]
    crowd.let_go.set()
    await asyncio.gather(*tasks)


async def test_place_refuses_who_would_wait_behind_too_many() -> None:
    crowd = Crowd(Places(per_host=1, in_all=2, patience=5))
    tasks = [asyncio.create_task(crowd.visit("a")) for _ in range(4)]
    await settle()
    with pytest.raises(FetchFailed) as failure:
        await crowd.visit("a")
    assert failure.value.reason == "busy"
    tasks += [asyncio.create_task(crowd.visit(host)) for host in ("b", "c", "d", "e")]
    await settle()
    with pytest.raises(FetchFailed) as failure:
        await crowd.visit("f")
    assert failure.value.reason == "busy"
    crowd.let_go.set()
    await asyncio.gather(*tasks)


async def test_place_refuses_who_waited_too_long_and_forgets_them() -> None:
    places = Places(per_host=1, in_all=1, patience=0.01)
    async with places.place("a"):
        for host in ("a", "b"):
            with pytest.raises(FetchFailed) as failure:
                await Crowd(places).visit(host)
            assert failure.value.reason == "busy"
    async with places.place("b"):
        pass
    assert places._hosts == {}  # strangers name hosts without end


async def test_place_is_given_back_when_the_holder_fails_or_is_cancelled() -> None:
    places = Places(per_host=1, in_all=1, patience=0.01)
    with pytest.raises(LookupError):
        async with places.place("a"):
            raise LookupError
    task = asyncio.create_task(Crowd(places).visit("a"))
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with places.place("a"):
        pass
