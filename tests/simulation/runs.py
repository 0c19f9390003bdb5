"""Runs seeds, each in a process of its own: it begins with the caches of a process that has run nothing."""

import multiprocessing
import os
import resource
import shutil
import signal
import tempfile
from collections.abc import Iterable, Iterator
from functools import cache
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Final

from payres.html.html import load_templates
from payres.operator.declared import api
from payres.operator.pages import serving as operators_pages
from payres.people import serving as pages
from tests.simulation.scenario import Outcome, Task, run_seed
from tests.simulation.server import new_database
from tests.simulation.world import Progress

HUNG_SECONDS: Final = 300  # in which no seed ended, and one made no step: on a busy machine too that takes no second
MEMORY: Final = Path("/dev/shm")
NEEDED: Final = 200_000_000  # bytes there, else the files are where temporary files are
FILES: Final = 1024  # that a process may have open: connections to the databases of all lives of all servers
CORES: Final = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_all(tasks: Iterable[Task], processes: int | None = None) -> Iterator[Outcome]:
    """The outcomes as they come, from one process for each core unless given. Closing the iterator ends the rest.
    Raises OSError for a machine on which no seed can run."""
    _load()
    _allow_files()
    context = multiprocessing.get_context("fork")
    waiting, running = iter(tasks), dict[Connection, tuple[ForkProcess, Task, Progress]]()
    has_room = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > NEEDED
    folder = tempfile.TemporaryDirectory(prefix="simulation-", dir=MEMORY if has_room else None)
    try:
        while True:
            while len(running) < (processes or CORES) and (task := next(waiting, None)) is not None:
                here, there = context.Pipe(duplex=False)
                progress = context.RawValue("q", 0)
                about = task, Path(folder.name), progress, there
                process = context.Process(target=_run, args=about, daemon=True)
                process.start()
                there.close()
                running[here] = process, task, progress
            if not running:
                return
            steps = {one: progress.value for one, (_, _, progress) in running.items()}
            ended = wait(list(running), HUNG_SECONDS)
            for ready in ended or [one for one, (_, _, progress) in running.items() if steps[one] == progress.value]:
                assert isinstance(ready, Connection)
                process, task, _ = running.pop(ready)
                yield _outcome(ready, task)
                process.kill()
                process.join()
    finally:
        for process, _, _ in running.values():
            process.kill()
            process.join()
        folder.cleanup()


def run_one(task: Task) -> Outcome:
    return next(run_all([task]))


def _allow_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < FILES:
        if hard != resource.RLIM_INFINITY and hard < FILES:
            raise OSError(f"a seed needs {FILES} open files, and this shell allows {hard}: see `ulimit -n`")
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, hard))


@cache
def _load() -> None:
    """Loads what servers load late, which each seed would do anew."""
    for routes in (api.admin_routes, operators_pages.page_routes, pages.page_routes, new_database):
        routes()
    load_templates("html", "accounts", "people", "operator")


def _run(task: Task, folder: Path, progress: Progress, answer: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # what began it ends it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    answer.send(run_seed(task, folder, progress))
    answer.close()
    os._exit(0)  # no collector looks at what a killed server left


def _outcome(answer: Connection, task: Task) -> Outcome:
    try:
        if answer.poll():
            found: Outcome = answer.recv()
            return found
        violation = f"hung: the seed made no step in {HUNG_SECONDS} s"
    except EOFError:
        violation = "the process of the seed ended without an answer"
    return Outcome(task=task, violation=violation)
