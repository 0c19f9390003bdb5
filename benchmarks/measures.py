"""The measurements: what is measured of which server, interleaved over several rounds."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

import msgspec

from benchmarks.paying import payments_per_second
from benchmarks.population import Population, populate
from benchmarks.replay import replay
from benchmarks.servers import BASE_URL, Server, bare_command, free_port, payres_command, running
from benchmarks.signed import write_creations, write_lists, write_reads

Side = Literal["payres", "bare", "grown"]
Measure = Literal["read", "create", "list", "pay", "start", "memory"]

REQUESTS_BEFORE_WEIGHING = 10_000
FEW_PAYMENTS = 2000


class Extent(msgspec.Struct, frozen=True):
    """How much is measured."""

    rounds: int
    seconds: int  # of each replay
    payments: int  # incoming payments of the grown database
    requests_before_weighing: int


FULL = Extent(rounds=7, seconds=3, payments=1_000_000, requests_before_weighing=10_000)
QUICK = Extent(rounds=1, seconds=1, payments=20_000, requests_before_weighing=100)


class Findings(msgspec.Struct, frozen=True):
    """One figure for each round, by measure and side: requests or payments per second, seconds, or megabytes."""

    figures: Mapping[tuple[Measure, Side], Sequence[float]]


class Subject(msgspec.Struct, frozen=True):
    """One server to measure, with the requests that it is sent and, for payres, what is in its database."""

    side: Side
    database: Path
    population: Population
    requests: Path

    def start(self, stack: ExitStack) -> Server:
        command = bare_command if self.side == "bare" else payres_command
        port = free_port()
        return stack.enter_context(running(command(str(self.database), port), port, self.database.with_suffix(".log")))
