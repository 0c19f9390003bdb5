"""`make simulate`: seeds of the simulation on all cores, to the first violation, which it then shrinks."""

import argparse
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence

from tests.simulation import entropy  # isort: skip  # before payres, which binds some names of what it switches
from tests.simulation.runs import Task, run_all, run_one
from tests.simulation.scenario import Outcome
from tests.simulation.shrinking import shrink
from tests.simulation.world import Fault

assert entropy.world is None


def main(arguments: Sequence[str]) -> int:
    """The exit code: 1 if a seed was violated."""
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first one (SEED)")
    parser.add_argument("--seeds", type=int, default=100, help="how many (SEEDS)")
    parser.add_argument("--days", type=int, default=2, help="how many storms each, a day apart (DAYS)")
    parser.add_argument("--only", help="the ids of the only faults that happen, separated by |")
    parser.add_argument("--log", help="a file for each callback and byte of one seed")
    parser.add_argument("--hashes", action="store_true", help="print the hash of each seed")
    options = parser.parse_args(arguments)
    only = None if options.only is None else tuple(filter(None, options.only.split("|")))
    seeds = range(options.seed, options.seed + options.seeds)
    return _simulate([Task(seed, options.days, only, options.log) for seed in seeds], hashes=options.hashes)


def _simulate(tasks: Sequence[Task], *, hashes: bool) -> int:
    began, done, counts, virtual = time.monotonic(), 0, Counter[str](), 0.0
    for outcome in run_all(tasks):
        done += 1
        counts.update(outcome.counts)
        virtual += outcome.seconds
        if hashes:
            print(f"{outcome.seed} {outcome.hash}", flush=True)
        elif sys.stdout.isatty():
            print(f"\r{done} of {len(tasks)} seeds, {virtual / 3600:.1f} virtual hours", end="", flush=True)
        if outcome.violation:
            print(f"\n{outcome.trace}SEED {outcome.seed}: {outcome.violation}", flush=True)
            _report(outcome, next(task for task in tasks if task.seed == outcome.seed))
            return 1
    took = time.monotonic() - began
    if not hashes:
        print(f"\r{done} seeds, {virtual / 3600:.1f} virtual hours in {took:.0f} s, no violation")
        for name, count in sorted(counts.items()):
            print(f"{count:9,} {name}")
    return 0


def _report(outcome: Outcome, task: Task) -> None:
    """Shrinks a violation, and says how to have it again."""
    kind = outcome.violation[:20]

    def fails(only: Sequence[Fault]) -> Sequence[Fault] | None:
        again = run_one(task._replace(only=tuple(fault.id for fault in only)))
        return again.faults if again.violation.startswith(kind) else None

    print(f"{len(outcome.faults)} faults; looking for those that matter ...", flush=True)
    left = shrink(outcome.faults, fails)
    print("\n".join(map(str, left)))
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    print(f"commit {commit.stdout.strip() or 'unknown'}; the same again:")
    only = "|".join(fault.id for fault in left)
    print(f"  .venv/bin/python -m tests.simulation --seed {task.seed} --seeds 1 --days {task.days} --only '{only}'")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
