"""`python -m benchmarks.profiler`: where the processor time of a request goes, by room and by function."""

import os
import re
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import click
import msgspec

import payres
from benchmarks import CannotMeasure
from benchmarks.figures import table
from benchmarks.load import replay, require_wrk, write_requests
from benchmarks.measures import FEW_PAYMENTS
from benchmarks.population import Population, populate
from benchmarks.raw_requests import creations, payments, quotes, reads
from benchmarks.sampler import Function, Sample
from benchmarks.servers import BASE_URL, running

MOST_PER_SECOND = 2000  # payments; more than the server takes
SAMPLER = str(Path(__file__).with_name("sampler.py"))
PACKAGE = f"{Path(payres.__file__).parent}/"
SERVER = f"{PACKAGE}core/http/server.py"
ELSEWHERE = "the server and the event loop"


class Profile(msgspec.Struct, frozen=True):
    """What so many requests took: `seconds` of processor time of all threads, the samples those of the event loop's."""

    requests: int
    seconds: float
    samples: Sequence[Sample]

    def text(self, title: str, functions: int) -> str:
        sampled = sum(sample.seconds for sample in self.samples)
        rooms, own = defaultdict[str, float](float), defaultdict[str, float](float)
        for sample in self.samples:
            rooms[room(sample.stack)] += sample.seconds
            own[_named(sample.stack[0])] += sample.seconds

        def rows(seconds: Mapping[str, float], most: int | None = None) -> Sequence[Sequence[str]]:
            longest = sorted(seconds, key=seconds.__getitem__, reverse=True)[:most]
            return [(name, self._each(seconds[name]), f"{seconds[name] / sampled:.1%}") for name in longest]

        return "\n\n".join(
            [
                f"{title}: {self._each(self.seconds)} of processor time, {self._each(sampled)} of it the event loop's",
                table(("room", "time", "share"), rows(rooms)),
                table(("function", "own time", "share"), rows(own, functions)),
            ]
        )

    def _each(self, seconds: float) -> str:
        return f"{seconds / self.requests * 1e6:.1f} µs"


def room(stack: Sequence[Function]) -> str:
    """The room of payres that a stack is in, by its innermost function there: a library counts for who called it."""
    for function in stack:
        if function.file == SERVER:
            break  # it only runs the loop
        if function.file.startswith(PACKAGE):
            return function.file.removeprefix(PACKAGE).partition("/")[0].removesuffix(".py")
    return ELSEWHERE


@click.command()
@click.option("--seconds", default=8, show_default=True, help="How long each kind of request is replayed.")
@click.option("--functions", default=20, show_default=True, help="How many functions are shown.")
def main(seconds: int, functions: int) -> None:
    """Show where the processor time of a signed GET, of a creation and of a local payment goes."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and not at once: the server must be stopped
    try:
        require_wrk()
        with tempfile.TemporaryDirectory(prefix="payres-profile-") as temporary:
            population = populate(Path(temporary) / "payres.db", BASE_URL, FEW_PAYMENTS)
            for title, warm_up, requests in (
                ("signed GET", reads, lambda: reads(population)),
                ("signed creation", creations, lambda: creations(population)),
                (
                    "local payment, each of its two requests",
                    quotes,
                    lambda: payments(population, seconds * MOST_PER_SECOND),
                ),
            ):
                profile = _profile(population, warm_up(population), requests, seconds)
                click.echo(f"{profile.text(title, functions)}\n")
    except (CannotMeasure, OSError) as error:
        raise click.ClickException(str(error)) from error


def _profile(
    population: Population, warm_up: Iterable[bytes], requests: Callable[[], Iterable[bytes]], seconds: int
) -> Profile:
    """Replays the requests, which are made when those to warm up with have been answered. Raises CannotMeasure."""
    samples, file = population.path.with_name("samples"), population.path.with_name("requests")
    with running((SAMPLER, str(samples), "serve"), population.path) as server:
        write_requests(file, warm_up)
        replay(server.port, file, max(seconds // 2, 1))
        write_requests(file, requests())
        os.kill(server.process_id, signal.SIGUSR1)
        before = server.processor_seconds()
        counted = replay(server.port, file, seconds)
        used = server.processor_seconds() - before
    return Profile(counted.requests, used, msgspec.json.decode(samples.read_bytes(), type=list[Sample]))


def _named(function: Function) -> str:
    """A function as readers look for it: its file from the package on, its line and its name."""
    file = re.sub(r".*/(site-packages|python3\.\d+)/", "", function.file.removeprefix(PACKAGE.removesuffix("payres/")))
    return f"{file}:{function.line} {function.name}"


if __name__ == "__main__":
    main()
