"""What the processes run that are forked as servers."""

from functools import partial
from pathlib import Path
from unittest.mock import patch

from payres.cli import main
from payres.clock import SECOND
from payres.events import deliveries
from payres.interledger import outbound, remote_payments, unanswered
from payres.interledger.remote_payments import Backoff
from payres.interledger.sending.connection import Timing
from payres.routes import monitoring
from payres.store import lanes, work
from tests.crash import shared_clock
from tests.crash.shared_clock import SharedClock

LIFETIME = 3 * SECOND


def serve() -> None:
    main(["serve", "--json", "--quiet"])


def serve_impatient() -> None:
    """The same, but it soon gives up waiting for storage, looks often whether that works, and tells webhooks then."""
    with (
        patch.object(lanes, "BUSY_TIMEOUT_SECONDS", 2),
        patch.object(monitoring, "COMMIT_SECONDS", 1),
        patch.object(monitoring, "CACHE_SECONDS", 0.1),
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
        patch.object(unanswered, "TICK_SECONDS", shared_clock.TICK_SECONDS),
        patch.object(unanswered, "pause", clock.pause),
    ):
        serve()
