"""Runs seeds, each in a process of its own: it begins with the caches of a process that has run nothing."""

import multiprocessing
import os
from collections.abc import Iterable, Iterator
from functools import cache
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import Final, NamedTuple

from payres.html.html import load_templates
from payres.operator import api
from payres.operator.pages import serving as operators_pages
from payres.people import serving as pages
from tests.simulation.scenario import Outcome, run_seed

HUNG_SECONDS: Final = 600  # of real time, in which no seed ended


class Task(NamedTuple):
    """A seed, the days that it lives, and the ids of the only faults that happen, if not all of them do."""

    seed: int
    days: int
    only: tuple[str, ...] | None = None
    log: str | None = None


def run_all(tasks: Iterable[Task], processes: int | None = None) -> Iterator[Outcome]:
    """The outcomes as they come, from one process for each core unless given. Closing the iterator ends the rest."""
    _load()
    context = multiprocessing.get_context("fork")
    waiting, running = iter(tasks), dict[Connection, tuple[ForkProcess, Task]]()
    try:
        while True:
            while len(running) < (processes or os.cpu_count() or 1) and (task := next(waiting, None)) is not None:
                here, there = context.Pipe(duplex=False)
                process = context.Process(target=_run, args=(task, there), daemon=True)
                process.start()
                there.close()
                running[here] = process, task
            if not running:
                return
            for ready in wait(list(running), HUNG_SECONDS) or list(running):
                assert isinstance(ready, Connection)
                process, task = running.pop(ready)
                yield _outcome(ready, task)
                process.kill()
                process.join()
    finally:
        for process, _ in running.values():
            process.kill()


def run_one(task: Task) -> Outcome:
    """The outcome of one seed."""
    return next(run_all([task]))


@cache
def _load() -> None:
    """Loads what servers load late, which each seed would do anew."""
    for routes in (api.admin_routes, operators_pages.page_routes, pages.page_routes):
        routes()
    load_templates("pay.html", "pay_return.html", "error.html")


def _run(task: Task, answer: Connection) -> None:
    answer.send(run_seed(*task))
    answer.close()
    os._exit(0)  # no collector looks at what a killed server left


def _outcome(answer: Connection, task: Task) -> Outcome:
    try:
        if answer.poll():
            found: Outcome = answer.recv()
            return found
        violation = f"hung: the seed made no step for {HUNG_SECONDS} s"
    except EOFError:
        violation = "the process of the seed ended without an answer"
    return Outcome(seed=task.seed, days=task.days, violation=violation)
