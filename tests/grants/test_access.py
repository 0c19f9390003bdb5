import json
from typing import Any

import pytest

from payres.errors import InvalidRequest
from payres.grants.access import Action, Caller, permit
from payres.grants.gnap import AccessType
from payres.store.grants import TokenHolder
from payres.urls import Urls

ALICE, BOB = "https://pay.example/alice", "https://pay.example/bob"
URLS = Urls("https://pay.example")
MINE = 1


def item(actions: str, identifier: str | None = None, kind: str = "incoming-payment", **members: Any) -> dict[str, Any]:
    named = {"identifier": identifier} if identifier else {}
    return {"type": kind, "actions": actions.split()} | named | members


def caller(action: Action, *items: dict[str, Any], kind: AccessType = "incoming-payment") -> Caller:
    access = json.dumps(items)
    holder = TokenHolder("token", 0, None, "grant", "issued", access, MINE, "https://shop.example/", None, None)
    return permit(holder, kind, action)


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
