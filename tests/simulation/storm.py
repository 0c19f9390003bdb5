"""What goes wrong, with weights that each seed draws for itself."""

import asyncio
import math
import random
from collections.abc import Callable
from functools import partial
from typing import Final

from tests.simulation.disk import FAILED, KEPT, LOST, REVIVED, UNANSWERED
from tests.simulation.server import Server
from tests.simulation.world import World, until

REQUESTS: Final = ("lost request", "reset request", "late request", "repeated")
ANSWERS: Final = ("lost answer", "half an answer", "reset answer", "late answer")
FORCES: Final = (0.2, 0.4, 1.0)  # of storms: in the strongest little money gets through
SHARES: Final = (0.0, 0.01, 0.05, 0.15)  # of the requests
COMMITS: Final = {FAILED: 0.06, KEPT: 0.06, LOST: 0.004, UNANSWERED: 0.004, REVIVED: 0.04}  # of the commits, at most
# In a storm, at most:
STRIKES: Final = {"kill": 4, "stop": 2, "cut": 3, "unknown name": 2, "clock jump": 3, "clock set": 1}
DOWN: Final = (0.1, 1.0, 8.0, 40.0)  # seconds until a server is started again, or a link mended
CALM: Final = 100.0  # seconds until the latest request has arrived, and what struck last is mended
QUIET: Final = 5.0  # more seconds, until a request that a gateway repeats or a node waited to send has arrived
ANYWHERE: Final = 3000  # callbacks within which a kill comes
JUMP: Final = 8.0  # seconds
FAR: Final = (90, 900, 7200, 3 * 86_400, 45 * 86_400)  # seconds by which a clock is set wrong, ahead or back
DRIFT: Final = 0.002  # seconds in a second


class Storm:
    """The faults of one storm, until its `end`."""

    def __init__(self, world: World, servers: list[Server], day: int) -> None:
        self._world, self._servers, self._day = world, servers, day
        self._draws = world.dice(f"nature {day}")
        self._strikes: dict[str, Callable[[Server, random.Random], None]] = {
            "kill": lambda server, dice: server.kill(dice.choice(DOWN)),
            "stop": lambda server, dice: server.stop(dice.choice(DOWN)),
            "cut": self._cut,
            "unknown name": self._forget,
            "clock jump": self._jump,
            "clock set": self._set_wrong,
        }

    def rage(self, seconds: float) -> None:
        """Draws which faults this storm has, how many of each, and when."""
        draws, force = self._draws, self._draws.choice(FORCES)
        shares = {kind: force * draws.choice(SHARES) * draws.random() for kind in (*REQUESTS, *ANSWERS)}
        self._world.network.shares = shares
        for server in self._servers:
            server.commit_faults = {
                kind: draws.choice((0, 0, most)) * draws.random() * force for kind, most in COMMITS.items()
            }
            rate = draws.choice((0.0, draws.uniform(-DRIFT, DRIFT)))
            if rate and self._world.happens("clock drift", f"{self._day} {server.name}"):
                server.rate = 1 + rate
        for kind, most in STRIKES.items():
            for number in range(draws.randint(0, math.ceil(most * force))):
                self._plan(kind, number, draws.uniform(0, seconds))
        for server in self._servers:
            if server.keeps_backups:
                self._plan_restore(server, draws.uniform(0, seconds / 2), draws.uniform(1, seconds / 2))

    async def end(self) -> None:
        """Nothing fails from now on, and all servers are up."""
        world, network = self._world, self._world.network
        network.shares = {}
        for server in self._servers:
            server.commit_faults = {}
        await asyncio.sleep(QUIET)
        await until(
            lambda: (
                not (world.between or network.cuts or network.unknown)
                and max(network.due, *(server.wrong_until for server in self._servers)) < world.now
            ),
            *(CALM, "the last strike is over"),
        )
        await asyncio.sleep(QUIET)
        for server in self._servers:
            await server.started()

    def _plan(self, kind: str, number: int, seconds: float) -> None:
        world, server = self._world, self._draws.choice(self._servers)
        name = f"{self._day}.{number} {server.name}"
        steps = self._draws.randrange(ANYWHERE) if kind == "kill" else 1

        def strike() -> None:
            if world.happens(kind, name):
                self._strikes[kind](server, world.dice(f"{kind} {name}"))

        world.at(world.now + seconds, lambda: world.after_steps(steps, strike))

    def _plan_restore(self, server: "Server", made: float, later: float) -> None:
        world, name = self._world, f"{self._day} {server.name}"

        def strike() -> None:
            if world.happens("restore", name):
                server.restore(world.dice(f"restore {name}").choice(DOWN))

        world.at(world.now + made, lambda: world.after_steps(1, server.back_up))
        world.at(world.now + made + later, lambda: world.after_steps(1, strike))

    def _cut(self, server: "Server", dice: random.Random) -> None:
        cuts = self._world.network.cuts
        pair = frozenset((server.name, dice.choice(server.neighbours).name))
        cuts[pair] = None
        self._world.at(self._world.now + dice.choice(DOWN), partial(cuts.pop, pair, None))

    def _forget(self, server: "Server", dice: random.Random) -> None:
        unknown = self._world.network.unknown
        unknown[server.name] = None
        self._world.at(self._world.now + dice.choice(DOWN), partial(unknown.pop, server.name, None))

    def _jump(self, server: "Server", dice: random.Random) -> None:
        server.offset += round(dice.uniform(-JUMP, JUMP) * 1e6)

    def _set_wrong(self, server: "Server", dice: random.Random) -> None:
        """For a while: then somebody sees it."""
        wrong = round(dice.choice((-1, 1)) * dice.choice(FAR) * dice.uniform(0.6, 1.2) * 1e6)
        server.set_wrong(wrong, dice.choice(DOWN))
