import json
from typing import Any

import pytest

from payres.errors import InvalidRequest
from payres.grants.access import Action, Caller, permit
from payres.grants.gnap import AccessType, Limits
from payres.store.grants import TokenHolder
from payres.urls import Urls
from payres.wire import Amount

ALICE, BOB = "https://pay.example/alice", "https://pay.example/bob"
URLS = Urls("https://pay.example")
MINE, OTHERS = 1, 2


def item(actions: str, identifier: str | None = None, kind: str = "incoming-payment", **members: Any) -> dict[str, Any]:
    named = {"identifier": identifier} if identifier else {}
    return {"type": kind, "actions": actions.split()} | named | members


def caller(action: Action, *items: dict[str, Any], kind: AccessType = "incoming-payment") -> Caller:
    access = json.dumps(items)
    holder = TokenHolder("token", 0, None, "grant", "issued", access, MINE, "https://shop.example/", None, None)
    return permit(holder, kind, action)


def test_first_item_that_covers_the_wallet_address_counts() -> None:
    limits = {"debitAmount": {"value": "5", "assetCode": "USD", "assetScale": 2}}
    items = [
        item("read", ALICE, "outgoing-payment"),
        item("create", BOB, "outgoing-payment"),
        item("create", ALICE, "outgoing-payment", limits=limits),
    ]
    allowed = caller("create", *items, kind="outgoing-payment")
    assert allowed.about(BOB, URLS).limits is None
    assert allowed.about(ALICE, URLS).limits == Limits(debit_amount=Amount(value="5", asset_code="USD", asset_scale=2))


@pytest.mark.parametrize(
    ("items", "named"),
    [
        ([item("create")], None),
        ([item("create", ALICE)], ALICE),
        ([item("create", ALICE), item("create complete", ALICE)], ALICE),
        ([item("create", ALICE), item("create", BOB)], None),
        ([item("create", ALICE), item("create")], None),
        ([item("create", ALICE), item("read", BOB)], ALICE),
    ],
)
def test_grant_names_a_wallet_address_when_it_is_one(items: list[dict[str, Any]], named: str | None) -> None:
    asked = caller("create", *items)
    if named is not None:
        assert asked.about(None, URLS).wallet_address == named
        return
    with pytest.raises(InvalidRequest, match="walletAddress is needed"):
        asked.about(None, URLS)
