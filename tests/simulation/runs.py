"""Runs seeds, each in a process of its own: it begins with the caches of a process that has run nothing."""

import multiprocessing
import os
import resource
import shutil
import signal
import tempfile
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Final

from payres.html.html import load_templates
from payres.operator.declared import api
from payres.operator.pages import serving as operators_pages
from payres.operator.upkeep import doctor
from payres.people import serving as pages
from tests.simulation.scenario import Outcome, Task, run_seed
from tests.simulation.server import new_database

HUNG_SECONDS: Final = 300  # for each day of a seed: on a busy machine too it takes few
MEMORY: Final = Path("/dev/shm")
NEEDED: Final = 200_000_000  # bytes there, else the files are where temporary files are
FILES: Final = 1024  # that a process may have open: connections to the databases of all lives of all servers
CORES: Final = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_all(tasks: Iterable[Task], processes: int | None = None) -> Iterator[Outcome]:
    """The outcomes as they come, from one process for each core unless given. Closing the iterator ends the rest."""
    _load()
    context, waiting = multiprocessing.get_context("fork"), iter(tasks)
    running = dict[Connection, tuple[ForkProcess, Task]]()
    has_room = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > NEEDED
    with tempfile.TemporaryDirectory(prefix="simulation-", dir=MEMORY if has_room else None) as folder:
        try:
            while True:
                for task in islice(waiting, (processes or CORES) - len(running)):
                    here, there = context.Pipe(duplex=False)
                    process = context.Process(target=_run, args=(task, Path(folder), there), daemon=True)
                    process.start()
                    there.close()
                    running[here] = process, task
                if not running:
                    return
                for ready in wait(list(running)):
                    assert isinstance(ready, Connection)
                    yield _outcome(ready, *running.pop(ready))
        finally:
            for process, _ in running.values():
                process.kill()
                process.join()


def run_one(task: Task) -> Outcome:
    return next(run_all([task]))


@cache
def _load() -> None:
    """Loads what servers load late, which each seed would do anew, and lets the process have its files."""
    for routes in (api.admin_routes, operators_pages.page_routes, pages.page_routes, doctor.trust, new_database):
        routes()
    load_templates("html", "accounts", "people", "operator")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, hard))


def _run(task: Task, folder: Path, answer: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # what began it ends it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.alarm(HUNG_SECONDS * task.days)
    answer.send(run_seed(task, folder))
    answer.close()
    os._exit(0)  # no collector looks at what a killed server left


def _outcome(answer: Connection, process: ForkProcess, task: Task) -> Outcome:
    try:
        found: Outcome = answer.recv()
    except EOFError:
        process.join()
        is_hung = process.exitcode == -signal.SIGALRM
        found = Outcome(task=task, violation="hung: no end" if is_hung else "the process ended without an answer")
    process.join()
    return found
