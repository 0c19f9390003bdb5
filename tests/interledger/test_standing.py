"""What a receiver's figure says about packets of unknown outcome."""

from collections.abc import Sequence
from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.amounts import Asset
from payres.interledger.standing import MAX_COMBINATIONS, Standing, Unresolved, arrived, cost
from payres.store.packets import PacketRecord
from payres.terms import Path, Terms
from tests.helpers import examples
from tests.works import sending_payment

TERMS = Terms(
    receiver="https://elsewhere.example/incoming-payments/1",
    incoming_payment_id=None,
    debit=1000,
    fee=0,
    receive=1000,
    asset=Asset("USD", 2),
)
AMOUNTS = st.lists(st.sampled_from([1, 7, 50, 100, 100, 100]), min_size=1, max_size=8)


def unresolved(amounts: Sequence[int], payment: str, path: Path | None = None) -> list[Unresolved]:
    path = path or Path(Fraction(1), Fraction(1001, 1000), 1000)
    return [
        Unresolved(
            PacketRecord(f"{payment}-{number}", 1, payment, None, None, amount, amount, b"", 1, "prepared"),
            path.least(amount),
            path.most(amount),
        )
        for number, amount in enumerate(amounts)
    ]


def standing(own: Sequence[Unresolved], others: Sequence[Unresolved] = ()) -> Standing:
    return Standing(sending_payment("own", 1, 1, 1, TERMS), 0, 0, own, others)


def chosen(some: Sequence[Unresolved], which: Sequence[bool]) -> Sequence[Unresolved]:
    return [one for one, is_chosen in zip(some, which, strict=False) if is_chosen]


WHICH = st.lists(st.booleans(), min_size=8, max_size=8)


@examples(200)
@given(AMOUNTS, WHICH)
def test_payer_is_charged_exactly_what_arrived(amounts: list[int], which: list[bool]) -> None:
    own = unresolved(amounts, "own")
    increase = cost(chosen(own, which))
    found = arrived(standing(own), increase)
    assert found is not None
    assert cost(found) == increase


@examples(200)
@given(AMOUNTS, st.integers(1, 2000))
def test_figure_that_no_packets_add_up_to_says_nothing(amounts: list[int], increase: int) -> None:
    sums = {0}
    for amount in amounts:
        sums |= {amount + total for total in sums}
    found = arrived(standing(unresolved(amounts, "own")), increase)
    assert (found is None) is (increase not in sums)


@examples(200)
@given(AMOUNTS, WHICH, st.fractions(Fraction(1, 3), 40, max_denominator=1000))
def test_payer_is_never_charged_more_than_what_arrived_across_currencies(
    amounts: list[int], which: list[bool], rate: Fraction
) -> None:
    own = unresolved(amounts, "own", Path(rate, rate + Fraction(1, 2000), 1000))
    truly = chosen(own, which)
    for increase in (sum(one.least for one in truly), sum(one.most for one in truly)):
        found = arrived(standing(own), increase)
        assert found is not None
        assert cost(found) <= cost(truly)
        assert sum(one.least for one in found) <= increase <= sum(one.most for one in found)


@examples(200)
@given(AMOUNTS, WHICH, AMOUNTS, WHICH)
def test_packets_of_another_payment_are_not_taken_for_ones_own(
    amounts: list[int], which: list[bool], theirs: list[int], whose: list[bool]
) -> None:
    own, others = unresolved(amounts, "own"), unresolved(theirs, "other")
    truly = chosen(own, which)
    found = arrived(standing(own, others), cost(truly) + cost(chosen(others, whose)))
    assert found is None or cost(found) == cost(truly)


@pytest.mark.parametrize(
    ("own", "others", "increase", "charged"),
    [
        ([100, 100], [100], 0, 0),
        ([100, 100], [100], 300, 200),
        ([100, 100], [100], 100, None),
        ([100, 100], [30], 130, 100),
        ([100, 100], [30], 30, 0),
        ([100], [], 101, None),
        ([100], [], -1, None),
    ],
)
def test_what_is_said_of_one_payment(own: list[int], others: list[int], increase: int, charged: int | None) -> None:
    found = arrived(standing(unresolved(own, "own"), unresolved(others, "other")), increase)
    assert (None if found is None else cost(found)) == charged


def test_of_too_many_packets_only_all_or_none_is_looked_for() -> None:
    own = unresolved([2**number for number in range(20)], "own")
    assert 2 ** len(own) > MAX_COMBINATIONS
    assert arrived(standing(own), 0) == ()
    assert arrived(standing(own), cost(own)) == own
    assert arrived(standing(own), cost(own) - 1) is None


def test_increase_needs_a_figure_from_before() -> None:
    whole = standing(unresolved([100], "own"))
    assert whole.increase(70) == 70
    assert msgspec.structs.replace(whole, before=20, delivered=30).increase(70) == 20
    assert msgspec.structs.replace(whole, before=None).increase(70) is None
