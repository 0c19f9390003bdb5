"""`python -m benchmarks.profiler`: where the processor time of a request goes, by room and by function."""

import os
import re
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import click
import msgspec

import payres
from benchmarks import CannotMeasure
from benchmarks.figures import table
from benchmarks.load import BASE_URL, replay, require_wrk, running, write_requests
from benchmarks.population import FEW_PAYMENTS, Population, populate
from benchmarks.raw_requests import creations, payments, quotes, reads

MOST_PER_SECOND = 2000  # payments; more than the server takes
SAMPLER = str(Path(__file__).with_name("sampler.py"))
PACKAGE = f"{Path(payres.__file__).parent}/"
SERVER = f"{PACKAGE}core/http/server.py"
ELSEWHERE = "the server and the event loop"


def room(stack: Sequence[str]) -> str:
    """The room of payres that a stack is in, by its innermost function there: a library counts for who called it."""
    for function in stack:
        if function.startswith(SERVER):
            break  # it only runs the loop
        if function.startswith(PACKAGE):
            return re.split(r"/|\.py:", function.removeprefix(PACKAGE))[0]
    return ELSEWHERE


def _named(function: str) -> str:
    """A function as readers look for it: its file from the package on, its line and its name."""
    return re.sub(r"^.*/(site-packages|python3\.\d+)/", "", function.removeprefix(PACKAGE.removesuffix("payres/")))


@click.command()
@click.option("--seconds", default=8, show_default=True, help="How long each kind of request is replayed.")
@click.option("--functions", default=20, show_default=True, help="How many functions are shown.")
def main(seconds: int, functions: int) -> None:
    """Show where the processor time of a signed GET, of a creation and of a local payment goes."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and not at once: the server must be stopped
    try:
        require_wrk()
        with tempfile.TemporaryDirectory(prefix="payres-profile-") as temporary:
            known = populate(Path(temporary) / "payres.db", BASE_URL, FEW_PAYMENTS)
            paying = "local payment, each of its two requests"
            for title, warm_up, requests in (
                ("signed GET", reads, lambda: reads(known)),
                ("signed creation", creations, lambda: creations(known)),
                (paying, quotes, lambda: payments(known, seconds * MOST_PER_SECOND)),
            ):
                click.echo(_profile(known, title, warm_up(known), requests, seconds, functions))
    except (CannotMeasure, OSError) as error:
        raise click.ClickException(str(error)) from error


def _profile(
    known: Population,
    title: str,
    warm_up: Iterable[bytes],
    requests: Callable[[], Iterable[bytes]],
    seconds: int,
    functions: int,
) -> str:
    """Replays the requests, which are made when those to warm up with have been answered. Raises CannotMeasure."""
    samples, file = known.path.with_name("samples"), known.path.with_name("requests")
    with running((SAMPLER, str(samples), "serve"), known.path) as server:
        replay(server.port, write_requests(file, warm_up), max(seconds // 2, 1))
        write_requests(file, requests())
        os.kill(server.process_id, signal.SIGUSR1)
        before = server.processor_seconds()
        count = replay(server.port, file, seconds).requests
        used = server.processor_seconds() - before
    rooms, own = defaultdict[str, float](float), defaultdict[str, float](float)
    for taken, stack in msgspec.json.decode(samples.read_bytes(), type=list[tuple[float, list[str]]]):
        rooms[room(stack)] += taken
        own[_named(stack[0])] += taken
    sampled = sum(rooms.values())

    def each(taken: float) -> str:
        return f"{taken / count * 1e6:.1f} µs"

    text = f"{title}: {each(used)} of processor time, {each(sampled)} of it the event loop's\n\n"
    for what, time, found, most in (("room", "time", rooms, None), ("function", "own time", own, functions)):
        longest = sorted(found.items(), key=lambda item: item[1], reverse=True)[:most]
        rows = [(name, each(taken), f"{taken / sampled:.1%}") for name, taken in longest]
        text += table((what, time, "share"), rows) + "\n\n"
    return text


if __name__ == "__main__":
    main()
