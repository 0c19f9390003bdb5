"""An owner may approve less than a client asked for."""

import json

import pytest

from payres.amounts import MAX_VALUE
from payres.errors import InvalidAmount
from payres.grants.consent import lowered
from tests.helpers import Json

READING: Json = {"type": "quote", "actions": ["create"]}


def access(kind: str = "debitAmount", value: str = "2000", actions: str = "create", **limits: str) -> str:
    amount = {"value": value, "assetCode": "USD", "assetScale": 2}
    wallet = {"identifier": "https://pay.example/alice", "limits": {kind: amount, **limits}}
    return json.dumps([READING, {"type": "outgoing-payment", "actions": [actions], **wallet}], separators=(",", ":"))


@pytest.mark.parametrize("kind", ["debitAmount", "receiveAmount"])
def test_limit_is_lowered_and_all_else_stays(kind: str) -> None:
    asked = access(kind, interval="R/2026-11-23T00:00:00Z/P1M", receiver="https://x.example/incoming-payments/1")
    less = json.loads(asked)
    less[1]["limits"][kind]["value"] = "1250"
    assert json.loads(lowered(asked, "12.50")) == less
    assert lowered(asked, "20.00") == asked


def test_limit_beyond_the_ledger_is_approved_as_asked_or_lowered() -> None:
    asked = access(value=str(MAX_VALUE))
    assert lowered(asked, "184467440737095516.15") == asked
    assert json.loads(lowered(asked, "12.50"))[1]["limits"]["debitAmount"]["value"] == "1250"
    with pytest.raises(InvalidAmount):
        lowered(asked, "184467440737095516.16")


@pytest.mark.parametrize("limit", ["20.01", "0", "0.00", "-1", "0.001", "1e1", "many", "", "99999999999999999999"])
def test_limit_is_not_raised_nor_anything_else(limit: str) -> None:
    with pytest.raises(InvalidAmount):
        lowered(access(), limit)


@pytest.mark.parametrize("asked", [json.dumps([READING]), access(actions="read"), "[]"])
def test_what_has_no_limit_of_spending_is_not_lowered(asked: str) -> None:
    with pytest.raises(InvalidAmount, match="no limit"):
        lowered(asked, "1.00")
