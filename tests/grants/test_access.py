import json
from typing import Any

import pytest

from payres.errors import DomainError, InvalidRequest
from payres.grants.access import Action, Caller, permit
from payres.grants.gnap import AccessType, Limits
from payres.store.grants import TokenHolder
from payres.wire import Amount

ALICE, BOB = "https://pay.example/alice", "https://pay.example/bob"
MINE, OTHERS = 1, 2


def item(actions: str, identifier: str | None = None, kind: str = "incoming-payment", **members: Any) -> dict[str, Any]:
    named = {"identifier": identifier} if identifier else {}
    return {"type": kind, "actions": actions.split()} | named | members


def caller(action: Action, *items: dict[str, Any], kind: AccessType = "incoming-payment") -> Caller:
    access = json.dumps(items)
    holder = TokenHolder("token", 0, None, "grant", "issued", access, MINE, "https://shop.example/", None, None)
    return permit(holder, kind, action)


@pytest.mark.parametrize(
    ("identifier", "wallet_address", "covered"),
    [
        (None, ALICE, True),
        (ALICE, ALICE, True),
        (ALICE, BOB, False),
        (f"{ALICE}/", ALICE, True),
        (ALICE, f"{ALICE}/", True),
        ("https://PAY.example:443/alice", ALICE, True),
        ("HTTPS://pay.example/Alice", ALICE, True),
        ("http://pay.example/alice", ALICE, False),
        ("https://pay.example:8443/alice", ALICE, False),
        ("https://pay.example.evil.example/alice", ALICE, False),
        ("https://pay.example", ALICE, False),
        ("https://pay.example/alice/bob", ALICE, False),
        ("alice", ALICE, False),
    ],
)
def test_identifier_is_compared_as_a_url(identifier: str | None, wallet_address: str, covered: bool) -> None:
    allowed = caller("create", item("create", identifier))
    if covered:
        allowed.require(wallet_address)
        return
    with pytest.raises(DomainError) as refusal:
        allowed.require(wallet_address)
    assert refusal.value.details == {"reason": "identifier"}


def test_first_item_that_covers_the_wallet_address_counts() -> None:
    limits = {"debitAmount": {"value": "5", "assetCode": "USD", "assetScale": 2}}
    items = [
        item("read", ALICE, "outgoing-payment"),
        item("create", BOB, "outgoing-payment"),
        item("create", ALICE, "outgoing-payment", limits=limits),
    ]
    allowed = caller("create", *items, kind="outgoing-payment")
    assert allowed.limits(BOB) is None
    assert allowed.limits(ALICE) == Limits(debit_amount=Amount(value="5", asset_code="USD", asset_scale=2))


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
    assert asked.wallet_address("https://pay.example/carol") == "https://pay.example/carol"
    if named is not None:
        assert asked.wallet_address(None) == named
        return
    with pytest.raises(InvalidRequest, match="walletAddress is needed"):
        asked.wallet_address(None)
