"""Names that have just failed, so that requests do not try them again at once."""

from collections.abc import Callable, Hashable
from typing import Final

from payres.limits import MAX_FAILED_NAMES


class FailedNames:
    """Remembers each name for `seconds` by `clock`, which is monotonic. Beyond MAX_FAILED_NAMES the oldest is
    dropped."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds: Final = seconds
        self._clock: Final = clock
        self._until: Final[dict[Hashable, float]] = {}

    def __contains__(self, name: Hashable) -> bool:
        return name in self._until and self._clock() < self._until[name]

    def add(self, name: Hashable) -> None:
        self._until.pop(name, None)  # so that the first is always the oldest
        self._until[name] = self._clock() + self._seconds
        if len(self._until) > MAX_FAILED_NAMES:
            del self._until[next(iter(self._until))]

    def discard(self, name: Hashable) -> None:
        self._until.pop(name, None)
