"""Records as operators see them: which fields become texts, and which mistakes do not go unnoticed."""

import pytest

from payres.admin.representations import represent
from payres.amounts import Asset
from payres.wire import Resource

DOLLARS = Asset("USD", 2)


class Cost(Resource, frozen=True, kw_only=True):
    amount: str
    tip: str | None
    packets: int
    created_at: str
    asset_code: str
    asset_scale: int


class Record:
    amount = 1234
    packets = 3
    created_at = 0

    def __init__(self, tip: int | None) -> None:
        self.tip = tip


def test_times_and_amounts_become_texts() -> None:
    cost = represent(Cost, Record(None), DOLLARS)
    assert (cost.amount, cost.tip, cost.packets) == ("12.34", None, 3)
    assert (cost.created_at, cost.asset_code, cost.asset_scale) == ("1970-01-01T00:00:00.000Z", "USD", 2)


def test_number_is_not_shown_where_a_text_belongs() -> None:
    with pytest.raises(TypeError, match=r"Cost\.tip is a text"):
        represent(Cost, Record(50), DOLLARS)
    assert represent(Cost, Record(50), DOLLARS, tip="0.50").tip == "0.50"
    with pytest.raises(TypeError, match=r"Cost\.amount is a text"):
        represent(Cost, Record(None), asset_code="USD", asset_scale=2)
