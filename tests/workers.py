"""Runs the files of tests in several processes at a time, forked from one that has collected the tests.

So they are collected once. A process takes a file at a time; its reports go to the first process, which shows them.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TypeAlias

import pytest

Worker: TypeAlias = "Connection[Any, Any]"
File = list[pytest.Item]


def run_in_workers(session: pytest.Session, number: int, first: Sequence[Path]) -> None:
    """Runs the collected tests in so many processes, beginning with the files that are named `first`.

    Returns in the workers, too, once their part is done: each ends as a run of pytest does, and shows nothing.
    """
    files = _files(session.items, first)
    workers: dict[Worker, int] = {}
    for _ in range(number):
        ours, theirs = Pipe()
        pid = os.fork()
        if pid == 0:
            for connection in (ours, *workers):
                connection.close()
            _work(session, files, theirs)
            return
        theirs.close()
        workers[ours] = pid
    try:
        _lead(session, files, workers)
    finally:
        for worker, pid in workers.items():  # of a run that was interrupted, as they were
            worker.close()
            os.waitpid(pid, 0)
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)


def _files(items: list[pytest.Item], first: Sequence[Path]) -> list[File]:
    files: dict[Path, File] = {path: [] for path in first}
    for item in items:
        files.setdefault(item.path, []).append(item)
    return [file for file in files.values() if file]


def _lead(session: pytest.Session, files: list[File], workers: dict[Worker, int]) -> None:
    """Hands out files and takes reports until the last worker has ended."""
    waiting = iter(range(len(files)))
    under_way: dict[Worker, tuple[str, Any]] = {}
    while workers:
        for worker in wait(list(workers)):
            assert isinstance(worker, Connection)
            try:
                kind, content = worker.recv()
            except EOFError:
                status = os.waitstatus_to_exitcode(os.waitpid(workers.pop(worker), 0)[1])
                if worker in under_way or status not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}:
                    _report_loss(session, status, *under_way.get(worker, ("workers", ("workers", None, "workers"))))
                continue
            if kind == "file":
                stops = session.shouldfail or session.shouldstop
                with suppress(BrokenPipeError):
                    worker.send(None if stops else next(waiting, None))
            elif kind == "start":
                under_way[worker] = content
            else:
                under_way.pop(worker, None)
                for data in content:
                    report = session.config.hook.pytest_report_from_serializable(config=session.config, data=data)
                    session.config.hook.pytest_runtest_logreport(report=report)


def _report_loss(session: pytest.Session, status: int, nodeid: str, location: Any) -> None:
    """Fails the test with which a worker has ended."""
    sentence = f"the process that ran this test ended with status {status}"
    report = pytest.TestReport(nodeid, location, {}, "failed", sentence, "call")
    session.config.hook.pytest_runtest_logreport(report=report)


def _work(session: pytest.Session, files: list[File], connection: Worker) -> None:
    """Runs the tests of the files that it gets, in a process of its own."""
    config = session.config
    config.workerinput = {}  # type: ignore[attr-defined] # by which plugins know that others show and keep the results
    config.pluginmanager.unregister(name="terminalreporter")
    capture = config.pluginmanager.get_plugin("capturemanager")
    assert capture is not None
    capture.stop_global_capturing()  # its files are those of all who were forked
    capture.start_global_capturing()
    capture.suspend_global_capture()
    config.pluginmanager.register(_Reporter(config, connection))
    with suppress(BrokenPipeError, EOFError):  # when the first process was interrupted
        items = _items(files, connection)
        item = next(items, None)
        while item is not None:
            following = next(items, None)
            config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            item = None if session.shouldfail or session.shouldstop else following


def _items(files: list[File], connection: Worker) -> Iterator[pytest.Item]:
    """The tests of one file after another, as long as there are any."""
    while True:
        connection.send(("file", None))
        number = connection.recv()
        if number is None:
            return
        yield from files[number]


class _Reporter:
    """Sends the reports of each test together, which is cheaper than one by one."""

    def __init__(self, config: pytest.Config, connection: Worker) -> None:
        self._config = config
        self._connection = connection
        self._reports: list[Any] = []

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        self._connection.send(("start", (nodeid, location)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._reports.append(data)

    def pytest_runtest_logfinish(self) -> None:
        self._connection.send(("reports", self._reports))
        self._reports = []
