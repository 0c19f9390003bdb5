"""What the processes run that are forked as servers."""

from functools import partial
from unittest.mock import patch

from payres.cli import main
from payres.clock import SECOND
from payres.interledger import outbound, reconciliation
from payres.interledger.sending.pacing import Timing

LIFETIME = 3 * SECOND


def serve() -> None:
    main(["serve", "--json", "--quiet"])


def serve_hurried() -> None:
    """The same, but Interledger packets live for seconds: it soon asks about those that a kill left unanswered.

    Soon after that the receiver is asked what it has received: all clocks here are the same.
    """
    with (
        patch.object(outbound, "Timing", partial(Timing, packet_lifetime=LIFETIME)),
        patch.object(reconciliation, "MARGIN", SECOND),
    ):
        serve()
