"""Runs payres while sampling what its event loop's thread computes: `sampler.py FILE serve ...` writes FILE at the end.

A timer of the process's own processor time interrupts that thread between two instructions of Python. What it has used
since the last time counts for the functions that it is in: those written in C count for the function that called them.
"""

import signal
import sys
from collections import defaultdict
from pathlib import Path
from time import thread_time
from types import CodeType, FrameType
from typing import NamedTuple

import msgspec

from payres.cli import main

INTERVAL_SECONDS = 0.001  # the kernel makes it a multiple of its own tick, mostly 4 ms


class Function(NamedTuple):
    """Where a function is defined."""

    file: str
    line: int
    name: str


class Sample(NamedTuple):
    """Processor time in one stack of functions, the innermost first."""

    seconds: float
    stack: tuple[Function, ...]


class Sampler:
    """Samples from SIGUSR1 on."""

    def __init__(self) -> None:
        self._seconds: defaultdict[tuple[CodeType, ...], float] = defaultdict(float)
        self._until = 0.0
        signal.signal(signal.SIGUSR1, self._start)

    def samples(self) -> list[Sample]:
        signal.setitimer(signal.ITIMER_PROF, 0)
        return [
            Sample(seconds, tuple(Function(code.co_filename, code.co_firstlineno, code.co_qualname) for code in stack))
            for stack, seconds in self._seconds.items()
        ]

    def _start(self, _number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGPROF, self._take)
        signal.siginterrupt(signal.SIGPROF, False)
        self._until = thread_time()
        signal.setitimer(signal.ITIMER_PROF, INTERVAL_SECONDS, INTERVAL_SECONDS)

    def _take(self, _number: int, frame: FrameType | None) -> None:
        used = thread_time() - self._until
        stack: list[CodeType] = []
        while frame is not None:
            stack.append(frame.f_code)
            frame = frame.f_back
        self._seconds[tuple(stack)] += used
        self._until = thread_time()


if __name__ == "__main__":
    sampler = Sampler()
    try:
        main(sys.argv[2:])
    finally:
        Path(sys.argv[1]).write_bytes(msgspec.json.encode(sampler.samples()))
