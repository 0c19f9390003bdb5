"""Shrinks the faults of a seed that fails to the few that matter, by running it again with only some of them."""

from collections.abc import Callable, Sequence
from typing import Final

from tests.simulation.fault import Fault

# Tries some choices of faults at once. For each of them those that happened, if it still fails.
Fails = Callable[[Sequence[Sequence[Fault]]], Sequence[Sequence[Fault] | None]]

MOST_RUNS: Final = 200
FEW: Final = 8  # parts of which each is tried alone


class Shrinking:
    """The faults that are `left`, from which parts are left out while it fails without them."""

    def __init__(self, found: Sequence[Fault], fails: Fails, at_once: int) -> None:
        self.left, self._fails, self._at_once, self._runs = found, fails, at_once, 0

    def shrink(self) -> Sequence[Fault]:
        """The faults that matter. Those of one kind or place are tried alone, then all but those; then parts, which are
        halves at first. Alone goes first: of what is left out, much else changes, and few large steps change less."""
        self._keep([[]])
        while self._keep(sorted(self._groups(), key=len)) or self._leave_out(self._groups()):
            pass
        parts = 2
        while self.left and self._runs < MOST_RUNS:
            size = -(-len(self.left) // parts)
            chunks = [self.left[start : start + size] for start in range(0, len(self.left), size)]
            if (parts <= FEW and self._keep(chunks)) or (is_less := self._leave_out(chunks)):
                parts = 2 if parts <= FEW else parts
            elif size == 1 and not is_less:
                break
            else:
                parts *= 2
        return self.left

    def _groups(self) -> list[Sequence[Fault]]:
        """Those of each kind and of each place, unless all are."""
        names = dict.fromkeys(name for fault in self.left for name in (fault.kind, *fault.places))
        found = [[fault for fault in self.left if name in (fault.kind, *fault.places)] for name in names]
        return [group for group in found if len(group) < len(self.left)]

    def _keep(self, parts: Sequence[Sequence[Fault]]) -> bool:
        """Leaves only the first of the parts with which it fails, if it does with any."""
        for start in range(0, len(parts), self._at_once):
            if not self.left or self._runs >= MOST_RUNS:
                return False
            tried = parts[start : start + self._at_once]
            self._runs += len(tried)
            still = next((found for found in self._fails(tried) if found is not None), None)
            if still is not None and len(still) < len(self.left):
                self.left = still
                return True
        return False

    def _leave_out(self, parts: Sequence[Sequence[Fault]]) -> bool:
        """Leaves out each of the parts without which it fails. Whether there was one."""
        before = len(self.left)
        while parts and self._runs < MOST_RUNS:
            tried = parts[: self._at_once]
            found = self._fails([[fault for fault in self.left if fault not in part] for part in tried])
            self._runs += len(tried)
            done = next((number for number, faults in enumerate(found) if faults is not None), len(tried) - 1)
            self.left = self.left if (still := found[done]) is None else still
            parts = parts[done + 1 :]
        return len(self.left) < before
