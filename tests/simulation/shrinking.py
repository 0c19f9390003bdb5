"""Shrinks the faults of a seed that fails to the few that matter, by running it again with only some of them."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final

from tests.simulation.fault import Fault

# Tries some choices of faults at once. For each of them those that happened, if it still fails.
Fails = Callable[[Sequence[Sequence[Fault]]], Sequence[Sequence[Fault] | None]]

MOST_RUNS: Final = 200
FEW: Final = 8  # parts of which each is tried alone


def shrink(found: Sequence[Fault], fails: Fails, at_once: int) -> Iterator[Sequence[Fault]]:
    """Ever fewer faults with which it fails; the last ones are those that matter. What is a part of faults with which
    it did not fail is not tried."""
    left, enough, runs = found, list[set[Fault]](), 0
    while runs < MOST_RUNS:
        untried = (choice for choice in _fewer(left) if not any(some.issuperset(choice) for some in enough))
        if not (tried := list(islice(untried, at_once))):
            return
        answers = fails(tried)
        enough += [set(choice) for choice, answer in zip(tried, answers, strict=True) if answer is None]
        runs += len(tried)
        if still := [answer for answer in answers if answer is not None]:
            left = min(still, key=len)
            yield left


def _fewer(faults: Sequence[Fault]) -> Iterator[Sequence[Fault]]:
    """None; those of one kind or place, and few parts, alone; then all but those; then all but ever smaller
    parts. Alone goes first: of what is left out, much else changes, and few large steps change less."""
    names = dict.fromkeys(name for fault in faults for name in (fault.kind, *fault.places))
    groups = [[fault for fault in faults if name in (fault.kind, *fault.places)] for name in names]
    groups = sorted((group for group in groups if len(group) < len(faults)), key=len)
    sizes = dict.fromkeys(-(-len(faults) // 2**halved) for halved in range(1, len(faults).bit_length() + 1))
    chunks = [faults[start : start + size] for size in sizes for start in range(0, len(faults), size)]
    yield from ([], *groups, *(chunk for chunk in chunks if len(chunk) * FEW >= len(faults)))
    for left_out in (*groups, *chunks):
        yield [fault for fault in faults if fault not in left_out]
