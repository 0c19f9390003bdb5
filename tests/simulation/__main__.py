"""`make simulate`: seeds of the simulation on all cores, to the first violation, which is then shrunk."""

import argparse
import os
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
from tests.simulation.runs import Task, run_all, run_one
from tests.simulation.scenario import Outcome
from tests.simulation.shrinking import shrink
from tests.simulation.world import Fault

assert entropy.world is None

SEEDS: Final = 100
DAYS: Final = 2
SAME: Final = 24  # characters at the beginning by which violations are the same


def main(arguments: Sequence[str]) -> int:
    """The exit code: 1 if a seed was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="the first one; alone, the only one (SEED)")
    parser.add_argument("--seeds", type=int, help=f"how many; {SEEDS} if nothing is given (SEEDS)")
    parser.add_argument("--days", type=int, default=DAYS, help=f"how many storms each, a day apart; {DAYS} (DAYS)")
    parser.add_argument("--jobs", type=int, help="at a time; one for each core if not given")
    parser.add_argument("--only", help="the ids of the only faults that happen, separated by |")
    parser.add_argument("--log", help="a file for each callback and byte of the seed")
    parser.add_argument("--hashes", action="store_true", help="print the hash of each seed")
    parser.add_argument("--no-shrink", action="store_true", help="only say what was violated first")
    options = parser.parse_args(arguments)
    first, count = options.seed or 1, options.seeds or (1 if options.seed else SEEDS)
    only = None if options.only is None else tuple(filter(None, options.only.split("|")))
    tasks = [Task(seed, options.days, only, options.log) for seed in range(first, first + count)]
    began, outcomes = time.monotonic(), list[Outcome]()
    for outcome in _with_progress(tasks, options.jobs):
        outcomes.append(outcome)
        if options.hashes:
            print(f"{outcome.seed} {outcome.hash}", flush=True)
        if outcome.violation:
            print(f"{outcome.trace}SEED {outcome.seed}: {outcome.violation}", flush=True)
            if not options.no_shrink:
                _report(outcome, next(task for task in tasks if task.seed == outcome.seed))
            return 1
    if difference := _difference(tasks[0], outcomes):
        print(f"SEED {first}: its second run was another one, from this line on:\n{difference}")
        return 1
    if not options.hashes:
        _summarize(outcomes, time.monotonic() - began)
    return 0


def _with_progress(tasks: Sequence[Task], jobs: int | None) -> Iterator[Outcome]:
    virtual = 0.0
    for done, outcome in enumerate(run_all(tasks, jobs), 1):
        virtual += outcome.seconds
        if sys.stderr.isatty():
            print(f"\r{done} of {len(tasks)} seeds, {virtual / 3600:.1f} virtual hours ", end="", file=sys.stderr)
        yield outcome
    if sys.stderr.isatty():
        print("\r", end="", file=sys.stderr)


def _summarize(outcomes: Sequence[Outcome], seconds: float) -> None:
    virtual, counts = sum(outcome.seconds for outcome in outcomes), Counter[str]()
    for outcome in outcomes:
        counts.update(outcome.counts)
    print(f"{len(outcomes):,} seeds, {virtual / 3600:,.1f} virtual hours in {seconds:,.0f} s, no violation")
    for name, count in sorted(counts.items()):
        print(f"{count:9,} {name}")


def _report(outcome: Outcome, task: Task) -> None:
    """Shrinks a violation, and says how to have it again."""

    def fails(only: Sequence[Fault]) -> Sequence[Fault] | None:
        again = run_one(task._replace(only=tuple(fault.id for fault in only)))
        return again.faults if again.violation.startswith(outcome.violation[:SAME]) else None

    print(f"{len(outcome.faults)} faults; looking for those that matter ...", flush=True)
    left = shrink(outcome.faults, fails)
    print("\n".join(map(str, left)))
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    only = "|".join(fault.id for fault in left)
    print(f"commit {commit.stdout.strip() or 'unknown'}; the same again:")
    print(f"  {sys.executable} -m tests.simulation --seed {task.seed} --days {task.days} --only '{only}'")


def _difference(task: Task, outcomes: Sequence[Outcome]) -> str:
    """The first line in which a second run of the seed differs; empty if none does."""
    first = next(outcome for outcome in outcomes if outcome.seed == task.seed)
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
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # nobody waits for a collector
