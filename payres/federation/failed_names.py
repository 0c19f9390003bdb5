"""Names that have just failed, so that requests do not try them again at once."""

from collections.abc import Callable, Hashable
from typing import Final

from payres.limits import MAX_FAILED_NAMES


class FailedNames:
    """Each is remembered for the same time, and of too many the first is dropped. `clock` gives seconds that grow."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds: Final = seconds
        self._clock: Final = clock
        self._until: Final[dict[Hashable, float]] = {}

    def __contains__(self, name: Hashable) -> bool:
        return name in self._until and self._clock() < self._until[name]

    def add(self, name: Hashable) -> None:
        """The name has failed now."""
        self._until.pop(name, None)  # so that the first is always the oldest
        self._until[name] = self._clock() + self._seconds
        if len(self._until) > MAX_FAILED_NAMES:
            del self._until[next(iter(self._until))]

    def discard(self, name: Hashable) -> None:
        """The name works."""
        self._until.pop(name, None)
