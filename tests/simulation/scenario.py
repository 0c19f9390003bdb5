"""One seed from beginning to end: a town of servers and people; storms, each followed by peace; then what must hold."""

import asyncio
import logging
import tempfile
import traceback
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from payres.core.protocol.clock import DAY
from tests.simulation import oracles, people
from tests.simulation.fault import Fault
from tests.simulation.operators import tidied
from tests.simulation.peace import come_to_rest
from tests.simulation.storm import Storm
from tests.simulation.town import Town
from tests.simulation.world import Violation, World

STORM_SECONDS: Final = 40.0
WORLDS: Final[list[World]] = []  # kept for the same reason as a world's graves
NIGHTS: Final = (1, 1, 1, 3, 12, 61)  # days from one storm to the next: in the longest every retention passes


class Task(NamedTuple):
    """A seed, the days that it lives, and the ids of the only faults that happen, if not all of them do."""

    seed: int
    days: int
    only: tuple[str, ...] | None = None
    log: str | None = None


class Outcome(msgspec.Struct, kw_only=True):
    """What a seed came to. `violation` is empty if all held; `hash` is of every callback, byte and row."""

    task: Task
    hash: str = ""
    violation: str = ""
    trace: str = ""
    seconds: float = 0.0  # of virtual time, without the days that were skipped
    counts: dict[str, int] = {}
    faults: list[Fault] = []


class Alarm(logging.Handler):
    """Ends the world when a server says that it is in fail-stop, which is the only thing that payres calls critical."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.CRITICAL)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        self._world.alarm = record.getMessage()


def run_seed(task: Task, above: Path) -> Outcome:
    """Runs a seed in a world of its own, its files in a folder of the one `above`. Best in a process of its own."""
    world = World(task.seed, task.only, keeps_log=task.log is not None)
    logging.disable(logging.ERROR)
    logging.getLogger("payres").addHandler(Alarm(world))
    WORLDS.append(world)
    outcome = Outcome(task=task)
    try:
        with tempfile.TemporaryDirectory(dir=above) as folder:
            world.run(_live(world, Path(folder), task.days))
    except Violation as violation:
        outcome.violation = str(violation)
    except Exception as error:
        outcome.violation, outcome.trace = f"{type(error).__name__}: {error}", traceback.format_exc()
    world.note("violation", outcome.violation)
    outcome.hash, outcome.seconds = world.hash, world.now
    if task.log is not None and world.log is not None:
        Path(task.log).write_text("\n".join(world.log))
    outcome.counts, outcome.faults = world.counts, world.faults
    return outcome


async def _live(world: World, folder: Path, days: int) -> None:
    town = Town(world, folder)
    await town.build()
    inhabitants = people.move_in(town)
    for person in inhabitants:
        await person.prepare()
    nights = world.dice("nights")
    for day in range(days):
        storm = Storm(world, town.servers, day)
        storm.rage(STORM_SECONDS)
        await asyncio.gather(*(person.live(STORM_SECONDS) for person in inhabitants))
        await storm.end()
        await tidied(town)
        await come_to_rest(town)
        for oracle in oracles.ALL:
            await oracle(town)
        town.put_forward(DAY * nights.choice(NIGHTS))
