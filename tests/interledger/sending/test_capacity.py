"""What the sizes of packets that pass and do not pass say about the largest that does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.amounts import MAX_VALUE
from payres.interledger.packets import too_large_data
from payres.interledger.sending.capacity import Capacity
from payres.interledger.sending.failures import SendingFailed


def test_without_limit_anything_may_be_tried() -> None:
    capacity = Capacity()
    capacity.passed(10**12)
    assert (capacity.limit, capacity.limited, capacity.found) == (MAX_VALUE, False, False)


@pytest.mark.parametrize(
    ("received", "maximum", "limit"), [(1000, 300, 300), (500, 150, 300), (3, 2, 666), (2**64 - 1, 2**63, 500)]
)
def test_told_maximum_is_converted_and_rounded_down(received: int, maximum: int, limit: int) -> None:
    capacity = Capacity()
    capacity.too_large(1000, too_large_data(received, maximum))
    assert (capacity.limit, capacity.found) == (limit, False)
    capacity.passed(limit)
    assert capacity.found


@pytest.mark.parametrize("data", [b"", b"\0" * 15, too_large_data(5, 5), too_large_data(4, 5), too_large_data(0, 0)])
def test_maximum_that_is_not_told_is_searched(data: bytes) -> None:
    capacity = Capacity()
    capacity.passed(100)
    capacity.too_large(1001, data)
    assert (capacity.limit, capacity.found) == (550, False)


@given(st.integers(1, 10**12), st.integers(1, 10**13))
def test_search_ends_at_the_maximum(maximum: int, first: int) -> None:
    capacity, amount, tries = Capacity(), first, 0
    while not capacity.found and (capacity.limited or amount > maximum):
        if amount > maximum:
            capacity.too_large(amount, b"")
        else:
            capacity.passed(amount)
        amount, tries = capacity.limit, tries + 1
    assert tries <= 46
    assert not capacity.limited or capacity.limit == maximum


def test_maximum_only_falls() -> None:
    capacity = Capacity(300)
    capacity.too_large(1000, too_large_data(1000, 400))
    capacity.too_large(500, b"")
    assert capacity.limit == 300
    capacity.too_large(300, too_large_data(300, 200))
    assert capacity.limit == 200


def test_what_passed_before_proves_nothing_when_the_path_has_changed() -> None:
    capacity = Capacity(300)
    capacity.passed(300)
    capacity.too_large(200, b"")
    assert (capacity.limit, capacity.found) == (100, False)


@pytest.mark.parametrize(("amount", "data"), [(1, b""), (1000, too_large_data(1000, 0)), (1, too_large_data(2, 1))])
def test_path_that_takes_nothing(amount: int, data: bytes) -> None:
    with pytest.raises(SendingFailed, match="takes no packet"):
        Capacity().too_large(amount, data)
