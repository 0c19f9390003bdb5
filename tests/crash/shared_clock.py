"""A clock of several servers in processes of their own, moved whenever a payment only waits for it."""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack, closing
from mmap import mmap
from pathlib import Path

from payres.clock import Clock, SystemClock
from payres.store.connections import connect_writer

OFFSET, AWAITED = range(2)  # what the file has, in microseconds
BYTES = 16
TICK_SECONDS = 0.02


class SharedClock:
    """The system's clock, moved forward by what a file says, which also says for what time a server waits."""

    def __init__(self, file: Path) -> None:
        if not file.exists():
            file.write_bytes(bytes(BYTES))
        with file.open("r+b") as opened:
            self._values = memoryview(mmap(opened.fileno(), BYTES)).cast("q")

    def now(self) -> int:
        return SystemClock().now() + self._values[OFFSET]

    async def pause(self, clock: Clock, due: int | None) -> None:
        """Waits as `unanswered.pause` does, and says in the file for what time."""
        if due is not None and due > clock.now():
            self._values[AWAITED] = due
        await asyncio.sleep(TICK_SECONDS)

    def forget(self) -> None:
        """Nobody waits: the server that did may have been killed."""
        self._values[AWAITED] = 0

    def skip(self, databases: Sequence[Path]) -> None:
        """Ends the wait, if a server waits.

        It moves under the locks of all databases, so that no unit of work which began before ends after.
        """
        if self._values[AWAITED] <= self.now():
            return
        with ExitStack() as stack:
            for database in databases:
                connection = stack.enter_context(closing(connect_writer(str(database))))
                connection.execute("BEGIN IMMEDIATE")
            self._values[OFFSET] += max(self._values[AWAITED] - self.now(), 0)
