"""`make simulate`: seeds of the simulation on all cores, to the first violation, which is then shrunk."""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Final

from tests.simulation import entropy  # isort: skip  # before payres, which binds some names of what it switches
from tests.simulation.runs import CORES, run_all, run_one
from tests.simulation.scenario import Outcome, Task
from tests.simulation.shrinking import Shrinking
from tests.simulation.world import Fault

assert entropy.world is None

SEEDS: Final = 100
DAYS: Final = 2
KIND: Final = re.compile("[A-Za-z ]*")  # the beginning of a violation, without names and numbers


def main(arguments: Sequence[str]) -> int:
    """The exit code: 1 if a seed was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="the first one; alone, the only one (SEED)")
    parser.add_argument("--seeds", type=_count, help=f"how many; {SEEDS} if nothing is given (SEEDS)")
    parser.add_argument("--days", type=_count, default=DAYS, help=f"how many storms each, a day apart; {DAYS} (DAYS)")
    parser.add_argument("--jobs", type=_count, help="at a time; one for each core if not given")
    parser.add_argument("--only", help="the ids of the only faults that happen, separated by |")
    parser.add_argument("--log", help="a file for each callback and byte of the seed")
    parser.add_argument("--hashes", action="store_true", help="print the hash of each seed")
    parser.add_argument("--no-shrink", action="store_true", help="only say what was violated first")
    options = parser.parse_args(arguments)
    first = 1 if options.seed is None else options.seed
    count = options.seeds or (SEEDS if options.seed is None else 1)
    only = None if options.only is None else tuple(filter(None, options.only.split("|")))
    tasks = [Task(seed, options.days, only, options.log) for seed in range(first, first + count)]
    began, outcomes = time.monotonic(), list[Outcome]()
    for outcome in _with_progress(tasks, options.jobs):
        outcomes.append(outcome)
        if options.hashes:
            print(f"{outcome.task.seed} {outcome.hash}", flush=True)
        if outcome.violation:
            print(f"{outcome.trace}SEED {outcome.task.seed}: {outcome.violation}", flush=True)
            if not options.no_shrink:
                _report(outcome)
            return 1
    if difference := _difference(tasks[0], outcomes):
        print(f"SEED {first}: its second run was another one, from this line on:\n{difference}")
        return 1
    if not options.hashes:
        _summarize(outcomes, time.monotonic() - began)
    return 0


def _count(text: str) -> int:
    if (number := int(text)) < 1:
        raise ValueError
    return number


def _with_progress(tasks: Sequence[Task], jobs: int | None) -> Iterator[Outcome]:
    virtual = 0.0
    for done, outcome in enumerate(run_all(tasks, jobs), 1):
        virtual += outcome.seconds
        _progress(f"{done} of {len(tasks)} seeds, {virtual / 3600:.1f} virtual hours")
        yield outcome
    _progress("")


def _progress(text: str) -> None:
    """In the place of the last one."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def _summarize(outcomes: Sequence[Outcome], seconds: float) -> None:
    virtual, counts = sum(outcome.seconds for outcome in outcomes), Counter[str]()
    for outcome in outcomes:
        counts.update(outcome.counts)
    print(f"{len(outcomes):,} seeds, {virtual / 3600:,.1f} virtual hours in {seconds:,.0f} s, no violation")
    for name, count in sorted(counts.items()):
        print(f"{count:9,} {name}")


def _report(outcome: Outcome) -> None:
    """Shrinks a violation, and says how to have it again."""

    def fails(choices: Sequence[Sequence[Fault]]) -> Sequence[Sequence[Fault] | None]:
        _progress(f"{max(map(len, choices))} faults left")
        tasks = [outcome.task._replace(only=tuple(fault.id for fault in only)) for only in choices]
        found = {again.task: again for again in run_all(tasks)}
        return [found[task].faults if _kind(found[task]) == _kind(outcome) else None for task in tasks]

    print(f"{len(outcome.faults)} faults; looking for those that matter ...", flush=True)
    left = Shrinking(outcome.faults, fails, at_once=CORES).shrink()
    _progress("")
    print("\n".join(map(str, left)) or "It needs no fault.")
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    only = "|".join(fault.id for fault in left)
    print(f"commit {commit.stdout.strip() or 'unknown'}; the same again:")
    seed = f"--seed {outcome.task.seed} --days {outcome.task.days}"
    print(f"  {sys.executable} -m tests.simulation {seed} --only '{only}'")


def _kind(outcome: Outcome) -> str:
    found = KIND.match(outcome.violation)
    assert found is not None
    return found[0]


def _difference(task: Task, outcomes: Sequence[Outcome]) -> str:
    """The first line in which a second run of the seed differs; empty if none does."""
    first = next(outcome for outcome in outcomes if outcome.task == task)
    if run_one(task).hash == first.hash:
        return ""
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder, name) for name in ("one", "other")]
        for log in logs:
            run_one(task._replace(log=str(log)))
        lines = zip_longest(*(log.read_text().splitlines() for log in logs), fillvalue="the end")
        found = next((pair for pair in lines if pair[0] != pair[1]), ("only the first run differed", ""))
    return "\n".join(line[:2000] for line in found)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        code = main(sys.argv[1:])
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    sys.stdout.flush()
    os._exit(code)  # nobody waits for a collector
