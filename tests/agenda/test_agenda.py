"""What the agenda promises every kind of due work: turns and slots, faults of one row, clocks that jump, and an end."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from payres.agenda.store import agenda
from payres.agenda.store.agenda import FAULT_PAUSES, FAULTS, MOST_FAULTS, Agenda, DueKind, FaultRecord, forget_fault
from payres.core.process.settings import Settings
from payres.core.protocol.clock import DAY, HOUR, SECOND
from payres.core.protocol.errors import Unavailable
from payres.core.store.database import Database
from payres.core.store.events import Changes
from payres.core.store.rows import number
from payres.core.store.work import Environment, Work
from payres.testing.clock import MovableClock

START = 1_800_000_000 * SECOND
KIND = DueKind(
    name="thing",
    table="thing",
    due="due_at",
    key=("id", "part"),
    label="thing.id || '/' || thing.part",
    party="thing.owner",
    at_once=8,
    of_party=2,
    longest=DAY,
)
MADE = (
    "CREATE TABLE thing (id TEXT, part INTEGER, owner TEXT, due_at INTEGER, PRIMARY KEY (id, part))"
    " STRICT, WITHOUT ROWID",
    "CREATE INDEX thing_due ON thing (due_at) WHERE due_at IS NOT NULL",
    "CREATE INDEX thing_due_of_owner ON thing (owner, due_at) WHERE due_at IS NOT NULL",
)
Step = Callable[[str], Awaitable[float | None]]


class Desk:
    """Things of owners, an agenda that does them by `step`, and what it has begun."""

    def __init__(self, database: Database, clock: MovableClock) -> None:
        self.database, self.clock, self.changes = database, clock, Changes()
        database.notify(self.changes.notify)
        self.begun: list[str] = []
        self.running: list[str] = []
        self.step: Step = self.finish
        self.task: asyncio.Task[None] | None = None

    async def add(self, owner: str, count: int = 1, due_at: int = START) -> None:
        def unit(work: Work) -> None:
            rows = [(f"{owner}-{number:04}", 0, owner, due_at) for number in range(count)]
            work.executemany("INSERT INTO thing VALUES (?, ?, ?, ?)", rows)
            work.changed.append(KIND.changed)

        await self.database.write(unit)

    async def finish(self, thing: str, due_at: int | None = None) -> None:
        sql = "UPDATE thing SET due_at = ? WHERE id = ?"
        await self.database.write(lambda work: work.execute(sql, (due_at, thing)) and None)

    async def _step(self, thing: str, part: int) -> float | None:
        assert thing not in self.running
        self.begun.append(thing)
        self.running.append(thing)
        try:
            return await self.step(thing)
        finally:
            self.running.remove(thing)

    def begin(self) -> Agenda:
        made = Agenda(KIND, self.database, self.changes, self._step)
        self.task = asyncio.create_task(made.run())
        return made

    async def end(self) -> None:
        if self.task is not None:
            self.task.cancel()
            async with asyncio.timeout(5):
                await asyncio.gather(self.task, return_exceptions=True)

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not true():  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.001)

    async def done(self, count: int) -> None:
        await self.until(lambda: len(self.begun) >= count and not self.running)

    async def fault(self, faults: int) -> FaultRecord:
        """The only fault, once there were so many."""
        async with asyncio.timeout(20):
            while True:
                found = await self.database.read(_faults)
                if [one.faults for one in found] == [faults]:
                    return found[0]
                await asyncio.sleep(0.001)


def _faults(work: Work) -> list[FaultRecord]:
    return [*FAULTS.list(work, "ORDER BY label")]


@pytest.fixture
async def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    monkeypatch.setattr(agenda, "LOOK_SECONDS", 0.01)
    clock, path = MovableClock(START, frozen=True), str(tmp_path / "payres.db")
    database = await Database.open(path, Environment.of(Settings(database=path), clock))
    await database.write(lambda work: [work.execute(one) for one in MADE] and None)
    made = Desk(database, clock)
    yield made
    await made.end()
    await database.close()


async def never(_: str) -> None:
    await asyncio.Event().wait()


async def test_storm_of_some_parties_delays_no_other(desk: Desk) -> None:
    for number_ in range(8):
        await desk.add(f"loud{number_}", 300)
    desk.begin()
    await desk.until(lambda: len(desk.begun) > 50)
    before = len(desk.begun)
    await desk.add("quiet")
    await desk.until(lambda: "quiet-0000" in desk.begun)
    assert desk.begun.index("quiet-0000") - before < 64, "of 2400 that were due as long"
    await desk.done(2401)
    assert len(set(desk.begun)) == 2401


async def test_parties_that_answer_slowly_keep_to_their_slots_and_to_half_of_all(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agenda, "QUICK_SECONDS", 60)  # one that ends counts as quick, however busy the machine is
    for number_ in range(9):
        await desk.add(f"stuck{number_}", 3)

    async def step(thing: str) -> None:
        if thing.startswith("stuck"):
            await never(thing)
        await desk.finish(thing)

    desk.step = step
    desk.begin()
    await desk.until(lambda: len(desk.running) == KIND.at_once // 2)
    assert len({one.partition("-")[0] for one in desk.running}) == KIND.at_once // 2, "one of each in turn"
    await desk.end()
    desk.begun.clear()
    await desk.database.write(lambda work: work.execute("UPDATE thing SET due_at = due_at + 1") and None)
    await desk.add("known", 200)
    desk.clock.advance(1)
    desk.begin()
    await desk.until(lambda: len([one for one in desk.begun if one.startswith("known")]) == 200)
    assert len([one for one in desk.running if one.startswith("stuck")]) == KIND.at_once // 2


async def test_fault_puts_off_one_row_and_then_sets_it_aside(desk: Desk) -> None:
    await desk.add("a", 3)

    async def step(thing: str) -> None:
        if thing == "a-0000":
            raise KeyError("what nobody thought of")
        await desk.finish(thing)

    desk.step = step
    made = desk.begin()
    for count, pause in enumerate((*FAULT_PAUSES, 0), 1):
        fault = await desk.fault(count)
        assert fault.again_at == (START + sum(FAULT_PAUSES[:count]) if pause else None)
        await desk.until(lambda: made.is_resting)
        assert desk.begun.count("a-0000") == count, "not before its pause is over"
        desk.clock.advance(pause / SECOND)
    assert (fault.label, fault.party, fault.error) == ("a-0000/0", "a", "KeyError: 'what nobody thought of'")
    assert {"a-0001", "a-0002"} < set(desk.begun)
    desk.clock.advance(20 * 86400)
    await desk.add("b")
    await desk.until(lambda: "b-0000" in desk.begun and made.is_resting)
    assert desk.begun.count("a-0000") == MOST_FAULTS
    await desk.database.write(lambda work: forget_fault(work, KIND, "a-0000/0"))
    await desk.until(lambda: desk.begun.count("a-0000") == MOST_FAULTS + 1)
    await desk.fault(1)
    await desk.finish("a-0000", desk.clock.now() - HOUR)
    await desk.until(lambda: desk.begun.count("a-0000") == MOST_FAULTS + 2)
    for count in range(2, MOST_FAULTS + 1):
        await desk.fault(count)
        desk.clock.advance(HOUR / SECOND)
    await desk.fault(MOST_FAULTS)
    await desk.end()
    desk.begin()
    await desk.fault(MOST_FAULTS + 1)
    await desk.end()
    desk.step = desk.finish
    desk.begin()
    async with asyncio.timeout(20):
        while await desk.database.read(_faults):  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_fault_of_all_rows_sets_none_aside_at_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agenda, "REST_SECONDS", 0.05)
    for number_ in range(100):
        await desk.add(f"owner{number_}")
    broken, at_once = [True], [0]

    async def step(thing: str) -> None:
        if broken:
            await asyncio.sleep(0)
            at_once.append(len(desk.running))
            raise RuntimeError("of all of them")
        await desk.finish(thing)

    desk.step = step
    desk.begin()
    await desk.until(lambda: len(desk.begun) > agenda.MANY_FAULTS + KIND.at_once + 3)
    assert max(at_once[agenda.MANY_FAULTS + KIND.at_once :]) == 1
    assert all(one.again_at is not None for one in await desk.database.read(_faults))
    broken.clear()
    await desk.until(lambda: len(set(desk.begun)) == 100)


async def test_step_that_leaves_its_row_due_is_a_fault_and_no_loop(desk: Desk) -> None:
    await desk.add("a")

    async def step(thing: str) -> float | None:
        return 0 if len(desk.begun) < 4 else None

    desk.step = step
    desk.begin()
    assert (await desk.fault(1)).error == "RuntimeError: its step has left it due"
    assert len(desk.begun) == 4, "what did a part may be due as before"


async def test_failure_of_storage_is_no_fault(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agenda, "RETRY_SECONDS", 0.001)
    await desk.add("a")

    async def step(thing: str) -> None:
        if len(desk.begun) < 2 * MOST_FAULTS:
            raise Unavailable("The disk is full")
        await desk.finish(thing)

    desk.step = step
    desk.begin()
    await desk.done(2 * MOST_FAULTS)
    assert not await desk.database.read(_faults)


@pytest.mark.parametrize(("ahead", "is_done"), [(30 * DAY, True), (DAY - HOUR, False)])
async def test_what_was_stored_while_the_clock_was_ahead_is_due(desk: Desk, ahead: int, is_done: bool) -> None:
    await desk.add("a", 100, START + ahead)
    made = desk.begin()
    if is_done:
        await desk.done(100)
    await desk.until(lambda: made.is_resting)
    assert bool(desk.begun) == is_done


async def test_nothing_begins_while_the_kind_rests(desk: Desk) -> None:
    for owner in "abc":
        await desk.add(owner)
    rests = asyncio.Event()

    async def step(thing: str) -> float | None:
        await desk.finish(thing)
        await rests.wait()
        return 3600

    desk.step = step
    made = desk.begin()
    await desk.until(lambda: len(desk.running) == 3)
    assert not made.is_resting
    rests.set()
    await desk.until(lambda: not desk.running)
    await desk.add("d")
    await desk.until(lambda: made.is_resting)
    assert "d-0000" not in desk.begun
    await desk.end()
    desk.step = desk.finish
    desk.begin()
    await desk.until(lambda: "d-0000" in desk.begun)


async def test_row_that_ended_during_a_search_is_not_begun_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The search has read it as it was before."""
    await desk.add("a")
    await desk.add("b", due_at=START + 1)
    searched, read = asyncio.Event(), desk.database.read

    async def step(thing: str) -> None:
        await searched.wait()
        await desk.finish(thing)

    async def slow(unit: Callable[[Work], object]) -> object:
        found = await read(unit)
        searched.set()
        await desk.until(lambda: "a-0000" not in desk.running)
        return found

    desk.step = step
    made = desk.begin()
    await desk.until(lambda: desk.running == ["a-0000"])
    monkeypatch.setattr(desk.database, "read", slow)
    desk.clock.advance(1)
    made.wake()
    await desk.until(lambda: len(desk.begun) > 1 and made.is_resting)
    assert desk.begun == ["a-0000", "b-0000"]
    assert not caplog.records


@pytest.mark.parametrize("seed", range(4))
async def test_any_order_of_storms_faults_retries_and_ends(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Each row is done in the end, only while it is due, and within the slots of its party."""
    monkeypatch.setattr(agenda, "PAGE", 8)
    monkeypatch.setattr(agenda, "PASS_SECONDS", 0.05)
    agenda._sql.cache_clear()
    chance = random.Random(seed)

    async def step(thing: str) -> None:
        due_at = await desk.database.read(lambda work: number(work, "SELECT due_at FROM thing WHERE id = ?", thing))
        assert 0 < due_at <= desk.clock.now()
        owner = f"{thing.partition('-')[0]}-"
        assert len([one for one in desk.running if one.startswith(owner)]) <= KIND.of_party
        await asyncio.sleep(chance.random() / 200)
        if chance.random() < 0.1:
            raise ValueError(thing)
        again = desk.clock.now() + chance.randrange(1, 3 * SECOND) if chance.random() < 0.3 else None
        await desk.finish(thing, again)

    desk.step = step
    for number_ in range(12):
        await desk.add(f"o{number_}", chance.choice([1, 2, 60]))
        if chance.random() < 0.5:
            desk.begin()
            await asyncio.sleep(chance.random() / 20)
            await desk.end()
    desk.begin()
    async with asyncio.timeout(20):
        while await desk.database.read(lambda work: number(work, "SELECT count(due_at) FROM thing")):
            await asyncio.sleep(0.01)
            desk.clock.advance(5)
            for one in await desk.database.read(_faults):
                assert "ValueError" in one.error
                with suppress(IndexError):
                    await desk.database.write(lambda work, one=one: forget_fault(work, KIND, one.label))  # type: ignore[misc]
    agenda._sql.cache_clear()
