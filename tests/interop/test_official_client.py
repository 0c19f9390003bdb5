"""The official Open Payments client, as it comes from npm, and `payres.client` tell one set of scenarios against a real
server.

The clients check every answer against the published Open Payments documents; what they do not check is checked here.
"""

from collections.abc import Mapping
from typing import Any

from payres.operator import assets
from tests.helpers import Json, amount
from tests.interledger.network import set_rate
from tests.interop.conftest import Decide, RunScenario
from tests.interop.node import Node


def ids(page: Mapping[str, Any]) -> list[str]:
    return [payment["id"] for payment in page["result"]]


def test_payment_with_consent(node: Node, tell: RunScenario, app: Json, any_owner: Decide) -> None:
    base_url, alice, bob = node.instance.base_url, node.open_wallet("USD", "100.00", "alice"), node.open_wallet()
    steps = tell("payment", {"alice": alice, "bob": bob, "app": app}, any_owner)
    _check_lookups(steps, base_url, alice, app)
    _check_incoming_payment(steps, base_url, bob)
    _check_quotes(steps)
    _check_denial(steps)
    _check_grant(steps, alice)
    _check_outgoing_payments(steps, alice)
    _check_lists(steps)
    _check_completion(steps)
    assert (node.balance(alice), node.balance(bob)) == (8500, 1500)
    node.instance.check_ledger()


def _check_lookups(steps: Mapping[str, Json], base_url: str, alice: str, app: Json) -> None:
    addresses, keys = steps["look up wallet addresses"], steps["look up keys"]
    assert addresses["alice"] == {
        "id": alice,
        "publicName": "Alice",
        "assetCode": "USD",
        "assetScale": 2,
        "authServer": f"{base_url}/",
        "resourceServer": base_url,
    }
    assert addresses["app"]["id"] == app["walletAddress"]
    assert keys["alice"] == {"keys": []}
    assert [key["kid"] for key in keys["app"]["keys"]] == [app["kid"]]


def _check_incoming_payment(steps: Mapping[str, Json], base_url: str, bob: str) -> None:
    created = steps["create an incoming payment"]
    payment = created["payment"]
    assert payment["id"].startswith(f"{base_url}/incoming-payments/")
    assert payment["walletAddress"] == bob
    assert payment["incomingAmount"] == amount(1000)
    assert payment["receivedAmount"] == amount(0)
    assert payment["expiresAt"] == created["expiresAt"]
    assert payment["metadata"] == {"description": "Coffee \N{HOT BEVERAGE}", "lines": [{"n": 1}]}
    assert [method["type"] for method in payment["methods"]] == ["ilp"]
    assert steps["read it privately"]["payment"] == payment
    assert steps["read it publicly"]["payment"] == {"receivedAmount": amount(0), "authServer": f"{base_url}/"}
    assert all("incomingAmount" not in payment for payment in _open_payments(steps))


def _check_quotes(steps: Mapping[str, Json]) -> None:
    quotes = steps["quote it"]
    invoice, open_one = steps["create an incoming payment"]["payment"]["id"], _open_payments(steps)[0]["id"]
    terms = {name: (quote["receiver"], quote["debitAmount"], quote["receiveAmount"]) for name, quote in quotes.items()}
    assert terms == {
        "inferred": (invoice, amount(1000), amount(1000)),
        "fixedSend": (open_one, amount(300), amount(300)),
        "fixedReceive": (open_one, amount(200), amount(200)),
    }
    assert steps["read a quote"]["quote"] == quotes["inferred"]


def _check_denial(steps: Mapping[str, Json]) -> None:
    assert steps["return from denial"]["answer"] == {"order": "42", "result": "grant_rejected"}
    assert _refusals(steps) == {
        "continue after denial": (401, "user_denied", "owner_denied"),
        "continue after denial all the same": (401, "user_denied", "owner_denied"),
    }


def _check_grant(steps: Mapping[str, Json], alice: str) -> None:
    at_once, returned, granted = (
        steps[step] for step in ("get an incoming-payment grant", "return from consent", "continue")
    )
    assert "interact" not in at_once
    assert returned["answer"]["hash"] == returned["expectedHash"]
    assert returned["answer"]["order"] == "42", "the finish URI keeps its own query"
    [access] = granted["access_token"]["access"]
    assert access["identifier"] == alice
    assert access["limits"]["debitAmount"] == amount(2000)
    assert granted["access_token"]["expires_in"] == 600


def _check_outgoing_payments(steps: Mapping[str, Json], alice: str) -> None:
    created, read = steps["create an outgoing payment"]["payment"], steps["read it"]["payment"]
    assert created["walletAddress"] == alice
    assert created["quoteId"] == steps["quote it"]["inferred"]["id"]
    assert created["receiver"] == steps["create an incoming payment"]["payment"]["id"]
    assert created["debitAmount"] == created["receiveAmount"] == amount(1000)
    assert created["metadata"] == {"order": "42"}
    spent = {name: created.pop(name) for name in ("grantSpentDebitAmount", "grantSpentReceiveAmount")}
    assert spent == {"grantSpentDebitAmount": amount(1000), "grantSpentReceiveAmount": amount(1000)}
    assert (created["sentAmount"], created["failed"]) == (amount(1000), False)
    assert read == created
    received = steps["see the incoming payment completed"]["payment"]
    assert received["completed"]
    assert received["receivedAmount"] == amount(1000)
    assert received["methods"] == []
    more = [payment["grantSpentDebitAmount"] for payment in steps["pay twice more"]["payments"]]
    assert more == [amount(1300), amount(1500)]
    nothing = {"spentDebitAmount": None, "spentReceiveAmount": None}
    assert steps["read the spent amounts of an unused grant"] == nothing
    assert steps["read the spent amounts"] == {"spentDebitAmount": amount(1500), "spentReceiveAmount": amount(1500)}


def _check_lists(steps: Mapping[str, Json]) -> None:
    """Newest first, each payment once: whole, walked forward page by page, and one page back."""
    paid = [steps["create an outgoing payment"]["payment"], *steps["pay twice more"]["payments"]]
    invoiced = [steps["create an incoming payment"]["payment"], *_open_payments(steps)]
    for step, made in (("list outgoing payments", paid), ("list incoming payments", invoiced)):
        pages = steps[step]
        newest_first = [payment["id"] for payment in reversed(made)]
        assert ids(pages["whole"]) == newest_first
        assert [ids(pages[name]) for name in ("first", "second", "rest")] == [[one] for one in newest_first]
        assert ids(pages["back"]) == newest_first[:1]
        assert {name: _neighbours(page) for name, page in pages.items()} == {
            "whole": (False, False),
            "first": (False, True),
            "second": (True, True),
            "rest": (True, False),
            "back": (False, True),
        }


def _open_payments(steps: Mapping[str, Json]) -> list[Json]:
    payments: list[Json] = steps["create incoming payments without an amount"]["payments"]
    return payments


def _neighbours(page: Mapping[str, Any]) -> tuple[bool, bool]:
    """Whether there are newer and older payments than those of the page."""
    return page["pagination"]["hasPreviousPage"], page["pagination"]["hasNextPage"]


def _check_completion(steps: Mapping[str, Json]) -> None:
    completed = steps["complete an incoming payment"]["payment"]
    assert completed["completed"]
    assert completed["receivedAmount"] == amount(500)
    assert steps["read it afterwards"]["payment"] == {**completed, "methods": []}


def test_direct_payment_across_currencies(node: Node, tell: RunScenario, app: Json, owner: Decide) -> None:
    carol, dave = node.open_wallet("GBP", "25.00"), node.open_wallet("EUR")
    node.instance.write(lambda work: assets.set_fee(work, "GBP", 2, "0.10", 50))
    set_rate("GBP", "EUR", "1.17", node.instance)
    steps = tell("direct_payment", {"carol": carol, "dave": dave, "app": app}, owner)
    # 2000 less a fee of 10 + 10 buys 2316.6; 500 less 10 + 2.5, rounded up, buys 569.79
    payment = steps["pay"]["payment"]
    assert (payment["debitAmount"], payment["receiveAmount"]) == (amount(2000, "GBP"), amount(2316, "EUR"))
    assert "quoteId" not in payment
    assert steps["read it"]["payment"]["sentAmount"] == amount(2000, "GBP")
    assert steps["see it received"]["payment"]["receivedAmount"] == amount(2316, "EUR")
    assert steps["pay all that is left of the limit"]["payment"]["receiveAmount"] == amount(569, "EUR")
    spent = {"spentDebitAmount": amount(2500, "GBP"), "spentReceiveAmount": amount(2885, "EUR")}
    assert steps["read the spent amounts"] == spent
    refused = steps["pay less than the fee"]
    assert refused["code"] == "invalid_amount"
    assert refused["details"]["minSendAmount"] == amount(12, "GBP")
    for step, reason in (("pay more than is left of the limit", "debitAmount"), ("pay another receiver", "receiver")):
        assert (steps[step]["status"], steps[step]["code"]) == (403, "limit_exceeded")
        assert steps[step]["details"]["reason"] == reason
    node.instance.check_ledger()


def test_grants_and_tokens_to_their_end(
    node: Node, tell: RunScenario, app: Json, other_app: Json, owner: Decide
) -> None:
    bob = node.open_wallet()
    steps = tell("grants", {"bob": bob, "app": app, "other": other_app}, owner)
    made = steps["create a payment with each app"]
    before, after = steps["rotate"]["before"], steps["rotate"]["after"]
    assert before["access"] == after["access"]
    assert before["value"] != after["value"]
    assert before["manage"] != after["manage"]
    assert ids(steps["list"]) == ids(steps["use the new value"]) == [made["mine"]]
    assert ids(steps["list all"]) == [made["theirs"], made["mine"]]
    assert steps["continue"]["subject"] == {"sub_ids": [{"id": bob, "format": "uri"}]}
    assert "access_token" not in steps["poll before the decision"]
    assert "access_token" in steps["poll after the decision"]
    assert _refusals(steps) == {
        "use the old value": (401, "invalid_token", "revoked_token"),
        "rotate at the old URL": (404, "invalid_rotation", None),
        "revoke the token of another app": (401, "invalid_client", "unknown_key"),
        "use a revoked token": (401, "invalid_token", "revoked_token"),
        "rotate a revoked token": (404, "invalid_rotation", None),
        "cancel the grant of another app": (401, "invalid_client", "unknown_key"),
        "use a token of a cancelled grant": (401, "invalid_token", "revoked_token"),
        "cancel twice": (404, "invalid_continuation", "unknown_continuation"),
        "continue with another reference": (404, "invalid_continuation", "unknown_continuation"),
        "continue without a reference": (401, "request_denied", "missing_interact_ref"),
        "continue as another app": (401, "invalid_client", "unknown_key"),
        "continue twice": (404, "invalid_continuation", "unknown_continuation"),
        "poll at once": (400, "too_fast", None),
    }


def test_clients_known_by_their_keys(node: Node, tell: RunScenario) -> None:
    steps = tell("directed_identity", {"bob": node.open_wallet()})
    payment = steps["create an incoming payment"]["payment"]
    assert ids(steps["list"]) == [payment["id"]]
    assert ids(steps["list as another app"]) == []
    assert _refusals(steps) == {
        "read as another app": (404, "not_found", None),
        "use the token of another app": (401, "invalid_client", "unknown_key"),
        "ask in the name of another app": (401, "invalid_client", "unknown_key"),
        "ask for consent": (400, "invalid_client", None),
    }


def test_refusals_as_the_client_surfaces_them(
    node: Node, tell: RunScenario, app: Json, other_app: Json, owner: Decide
) -> None:
    wallets = {"alice": node.open_wallet("USD", "20.00"), "bob": node.open_wallet()}
    steps = tell("refusals", {**wallets, "app": app, "other": other_app}, owner)
    unsent = {name for name, step in steps.items() if "before" in step}
    assert unsent in (set(), UNSENT)
    assert _refusals(steps) == {name: facts for name, facts in REFUSALS.items() if name not in unsent}
    assert not any("validationErrors" in step for step in steps.values()), "each is an answer of the server"
    assert all(len(steps[name]["details"]["hint"]) > 20 for name in REFUSALS.keys() - unsent)
    base = steps["sign with the wrong key"]["details"]["signatureBase"]
    assert base.startswith('"@method": POST\n"@target-uri": ')


def _refusals(steps: Mapping[str, Json]) -> dict[str, tuple[int, str, str | None]]:
    """Status, code and the one detail that says more: the reason, or the member of the request that is wrong."""
    found = {}
    for name, step in steps.items():
        if "status" in step:
            details = step.get("details", {})
            found[name] = (step["status"], step["code"], details.get("reason", details.get("field")))
    return found


# What payres.client does not send.
UNSENT = {
    *("create with an amount that is none", "create with an unknown member", "quote both amounts"),
    *("pay with a quote and an amount", "pay with neither", "ask for an action that is none"),
}
REFUSALS = {
    "look up a wallet address that is none": (404, "not_found", None),
    "look up the keys of nobody": (404, "not_found", None),
    "sign with the wrong key": (401, "invalid_client", "signature_mismatch"),
    "sign with a key that is not published": (400, "invalid_client", "unknown_key"),
    "ask for a wallet address that is none": (400, "invalid_request", "access_token.access.identifier"),
    "ask for an action that is none": (400, "invalid_request", "access_token.access[0].actions[0]"),
    "ask to spend without saying how to interact": (400, "invalid_request", "interact"),
    "ask to spend in another asset": (400, "invalid_request", "access_token.access.limits.debitAmount"),
    "ask to spend in windows of no length": (400, "invalid_request", "access_token.access.limits.interval"),
    "use a token that is none": (401, "invalid_token", "unknown_token"),
    "use the token of another app": (401, "invalid_client", "unknown_key"),
    "list without access": (403, "insufficient_access", "action"),
    "complete without access": (403, "insufficient_access", "action"),
    "create for another wallet address": (403, "insufficient_access", "identifier"),
    "create in another asset": (400, "invalid_amount", "incomingAmount"),
    "create with an amount of nothing": (400, "invalid_amount", "incomingAmount.value"),
    "create with an amount that is none": (400, "invalid_amount", "incomingAmount.value"),
    "create with an expiry in the past": (400, "invalid_expiry", "expiresAt"),
    "create with an unknown member": (400, "invalid_request", "note"),
    "read what does not exist": (404, "not_found", None),
    "read publicly what does not exist": (404, "not_found", None),
    "read the payment of another app": (404, "not_found", None),
    "list forward and backward at once": (400, "invalid_request", "last"),
    "list backward from nowhere": (400, "invalid_request", "cursor"),
    "list more than a page holds": (400, "invalid_request", "first"),
    "list from a cursor that is none": (400, "invalid_request", "cursor"),
    "quote without access": (403, "insufficient_access", "action"),
    "quote for a receiver that does not exist": (400, "invalid_receiver", "not_found"),
    "quote both amounts": (400, "invalid_request", "receiveAmount"),
    "quote with nothing to infer the amount from": (400, "invalid_amount", "debitAmount"),
    "quote more than the receiver takes": (400, "invalid_amount", None),
    "quote in another asset": (400, "invalid_amount", "debitAmount"),
    "pay without access": (403, "insufficient_access", "action"),
    "pay with a quote twice": (409, "wrong_state", "quoteId"),
    "pay with a quote that does not exist": (400, "invalid_quote", "quoteId"),
    "pay with a quote and an amount": (400, "invalid_request", "quoteId"),
    "pay with neither": (400, "invalid_request", "quoteId"),
    "pay more than the grant allows": (403, "limit_exceeded", "debitAmount"),
    "pay more than the wallet has": (403, "insufficient_funds", "wallet"),
    "read a payment that does not exist": (404, "not_found", None),
    "list payments without access": (403, "insufficient_access", "action"),
}
