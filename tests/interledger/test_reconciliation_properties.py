"""What a receiver's figure says about unresolved packets: no payer is charged for what did not arrive."""

from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.interledger.reconciliation import MAX_SUMS, Unresolved, arrived, cost
from payres.store.packets import PacketRecord
from payres.terms import Path
from tests.helpers import examples

AMOUNTS = st.lists(st.sampled_from([1, 7, 50, 100, 100, 100]), min_size=1, max_size=8)


def unresolved(amounts: Sequence[int], path: Path | None = None) -> list[Unresolved]:
    path = path or Path(Fraction(1), Fraction(1001, 1000), 1000)
    return [
        Unresolved(
            PacketRecord(f"{number}", 1, "payment", None, None, amount, amount, b"", 1, "prepared"),
            path.least(amount),
            path.most(amount),
        )
        for number, amount in enumerate(amounts)
    ]


def chosen(some: Sequence[Unresolved], which: Sequence[bool]) -> Sequence[Unresolved]:
    return [one for one, is_chosen in zip(some, which, strict=False) if is_chosen]


WHICH = st.lists(st.booleans(), min_size=8, max_size=8)


@examples(200)
@given(AMOUNTS, WHICH)
def test_payer_is_charged_exactly_what_arrived(amounts: list[int], which: list[bool]) -> None:
    own = unresolved(amounts)
    increase = cost(chosen(own, which))
    found = arrived(own, increase)
    assert found is not None
    assert cost(found) == increase


@examples(200)
@given(AMOUNTS, st.integers(1, 2000))
def test_figure_that_no_packets_add_up_to_says_nothing(amounts: list[int], increase: int) -> None:
    sums = {0}
    for amount in amounts:
        sums |= {amount + total for total in sums}
    found = arrived(unresolved(amounts), increase)
    assert (found is None) is (increase not in sums)


@examples(200)
@given(AMOUNTS, WHICH, st.fractions(Fraction(1, 3), 40, max_denominator=1000))
def test_payer_is_never_charged_more_than_what_arrived_across_currencies(
    amounts: list[int], which: list[bool], rate: Fraction
) -> None:
    own = unresolved(amounts, Path(rate, rate + Fraction(1, 2000), 1000))
    truly = chosen(own, which)
    for increase in (sum(one.least for one in truly), sum(one.most for one in truly)):
        found = arrived(own, increase)
        assert found is not None
        assert cost(found) <= cost(truly)
        assert sum(one.least for one in found) <= increase <= sum(one.most for one in found)


@pytest.mark.parametrize(
    ("amounts", "increase", "charged"),
    [([100, 100, 30], 130, 130), ([100, 100], 0, 0), ([100, 100], 200, 200), ([100], 101, None), ([100], -1, None)],
)
def test_packets_that_arrived_are_those_that_explain_the_increase(
    amounts: list[int], increase: int, charged: int | None
) -> None:
    found = arrived(unresolved(amounts), increase)
    assert (None if found is None else cost(found)) == charged


def test_of_too_many_different_packets_the_figure_says_nothing() -> None:
    packets = unresolved([2**number for number in range(20)])
    assert 2 ** len(packets) > MAX_SUMS
    assert arrived(packets, 0) == []
    assert arrived(packets, cost(packets) - 1) is None
    assert len(arrived(unresolved([100] * 3000), 100 * 2000) or ()) == 2000  # of one size any number
