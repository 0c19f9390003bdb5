"""What the processes run that are forked as servers; some by a clock that is moved when a payment only waits for it."""

from collections.abc import Sequence
from contextlib import ExitStack, closing
from functools import partial
from mmap import mmap
from pathlib import Path
from unittest.mock import patch

from payres.agenda.store import agenda
from payres.cli import main
from payres.core.protocol.clock import SECOND, Clock, SystemClock
from payres.core.store import connections, work
from payres.core.store.connections import connect_writer
from payres.interledger import outbound, remote_payments, unanswered
from payres.interledger.remote_payments import Backoff
from payres.interledger.sending.timing import Timing
from payres.operator.upkeep import readiness
from payres.webhooks import deliveries

LIFETIME = 3 * SECOND
OFFSET, AWAITED = range(2)  # what the file has, in microseconds
BYTES = 16
TICK_SECONDS = 0.02


def serve() -> None:
    main(["serve", "--json", "--quiet"])


def serve_impatient() -> None:
    """The same, but it soon gives up waiting for storage, looks often whether that works, and tells webhooks then."""
    with (
        patch.object(connections, "BUSY_TIMEOUT_SECONDS", 2),
        patch.object(readiness, "COMMIT_SECONDS", 1),
        patch.object(readiness, "CACHE_SECONDS", 0.1),
        patch.object(deliveries, "RETRY_SECONDS", 0.1),
    ):
        serve()


def serve_hurried() -> None:
    """`serve`, but Interledger packets live for seconds: it soon asks about those that a kill left unanswered.

    Soon after that the receiver is asked what it has received: all clocks here are the same.
    """
    with (
        patch.object(outbound, "Timing", partial(Timing, packet_lifetime=LIFETIME)),
        patch.object(unanswered, "RECEIVER_MARGIN", SECOND),
    ):
        serve()


def serve_by(file: Path) -> None:
    """`serve` by the clock of this file: what became of packets is asked as soon as the test has moved it.

    Payments are tried again at once, and as often as another server takes to start.
    """
    clock = SharedClock(file)
    clock.forget()
    with (
        patch.object(work, "SystemClock", lambda: clock),
        patch.object(remote_payments, "Backoff", partial(Backoff, after_failure=0.02)),
        patch.object(remote_payments, "MAX_ATTEMPTS", 1000),
        patch.object(unanswered, "TICK_SECONDS", TICK_SECONDS),
        patch.object(unanswered, "seconds_until", clock.seconds_until),
        patch.object(agenda, "LOOK_SECONDS", TICK_SECONDS),
    ):
        serve()


class SharedClock:
    """The system's clock, moved forward by what a file says, which also says for what time a server waits."""

    def __init__(self, file: Path) -> None:
        if not file.exists():
            file.write_bytes(bytes(BYTES))
        with file.open("r+b") as opened:
            self._values = memoryview(mmap(opened.fileno(), BYTES)).cast("q")

    def now(self) -> int:
        return SystemClock().now() + self._values[OFFSET]

    def seconds_until(self, clock: Clock, due: int | None) -> float:
        """Like `unanswered.seconds_until`; says in the file for what time a server waits."""
        if due is not None and due > clock.now():
            self._values[AWAITED] = due
        return TICK_SECONDS

    def advance(self, microseconds: int) -> None:
        """Moves the clock of all servers that run by it."""
        self._values[OFFSET] += microseconds

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
