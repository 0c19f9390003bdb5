"""Failures of storage: each is logged once, however often it is repeated, and their number once they have ended."""

import logging
from typing import Final

from payres.core.protocol.clock import SECOND, Clock

QUIET: Final = 10 * SECOND  # without a failure, after which they have ended: while they last, some work may succeed

log = logging.getLogger("payres.store")


class Failures:
    """The failures of `what`: reading, or writing."""

    def __init__(self, what: str, clock: Clock) -> None:
        self._what = what
        self._clock = clock
        self._known: set[str] = set()
        self._count = 0
        self._last_at = 0

    def note(self, sentence: str, error: BaseException) -> None:
        """Counts a failure, and logs it if it is another than those before."""
        self._count += 1
        self._last_at = self._clock.now()
        text = f"{sentence}: {error}"
        if text not in self._known:
            self._known.add(text)
            log.error("%s", text)

    def end(self) -> None:
        """Called after each success."""
        if self._known and not 0 <= self._clock.now() - self._last_at < QUIET:
            log.warning("%s works again; failures: %d", self._what, self._count)
            self._known.clear()
            self._count = 0
