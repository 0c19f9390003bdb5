"""`payres` whose Interledger packets live for seconds, so that it soon asks about those that a kill left unanswered.

Soon after that the receiver is asked what it has received: all clocks here are the same.

Nothing else differs from the program.
"""

import sys
from functools import partial
from unittest.mock import patch

from payres.cli import main
from payres.clock import SECOND
from payres.interledger import outbound, reconciliation
from payres.interledger.sending.pacing import Timing

LIFETIME = 3 * SECOND
COMMAND = (sys.executable, __file__, "serve", "--json", "--quiet")

if __name__ == "__main__":
    with (
        patch.object(outbound, "Timing", partial(Timing, packet_lifetime=LIFETIME)),
        patch.object(reconciliation, "MARGIN", SECOND),
    ):
        main()
