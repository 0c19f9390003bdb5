"""One seed: nodes, one virtual time, a scheduler that picks whose turn it is, and faults that each have a number."""

import asyncio
import gc
import hashlib
import heapq
import itertools
import os
import random
import sqlite3
import uuid
from asyncio import events
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
from typing import Any, Final, TypeVar

from tests.simulation import switches
from tests.simulation.disk import Disk
from tests.simulation.fault import Fault
from tests.simulation.loop import NodeLoop
from tests.simulation.network import Network

T = TypeVar("T")

EPOCH: Final = 1_790_000_000_000_000  # microseconds since 1970 at which a world begins
THREAD_DELAYS: Final = (0.00002, 0.0002, 0.002)  # seconds at most until a thread has its turn
MAX_STEPS: Final = 3_000_000
LINES_AT_ONCE: Final = 500  # of the log


class Violation(AssertionError):
    """What must never happen has happened."""


class Node:
    """A machine: its clock, and what accepts connections. A server's loop is another one after each start."""

    lost: type[Exception] = Violation  # for those who wait for something that ended without a result
    is_foreign = False  # whether it does twice what is asked twice, and gives its packets no numbers

    def __init__(self, world: "World", name: str, address: str) -> None:
        self.world, self.name, self.address = world, name, address
        self.rate = 1.0
        self.offset = 0  # microseconds
        self.loop: NodeLoop | None = None
        self.protocol: Callable[[], Any] | None = None
        self._asked: dict[asyncio.Future[Any], None] = {}
        world.nodes[name] = self

    @property
    def is_up(self) -> bool:
        """Whether it accepts connections."""
        return self.loop is not None and not self.loop.is_dead and self.protocol is not None

    def boot(self) -> NodeLoop:
        self.loop = NodeLoop(self.world, self)
        self.world.loops.append(self.loop)
        return self.loop

    def begin(self) -> None:
        """Starts its process."""

    def die(self, down: float) -> None:
        """Its loop runs no more callbacks: no cancellation, no `finally`. It begins again after some seconds."""
        assert self.loop is not None
        self.loop.is_dead, self.protocol = True, None
        self.world.loops.remove(self.loop)
        self.world.graves.append(self.loop)
        self.world.network.die(self.loop)
        for answer in self._asked:
            if not answer.done():
                answer.set_exception(self.lost(self.name))
        self.world.at(self.world.now + down, self.begin)

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine that runs on this node, awaited on another. Raises what that raises, and `lost`."""
        assert self.loop is not None
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._asked[answer] = None
        self.loop.spawn(coroutine).add_done_callback(lambda task: self._settle(answer, task))
        try:
            return await answer
        finally:
            del self._asked[answer]

    def _settle(self, answer: "asyncio.Future[Any]", task: "asyncio.Task[Any]") -> None:
        if answer.done():
            return
        failure = self.lost(self.name) if task.cancelled() else task.exception()
        if failure is not None:
            answer.set_exception(failure)
        else:
            answer.set_result(task.result())

    # The clock that the server is given

    def now(self) -> int:
        return EPOCH + self.world.skipped + int(self.world.now * self.rate * 1e6) + self.offset

    def outside(self) -> int:
        return self.now()


class World:
    """`run` a coroutine in it. If `only` is given, no other faults happen than those with these ids."""

    def __init__(self, seed: int, only: Collection[str] | None = None, *, keeps_log: bool = False) -> None:
        self.seed = seed
        self.now = 0.0  # seconds
        self.skipped = 0  # microseconds that all wall clocks were put forward between the days
        self.steps = 0
        self.nodes: dict[str, Node] = {}
        self.loops: list[NodeLoop] = []  # that are not dead
        self.graves: list[NodeLoop] = []  # kept: what belongs to a process that is gone must not even be closed
        self._only = None if only is None else frozenset(only)
        self.faults: list[Fault] = []
        self.counts: Counter[str] = Counter()
        self.trouble: list[str] = []  # exceptions that reached a loop
        self.waits_for = "nobody waits"  # what has to come to an end, in words
        self.alarm = ""  # what a server that went into fail-stop has said
        self.disks: dict[str, Disk] = {}  # by the path of the file
        self.doors: dict[str, Callable[[], Any]] = {}  # what opens a socket that blocks, by the name of the host
        self.blocked = 0.0  # seconds for which the function that runs on a thread has waited for such a socket
        self.log: list[str] | None = [] if keeps_log else None
        self.entropy = self.dice("entropy")
        self.delays = self.dice("delays")
        self._turns = self.dice("turns")
        self.network = Network(self)
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()
        self._moment = "0"
        self._running: NodeLoop | None = None
        self._numbers: Counter[str] = Counter()
        self._ids = 0
        self.moments: dict[str, int] = {}  # when each id was made
        self._trace, self._lines = hashlib.sha256(), list[str]()
        self.between: list[tuple[int, Callable[[], None]]] = []  # what waits for steps, long when no server is up

    # Time and chance

    @property
    def microseconds(self) -> int:
        return EPOCH + self.skipped + int(self.now * 1e6)

    def dice(self, name: str) -> random.Random:
        """A stream of draws of its own, so that what one fault draws moves no other."""
        return random.Random(f"{self.seed} {name}")

    def draw(self, name: str) -> float:
        """A number from 0 to 1 that only the seed and the name determine."""
        digest = hashlib.blake2b(f"{self.seed} {name}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") / 2**64

    def drawn(self, name: str, shares: Mapping[str, float]) -> tuple[str, str]:
        """Which kind of fault the next of this name has, by the share of each kind, and its number; "" for none."""
        number = self.next_of(name)
        left = self.draw(number)
        for kind, share in shares.items():
            if left < share:
                return kind, number
            left -= share
        return "", number

    def strikes(self, name: str, shares: Mapping[str, float]) -> tuple[str, str]:
        """As `drawn`, and notes that it happens; "" too if it is left out."""
        kind, number = self.drawn(name, shares)
        return (kind if kind and self.happens(kind, number) else ""), number

    def happens(self, kind: str, name: str) -> bool:
        """Notes that a fault happens, unless it is left out."""
        fault = Fault(round(self.now, 3), kind, name)
        if self._only is not None and fault.id not in self._only:
            return False
        self.note("fault", fault.id)
        self.faults.append(fault)
        self.counts[kind] += 1
        return True

    def next_of(self, name: str) -> str:
        """The name with a number: each one is used once."""
        self._numbers[name] += 1
        return f"{name} {self._numbers[name]}"

    def thread_delay(self) -> float:
        return self.delays.choice(THREAD_DELAYS) * self.delays.random()

    @property
    def wall(self) -> int:
        """The microseconds of the clock of the machine that runs."""
        return self.microseconds if self._running is None else self._running.node.now()

    def new_uuid(self, nanoseconds: int | None = None) -> uuid.UUID:
        """A UUIDv7 of the given time, or of this machine's: then later ones of a process sort after earlier ones."""
        self._ids, now = self._ids + 1, self.wall if nanoseconds is None else nanoseconds // 1000
        if nanoseconds is None and self._running is not None:
            now = self._running.latest = max(self._running.latest, now)
        id = uuid.UUID(int=now // 1000 << 80 | 7 << 76 | 0b10 << 62 | self._ids)
        self.moments[str(id)] = self.microseconds
        return id

    def at(self, when: float, call: Callable[[], object]) -> None:
        """Calls a function at a time."""
        heapq.heappush(self._events, (when, next(self._order), call))

    def after_steps(self, steps: int, call: Callable[[], None]) -> None:
        """Calls a function between two callbacks, wherever they are."""
        self.between.append((self.steps + steps, call))
        self.between.sort(key=lambda one: one[0])

    # Names and files

    def address_of(self, name: str) -> str:
        """Raises OSError."""
        node = self.nodes.get(name.removesuffix(".test"))
        if node is None or node.name in self.network.unknown:
            raise OSError(-3, "Temporary failure in name resolution")
        return node.address

    def connect(self, real: Callable[..., sqlite3.Connection], path: str, **options: Any) -> sqlite3.Connection:
        """Opens a database, on the simulated disk of its server if it has one."""
        disk = self.disks.get(path)
        if disk is not None:
            return disk.connect(real, path, **options)
        connection = real(path, **options)
        file = os.path.basename(path).partition(".")[0]  # its folder, and what follows, is another one in each run
        draws = self.dice(self.next_of(f"sql {file}"))
        connection.create_function("random", 0, lambda: draws.getrandbits(63))
        return connection

    # The scheduler

    def note(self, *what: object) -> None:
        """Adds a line to what two runs of a seed must have in common."""
        self._lines.append(f"{self._moment} {what!r}")
        if len(self._lines) >= LINES_AT_ONCE:
            self._add_lines()

    @property
    def hash(self) -> str:
        self._add_lines()
        return self._trace.hexdigest()[:16]

    def _add_lines(self) -> None:
        self._trace.update("\n".join(self._lines).encode())
        if self.log is not None:
            self.log += self._lines
        self._lines.clear()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine, on a node of its own that has no faults. Raises Violation if nothing happens any
        more, or too much."""
        switches.world = self
        random.seed(f"{self.seed}")
        gc.disable()
        task = Node(self, "director", "10.9.9.9").boot().spawn(coroutine)
        try:
            while not task.done():
                self._step()
                if self.alarm:
                    raise Violation(f"{self._running and self._running.node.name} is in fail-stop: {self.alarm}")
                if self.steps > MAX_STEPS:
                    raise Violation(f"no end after {self.steps} steps and {self.now:.0f} s: {self.waits_for}")
            return task.result()
        finally:
            events._set_running_loop(None)
            gc.enable()
            switches.world = None

    def _step(self) -> None:
        while self.between and self.between[0][0] <= self.steps:
            self.between.pop(0)[1]()
        ready = [loop for loop in self.loops if loop.ready]
        if not ready:
            self._advance()
            return
        self.steps += 1
        loop = ready[0] if len(ready) == 1 else self._turns.choice(ready)
        if loop is not self._running:
            events._set_running_loop(loop)
            self._running = loop
        loop.run_one()

    def _advance(self) -> None:
        """Moves the time to what is due next."""
        if not self._events:
            raise Violation("nothing will ever happen again")
        self.now = max(self.now, self._events[0][0])
        self._moment = f"{self.now:.9f}"
        while self._events and self._events[0][0] <= self.now:
            heapq.heappop(self._events)[2]()


async def moments(world: World, draws: random.Random, pause: float, seconds: float) -> AsyncIterator[None]:
    """Comes back after random pauses, so long on average, until the seconds are over."""
    end = world.now + seconds
    while (rest := draws.expovariate(1 / pause)) + world.now < end:
        await asyncio.sleep(rest)
        yield


async def until(holds: Callable[[], bool], seconds: float, what: str) -> None:
    """Waits in the world's time. Raises Violation."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not holds():
        if loop.time() > end:
            raise Violation(f"not within {seconds:.0f} s: {what}")
        await asyncio.sleep(0.05)
