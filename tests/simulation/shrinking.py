"""Shrinks the faults of a seed that fails to the few that matter, by running it again with only some of them."""

from collections.abc import Callable, Sequence
from typing import Final

from tests.simulation.fault import Fault

# Tries some choices of faults at once. For each of them those that happened, if it still fails.
Fails = Callable[[Sequence[Sequence[Fault]]], Sequence[Sequence[Fault] | None]]

MOST_RUNS: Final = 200


class Shrinking:
    """The faults that are `left`, from which parts are left out while it fails without them."""

    def __init__(self, found: Sequence[Fault], fails: Fails, at_once: int) -> None:
        self.left, self._fails, self._at_once, self._runs = found, fails, at_once, 0

    def shrink(self) -> Sequence[Fault]:
        """The faults that matter. All of a kind are left out first, then halves, single ones last."""
        kinds = dict.fromkeys(fault.kind for fault in self.left)
        self._leave_out([[fault.id for fault in self.left if fault.kind == kind] for kind in kinds])
        size = (len(self.left) + 1) // 2
        while size and self._runs < MOST_RUNS:
            ids = [fault.id for fault in self.left]
            self._leave_out([ids[start : start + size] for start in range(0, len(ids), size)])
            size = size // 2 if len(self.left) == len(ids) else min(size, (len(self.left) + 1) // 2)
        return self.left

    def _leave_out(self, parts: Sequence[Sequence[str]]) -> None:
        while parts and self._runs < MOST_RUNS:
            tried = parts[: self._at_once]
            found = self._fails([[fault for fault in self.left if fault.id not in part] for part in tried])
            self._runs += len(tried)
            done = next((number for number, faults in enumerate(found) if faults is not None), len(tried) - 1)
            self.left = self.left if (still := found[done]) is None else still
            parts = parts[done + 1 :]
