"""`make simulate`: seeds of the simulation on all cores, to the first violation, which is then shrunk."""

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from tests.simulation import switches  # isort: skip  # before payres, which binds some names of what it switches
from tests.simulation.fault import Fault
from tests.simulation.planted import TOP, at_least_one
from tests.simulation.runs import CORES, run_all, run_one
from tests.simulation.scenario import Outcome, Task
from tests.simulation.shrinking import shrink

assert switches.world is None

SEEDS: Final = 100
DAYS: Final = 2
WORDS: Final = re.compile("[A-Za-z ]*")


def main(arguments: Sequence[str]) -> int:
    """The exit code: 1 if a seed was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="the first one; alone, the only one (SEED)")
    parser.add_argument("--seeds", type=at_least_one, help=f"how many; {SEEDS} if nothing is given (SEEDS)")
    parser.add_argument("--days", type=at_least_one, default=DAYS, help=f"with a storm each; {DAYS} (DAYS)")
    parser.add_argument("--jobs", type=at_least_one, help="at a time; one for each core if not given")
    parser.add_argument("--only", help="the ids of the only faults that happen, separated by |")
    parser.add_argument("--log", help="a file to write with each callback, byte and fault of the seed")
    parser.add_argument("--hashes", action="store_true", help="print the hash of each seed")
    parser.add_argument("--no-shrink", action="store_true", help="only say what was violated first")
    options = parser.parse_args(arguments)
    first = 1 if options.seed is None else options.seed
    count = options.seeds or (SEEDS if options.seed is None else 1)
    if options.log is not None and count > 1:
        parser.error("--log is for one seed")
    only = None if options.only is None else tuple(filter(None, options.only.split("|")))
    tasks = (Task(seed, options.days, only, options.log) for seed in range(first, first + count))
    began, outcomes = time.monotonic(), list[Outcome]()
    for outcome in run_all(tasks, options.jobs):
        outcomes.append(outcome)
        if options.hashes:
            print(f"{outcome.task.seed} {outcome.hash}", flush=True)
        if outcome.violation:
            print(f"{outcome.trace}SEED {outcome.task.seed}: {outcome.violation}", flush=True)
            if not options.no_shrink:
                _report(outcome)
            return 1
    if missing := set(only or ()).difference(fault.id for outcome in outcomes for fault in outcome.faults):
        print(f"did not happen: {', '.join(sorted(missing))}")
    first_one = next(outcome for outcome in outcomes if outcome.task.seed == first)
    if run_one(first_one.task._replace(log=None)).hash != first_one.hash:
        print(f"SEED {first}: its second run was another one: compare what --log writes in two runs")
        return 1
    if not options.hashes:
        _summarize(outcomes, time.monotonic() - began)
    return 0


def _summarize(outcomes: Sequence[Outcome], seconds: float) -> None:
    virtual, counts = sum(outcome.seconds for outcome in outcomes), Counter[str]()
    for outcome in outcomes:
        counts.update(outcome.counts)
    print(f"{len(outcomes):,} seeds, {virtual / 3600:,.1f} virtual hours in {seconds:,.0f} s, no violation")
    print("\n".join(f"{count:9,} {name}" for name, count in sorted(counts.items())))


def _report(outcome: Outcome) -> None:
    """Says how to have a violation again, and shrinks it."""
    task, said = outcome.task._replace(log=None), outcome.violation
    left: Sequence[Fault] = outcome.faults

    def fails(choices: Sequence[Sequence[Fault]]) -> Sequence[Sequence[Fault] | None]:
        nonlocal said
        tasks = [task._replace(only=tuple(fault.id for fault in only)) for only in choices]
        found = {again.task: again for again in run_all(tasks)}
        same = [found[one] if _kind(found[one]) == _kind(outcome) else None for one in tasks]
        said = next((one.violation for one in same if one), said)
        return [one.faults if one else None for one in same]

    described = ["git", "describe", "--always", "--dirty"]
    commit = subprocess.run(described, cwd=TOP, capture_output=True, text=True, check=False).stdout.strip()
    print(f"at {commit or 'an unknown commit'}; the same again:\n  {_command(task)}")
    print(f"{len(outcome.faults)} faults; looking for those that matter ...", flush=True)
    try:
        for fewer in shrink(outcome.faults, fails, at_once=CORES):
            left = fewer
    finally:
        print("\n".join(map(str, left)) or "It needs no fault.")
        print(f"With these alone: {said}\n  {_command(task, left)}", flush=True)


def _kind(outcome: Outcome) -> str:
    """The beginning of a violation, without names of servers and numbers, which differ when fewer faults happen."""
    found = WORDS.match(outcome.violation)
    return " ".join(word for word in found[0].split() if len(word) > 1) if found else ""


def _command(task: Task, faults: Sequence[Fault] | None = None) -> str:
    only = () if faults is None else ("--only", "|".join(fault.id for fault in faults))
    about = ("--seed", str(task.seed), "--days", str(task.days), *only)
    return shlex.join([sys.executable, "-m", "tests.simulation", *about])


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    code = 128 + signal.SIGINT
    with suppress(KeyboardInterrupt, BrokenPipeError):
        code = main(sys.argv[1:])
        sys.stdout.flush()
    os._exit(code)  # nobody waits for a collector
