import json
from typing import Any

import pytest

from payres.errors import DomainError, InvalidRequest
from payres.grants.access import Action, Caller, granted_access, permit
from payres.grants.gnap import Access, AccessType, IncomingPaymentAccess, Limits, OutgoingPaymentAccess
from payres.store.tokens import TokenHolder
from payres.wire import Amount, encode

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
    ("granted", "action", "allowed"),
    [
        ("create", "create", True),
        ("read", "read", True),
        ("read-all", "read", True),
        ("list-all", "list", True),
        ("complete create list", "complete", True),
        ("create", "read", False),
        ("read", "create", False),
        ("read-all", "list", False),
        ("list-all", "read", False),
        ("read-all list-all create", "complete", False),
        ("complete", "create", False),
    ],
)
def test_actions_imply_only_their_own_all(granted: str, action: Action, allowed: bool) -> None:
    if allowed:
        assert caller(action, item(granted)).items
        return
    with pytest.raises(DomainError) as refusal:
        caller(action, item(granted))
    assert (refusal.value.status, refusal.value.code) == (403, "insufficient_access")
    assert refusal.value.details == {"reason": "action", "type": "incoming-payment", "action": action}


def test_access_is_for_its_type() -> None:
    items = [item("create read", ALICE, "outgoing-payment"), item("create", kind="quote")]
    assert caller("create", *items, kind="quote").items[0].actions == ["create"]
    with pytest.raises(DomainError):
        caller("read", *items, kind="quote")
    with pytest.raises(DomainError):
        caller("create", *items, kind="incoming-payment")


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
    ("action", "granted", "identifier", "owner", "reached"),
    [
        ("read", "read", None, MINE, True),
        ("read", "read", ALICE, MINE, True),
        ("read", "read", None, OTHERS, False),
        ("read", "read-all", None, OTHERS, True),
        ("read", "read-all", ALICE, OTHERS, True),
        ("read", "read-all", BOB, OTHERS, False),
        ("read", "read list-all", None, OTHERS, False),
        ("complete", "complete", None, MINE, True),
        ("complete", "complete", ALICE, OTHERS, False),
        ("complete", "complete read-all list-all", None, OTHERS, False),
    ],
)
def test_resources_of_others_are_reached_with_all_only(
    action: Action, granted: str, identifier: str | None, owner: int, reached: bool
) -> None:
    assert caller(action, item(granted, identifier)).sees(ALICE, owner) is reached


def test_own_resource_outside_the_grant_is_refused_openly() -> None:
    with pytest.raises(DomainError) as refusal:
        caller("read", item("read-all", BOB)).sees(ALICE, MINE)
    assert (refusal.value.status, refusal.value.details) == (403, {"reason": "identifier"})


@pytest.mark.parametrize(
    ("items", "owner"),
    [
        ([item("list", ALICE)], MINE),
        ([item("list-all", ALICE)], None),
        ([item("list"), item("list-all", ALICE)], None),
        ([item("list"), item("list-all", BOB)], MINE),
    ],
)
def test_list_is_of_ones_own_unless_all_may_be_listed(items: list[dict[str, Any]], owner: int | None) -> None:
    assert caller("list", *items).sees_all(ALICE) == (owner is None)


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


def test_access_is_stored_as_it_is_echoed() -> None:
    limits = Limits(interval="R/2026-01-01T00:00:00Z/P1M")
    items: list[Access] = [
        IncomingPaymentAccess(actions=["create", "read-all"]),
        OutgoingPaymentAccess(actions=["create"], identifier=ALICE, limits=limits),
    ]
    text = encode(items).decode()
    assert json.loads(text) == [
        {"type": "incoming-payment", "actions": ["create", "read-all"]},
        {
            "type": "outgoing-payment",
            "actions": ["create"],
            "identifier": ALICE,
            "limits": {"interval": "R/2026-01-01T00:00:00Z/P1M"},
        },
    ]
    assert granted_access(text) == tuple(items)
