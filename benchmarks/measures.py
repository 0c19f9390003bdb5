"""The measurements: which server is measured at what, interleaved over several rounds."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from benchmarks.packets import PacketSource
from benchmarks.paying import payments_per_second
from benchmarks.population import Population, populate
from benchmarks.remote import running_pair
from benchmarks.replay import replay, write_requests
from benchmarks.servers import BASE_URL, Server, bare_command, free_port, payres_command, running
from benchmarks.signed import creations, lists, reads

T = TypeVar("T")
Side = Literal["payres", "bare", "grown"]
Replayed = Literal["read", "create", "list"]
# What is measured in each replay besides requests per second: processor time, and how late the slowest answers are.
Beside = Literal["read processor", "create processor", "list processor", "read tail", "create tail", "list tail"]
Measure = Replayed | Beside | Literal["packet", "pay", "pay processor", "remote", "start", "memory"]

FEW_PAYMENTS = 2000
REPLAYED: Sequence[Replayed] = ("read", "create", "list")
PROCESSOR: Mapping[Replayed, Beside] = {
    "read": "read processor",
    "create": "create processor",
    "list": "list processor",
}
TAIL: Mapping[Replayed, Beside] = {"read": "read tail", "create": "create tail", "list": "list tail"}


class Extent(msgspec.Struct, frozen=True):
    """How much is measured. `seconds` is the length of one replay, `payments` the size of the grown database.

    `remote_payments` is how many payments one round makes to another server.
    """

    rounds: int
    seconds: int
    payments: int
    remote_payments: int
    requests_before_weighing: int


FULL = Extent(rounds=7, seconds=3, payments=1_000_000, remote_payments=200, requests_before_weighing=10_000)
QUICK = Extent(rounds=1, seconds=1, payments=20_000, remote_payments=40, requests_before_weighing=1)


class Subject(msgspec.Struct, frozen=True):
    """A server to measure: what is in its database, and what it is sent: files of requests, and packets."""

    side: Side
    database: Path
    population: Population
    requests: Mapping[Replayed, Path]
    packets: PacketSource

    def running(self) -> AbstractContextManager[Server]:
        port = free_port()
        command = bare_command if self.side == "bare" else payres_command
        return running(command(str(self.database), port), port, self.database.with_suffix(".log"))


# One figure for each round: requests or payments per second, seconds, microseconds, megabytes, or a ratio.
Figures = Mapping[tuple[Measure, Side], Sequence[float]]


def measure(directory: Path, extent: Extent, tell: Callable[[str], None]) -> Figures:
    """Measures everything, with databases and logs in `directory`; `tell` hears how far it is.

    Raises CannotMeasure.
    """
    figures: dict[tuple[Measure, Side], list[float]] = defaultdict(list)
    tell(f"preparing databases with {FEW_PAYMENTS:,} and {extent.payments:,} incoming payments")
    subjects = _prepare(directory, extent)
    for turn in range(extent.rounds):
        tell(f"start-up, round {turn + 1} of {extent.rounds}")
        for subject in _in_turn(subjects, turn):
            with subject.running() as server:
                figures["start", subject.side].append(server.start_seconds)
    for subject in subjects:
        tell(f"memory of {subject.side}")
        figures["memory", subject.side].append(_weigh(subject, extent.requests_before_weighing))
    with ExitStack() as stack:
        servers = [(subject, stack.enter_context(subject.running())) for subject in subjects]
        for turn in range(extent.rounds):
            tell(f"throughput, round {turn + 1} of {extent.rounds}")
            _measure_throughput(_in_turn(servers, turn), extent.seconds, figures)
    with running_pair(directory, FEW_PAYMENTS) as pair:
        for turn in range(extent.rounds):
            tell(f"payments to another server, round {turn + 1} of {extent.rounds}")
            figures["remote", "payres"].append(pair.payments_per_second(extent.remote_payments))
    return figures


def _prepare(directory: Path, extent: Extent) -> Sequence[Subject]:
    few = _populated("payres", directory, FEW_PAYMENTS)
    grown = _populated("grown", directory, extent.payments)
    bare = msgspec.structs.replace(few, side="bare", database=directory / "bare.db")  # sent the very same requests
    return [few, bare, grown]


def _populated(side: Side, directory: Path, payments: int) -> Subject:
    database = directory / f"{side}.db"
    population = populate(str(database), BASE_URL, payments)
    files: dict[Replayed, Path] = {}
    for kind, requests in zip(REPLAYED, (reads, creations, lists), strict=True):
        files[kind] = directory / f"{side}-{kind}.requests"
        write_requests(files[kind], requests(population))
    return Subject(side, database, population, files, PacketSource(population))


def _weigh(subject: Subject, requests: int) -> float:
    """Resident megabytes after so many requests, reads and creations in turn."""
    with subject.running() as server:
        sent = 0
        while sent < requests:
            for kind in ("read", "create"):
                sent += replay(server.port, subject.requests[kind], 1).requests
        return server.memory()


def _measure_throughput(
    servers: Sequence[tuple[Subject, Server]], seconds: int, figures: dict[tuple[Measure, Side], list[float]]
) -> None:
    for kind in REPLAYED:
        for subject, server in servers:
            if (kind, subject.side) != ("list", "bare"):
                before = server.processor_seconds()
                found = replay(server.port, subject.requests[kind], seconds)
                used = (server.processor_seconds() - before) / found.requests * 1e6
                figures[kind, subject.side].append(found.per_second)
                figures[PROCESSOR[kind], subject.side].append(used)
                figures[TAIL[kind], subject.side].append(found.slowest_hundredth / found.median)
    for subject, server in servers:
        figures["packet", subject.side].append(_packets_per_second(subject, server, seconds))
    for subject, server in servers:
        if subject.side != "bare":
            before = server.processor_seconds()
            paid = payments_per_second(subject.population, server.port, seconds)
            used = (server.processor_seconds() - before) / (paid * seconds) * 1e6
            figures["pay", subject.side].append(paid)
            figures["pay processor", subject.side].append(used)


def _packets_per_second(subject: Subject, server: Server, seconds: int) -> float:
    file = subject.database.with_suffix(".packets")
    subject.packets.write(file, seconds)
    if subject.side == "bare":
        return replay(server.port, file, seconds).per_second
    return subject.packets.packets_per_second(server.port, file, seconds)


def _in_turn(items: Sequence[T], turn: int) -> Sequence[T]:
    """The items, every other time from behind: what the machine does meanwhile shall not always hit the same one."""
    return items if turn % 2 == 0 else items[::-1]
