from collections.abc import Iterator
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.amounts import MAX_LEDGER, MAX_VALUE, Asset
from payres.interledger.conversion import converted
from payres.interledger.declined import Declined
from payres.interledger.packets import Code, parse_too_large
from payres.operator.assets import set_rate
from payres.store.connections import connect_writer
from payres.store.work import Work
from tests.works import work_at

SCALES = st.integers(0, 18)


@pytest.fixture(scope="module")
def tx() -> Iterator[Work]:
    connection = connect_writer(":memory:")
    set_rate(connection, "USD", "EUR", "0.937", 0)
    yield work_at(connection, 0)
    connection.close()


@given(amount=st.integers(1, MAX_VALUE), source=SCALES, target=SCALES, back=st.booleans())
def test_conversion_rounds_down_or_says_why_not(tx: Work, amount: int, source: int, target: int, back: bool) -> None:
    here, there = Asset("USD", source), Asset("EUR", target)
    unit_rate = Fraction(937, 1000) * Fraction(10) ** (target - source)
    if back:
        here, there, unit_rate = (
            Asset("EUR", source),
            Asset("USD", target),
            Fraction(10) ** (target - source) * Fraction(1000, 937),
        )
    exact = amount * unit_rate
    result = outcome(tx, amount, here, there)
    if isinstance(result, int):
        assert result <= exact < result + 1
        assert 1 <= result <= MAX_LEDGER
    elif result.code == Code.INSUFFICIENT_SOURCE_AMOUNT:
        assert exact < 1
    else:
        assert result.code == Code.AMOUNT_TOO_LARGE
        assert exact >= MAX_LEDGER + 1
        told = parse_too_large(result.data)
        assert told is not None
        assert told[0] == amount
        assert told[1] * unit_rate <= MAX_LEDGER < (told[1] + 1) * unit_rate


def outcome(tx: Work, amount: int, here: Asset, there: Asset) -> int | Declined:
    try:
        return converted(tx, amount, here, there, 0)
    except Declined as declined:
        return declined


@given(st.integers(0, MAX_VALUE))
def test_one_asset_is_not_converted(tx: Work, amount: int) -> None:
    assert converted(tx, amount, Asset("XYZ", 3), Asset("XYZ", 3), 0) == amount


def test_reject_names_the_node_that_declines() -> None:
    reject = Declined(Code.AMOUNT_TOO_LARGE, "Too much", b"data").reject("test.node")
    assert (reject.code, reject.triggered_by, reject.message, reject.data) == ("F08", "test.node", "Too much", b"data")
