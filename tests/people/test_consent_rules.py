"""An owner may approve less than a client asked for."""

import json

import pytest

from payres.core.protocol.amounts import MAX_VALUE
from payres.core.protocol.errors import InvalidAmount
from payres.people.consent_requests import lowered
from tests.helpers import Json, usd
from tests.works import USD

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
    assert json.loads(lowered(asked, lambda _: 1250, USD)) == less
    assert lowered(asked, lambda _: 2000, USD) == asked


def test_limit_beyond_the_ledger_is_approved_as_asked_or_lowered() -> None:
    asked = access(value=str(MAX_VALUE))
    assert lowered(asked, lambda _: MAX_VALUE, USD) == asked
    assert json.loads(lowered(asked, lambda _: 1250, USD))[1]["limits"]["debitAmount"]["value"] == "1250"
    with pytest.raises(InvalidAmount):
        lowered(asked, lambda _: MAX_VALUE + 1, USD)


def test_limit_can_be_set_where_none_was_asked() -> None:
    item = json.loads(access())[1]
    for asked in ({**item, "limits": {"receiver": "https://x.example/incoming-payments/1"}}, item | {"limits": {}}):
        [less] = json.loads(lowered(json.dumps([asked]), lambda asset: 1250 if asset == USD else 0, USD))
        assert less.pop("limits") == asked["limits"] | {"debitAmount": usd(1250)}
        assert less == {name: value for name, value in asked.items() if name != "limits"}


def test_limit_is_not_raised() -> None:
    with pytest.raises(InvalidAmount, match="lowered and not raised"):
        lowered(access(), lambda _: 2001, USD)


@pytest.mark.parametrize("asked", [json.dumps([READING]), access(actions="read"), "[]"])
def test_what_has_no_limit_of_spending_is_not_lowered(asked: str) -> None:
    with pytest.raises(InvalidAmount, match="nothing to limit"):
        lowered(asked, lambda _: 100, USD)
