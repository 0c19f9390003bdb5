"""The measurements: which server is measured at what, interleaved over several rounds."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from benchmarks.paying import payments_per_second
from benchmarks.population import Population, populate
from benchmarks.replay import replay
from benchmarks.servers import BASE_URL, Server, bare_command, free_port, payres_command, running
from benchmarks.signed import creations, lists, reads

T = TypeVar("T")
Side = Literal["payres", "bare", "grown"]
Replayed = Literal["read", "create", "list"]
Measure = Replayed | Literal["pay", "start", "memory"]

FEW_PAYMENTS = 2000
REPLAYED: Sequence[Replayed] = ("read", "create", "list")


class Extent(msgspec.Struct, frozen=True):
    """How much is measured. `seconds` is the length of one replay, `payments` the size of the grown database."""

    rounds: int
    seconds: int
    payments: int
    requests_before_weighing: int


FULL = Extent(rounds=7, seconds=3, payments=1_000_000, requests_before_weighing=10_000)
QUICK = Extent(rounds=1, seconds=1, payments=20_000, requests_before_weighing=1)


class Subject(msgspec.Struct, frozen=True):
    """A server to measure: what is in its database, and the files of requests that it is sent."""

    side: Side
    database: Path
    population: Population
    requests: Mapping[Replayed, Path]

    def running(self) -> AbstractContextManager[Server]:
        port = free_port()
        command = bare_command if self.side == "bare" else payres_command
        return running(command(str(self.database), port), port, self.database.with_suffix(".log"))


# One figure for each round: requests or payments per second, seconds, or megabytes.
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
        # In the form that replay.lua reads.
        files[kind].write_bytes(b"".join(b"%d\n%b" % (len(request), request) for request in requests(population)))
    return Subject(side, database, population, files)


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
                figures[kind, subject.side].append(replay(server.port, subject.requests[kind], seconds).per_second)
    for subject, server in servers:
        if subject.side != "bare":
            figures["pay", subject.side].append(payments_per_second(subject.population, server.port, seconds))


def _in_turn(items: Sequence[T], turn: int) -> Sequence[T]:
    """The items, every other time from behind: what the machine does meanwhile shall not always hit the same one."""
    return items if turn % 2 == 0 else items[::-1]
