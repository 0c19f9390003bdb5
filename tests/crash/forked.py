"""Programs forked from a process that has loaded payres: a tenth of what it takes to start Python for each."""

import os
import signal
from collections.abc import Callable, Mapping
from multiprocessing import get_context
from pathlib import Path
from types import TracebackType
from typing import Any, Self

CONTEXT = get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "tests.crash.forked",
        "tests.crash.serve",
        "payres.application",
        "payres.cli.server",
        "payres.core.http.server",
        "payres.people.serving",
        "uvloop",
    ]
)


class Forked:
    """A function that runs as a program does, with standard output in a pipe; it has the methods of a Popen."""

    def __init__(
        self, function: Callable[[], None], folder: Path, environment: Mapping[str, str], errors: Path
    ) -> None:
        reads, writes = CONTEXT.Pipe(duplex=False)
        self._process = CONTEXT.Process(
            target=_run, args=(function, folder, dict(environment), errors, writes), daemon=True
        )
        self._process.start()
        writes.close()
        self.stdout = os.fdopen(os.dup(reads.fileno()), encoding="utf-8")
        reads.close()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stdout.close()

    def send_signal(self, number: signal.Signals) -> None:
        if self._process.exitcode is None:
            os.kill(self.pid, number)

    def wait(self, timeout: float) -> int:
        self._process.join(timeout)
        assert self._process.exitcode is not None, f"process {self.pid} does not end"
        return self._process.exitcode


def _run(function: Callable[[], None], folder: Path, environment: dict[str, str], errors: Path, writes: Any) -> None:
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    os.dup2(writes.fileno(), 1)
    writes.close()
    with errors.open("a") as log:
        os.dup2(log.fileno(), 2)
    function()
