"""Shrinks the faults of a seed that fails to the few that matter, by running it again with only some of them."""

from collections.abc import Callable, Sequence
from typing import Final

from tests.simulation.world import Fault

Fails = Callable[[Sequence[Fault]], Sequence[Fault] | None]  # those of these faults that happened, if it still fails

MOST_RUNS: Final = 120


def shrink(found: Sequence[Fault], fails: Fails) -> Sequence[Fault]:
    """The faults that matter. Halves of them are left out first, single ones last."""
    left, size, runs = found, max(len(found) // 2, 1), 0
    while size and runs < MOST_RUNS:
        has_shrunk, start = False, 0
        while start < len(left) and runs < MOST_RUNS:
            still = fails([*left[:start], *left[start + size :]])
            runs += 1
            if still is None:
                start += size
            else:
                left, has_shrunk = still, True
        size = size // 2 if not has_shrunk else min(size, max(len(left) // 2, 1))
    return left
