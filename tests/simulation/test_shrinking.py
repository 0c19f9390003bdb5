"""Shrinking finds the few faults that matter, among many that do not."""

from collections.abc import Sequence

import pytest

from tests.simulation.fault import Fault
from tests.simulation.shrinking import shrink

FAULTS = [Fault(float(number), ("kill", "cut", "lost answer")[number % 3], str(number)) for number in range(90)]


@pytest.mark.parametrize("at_once", [1, 2, 7])
@pytest.mark.parametrize("needed", [(), (0,), (89,), (4, 77), (30, 31, 32)])
def test_only_faults_that_matter_are_left(needed: Sequence[int], at_once: int) -> None:
    wanted = [FAULTS[number] for number in needed]

    def fails(choices: Sequence[Sequence[Fault]]) -> Sequence[Sequence[Fault] | None]:
        assert len(choices) <= at_once
        return [choice if set(wanted) <= set(choice) else None for choice in choices]

    assert [*shrink(FAULTS, fails, at_once)][-1] == wanted


def test_faults_that_do_not_happen_without_others_are_left_out() -> None:
    """Of a choice those count that happened: here none after the first that is missing."""

    def fails(choices: Sequence[Sequence[Fault]]) -> Sequence[Sequence[Fault] | None]:
        happened = [[one for one, all_ in zip(choice, FAULTS, strict=False) if one == all_] for choice in choices]
        return [some if FAULTS[5] in some else None for some in happened]

    assert [*shrink(FAULTS, fails, 2)][-1] == FAULTS[:6]
