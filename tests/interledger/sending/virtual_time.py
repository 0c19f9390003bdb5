"""An event loop whose time is a number: where others wait, it moves ahead at once."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    elapsed = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everybody waits, and nothing will ever happen")
        self.elapsed += max(timeout, 0)
        return super().select(0)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Its time begins at zero and passes only while nothing is left to do."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.elapsed

    def stall(self, seconds: float) -> None:
        """Time passes as in a callback that takes so long: timers that are due meanwhile are late."""
        self._virtual.elapsed += seconds


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs to the end in no time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
