"""Runs payres while sampling what its event loop's thread computes: `sampler.py FILE serve ...` writes FILE at the end.

From SIGUSR1 on, a timer of the process's own processor time interrupts that thread between two instructions of Python.
What it has used since the last time counts for the functions that it is in, those written in C for the one that called
them: the file has pairs of seconds and a stack, each function of it as `file:line name`, the innermost first.
"""

import signal
import sys
from collections import defaultdict
from pathlib import Path
from time import thread_time
from types import CodeType, FrameType

import msgspec

from payres.cli import main

INTERVAL_SECONDS = 0.001  # the kernel makes it a multiple of its own tick, mostly 4 ms


class Sampler:
    """Processor time in each stack."""

    def __init__(self) -> None:
        self._seconds: defaultdict[tuple[CodeType, ...], float] = defaultdict(float)
        self._until = 0.0
        signal.signal(signal.SIGUSR1, self._start)

    def write(self, file: Path) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)

        def named(code: CodeType) -> str:
            return f"{code.co_filename}:{code.co_firstlineno} {code.co_qualname}"

        found = [(seconds, [*map(named, stack)]) for stack, seconds in self._seconds.items()]
        file.write_bytes(msgspec.json.encode(found))

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
        sampler.write(Path(sys.argv[1]))
