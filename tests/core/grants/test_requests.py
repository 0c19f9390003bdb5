"""What a client may ask for, and what is refused at once because it could never be granted or kept."""

import json
from typing import Any

import pytest

from payres.operator import wallets
from tests.helpers import Json, amount, refusal
from tests.instance import Instance

ACCESS = "access_token.access"
LIMITS = "access_token.access.limits"
POLLED: Json = {"start": ["redirect"]}
FINISH = {"method": "redirect", "uri": "https://shop.example/done", "nonce": "n"}
URL, METHOD = "interact.finish.uri", "interact.finish.hash_method"


def filled(value: Any, places: Json) -> Any:
    """`value` with the places such as {alice} in its texts filled in."""
    text = json.dumps(value)
    for name, url in places.items():
        text = text.replace(f"{{{name}}}", url)
    return json.loads(text)


@pytest.fixture(scope="session")
def places(shared: Instance) -> Json:
    shared.create_wallet("shut")
    shared.write(lambda tx: wallets.deactivate(tx, "shut"))
    return {
        "alice": shared.wallet("alice"),
        "bob": shared.wallet("bob"),
        "shut": shared.wallet("shut"),
        "base": shared.base_url,
        "payment": shared.client.create_incoming_payment(shared.wallet("bob"))["id"],
    }


def quote(actions: Any = ("read",), **members: Any) -> Json:
    return {"type": "quote", "actions": list(actions)} | members


def spending(**members: Any) -> Json:
    return {"type": "outgoing-payment", "actions": ["create"], "identifier": "{alice}"} | members


def limited(**limits: Any) -> Json:
    return spending(limits=limits)


def incoming(*actions: str, **members: str) -> Json:
    return {"type": "incoming-payment", "actions": list(actions)} | members


def finishing(**finish: Any) -> Json:
    return {"interact": POLLED | {"finish": FINISH | finish}}


def subject(**identifier: str) -> Json:
    return {"subject": {"sub_ids": [identifier]}}


@pytest.mark.parametrize(
    ("access", "field"),
    [
        ([], ACCESS),
        ([quote(["read"]), quote(["create"]), quote(["read-all"]), quote(["create", "read"])], ACCESS),
        ([quote(), quote()], ACCESS),
        ([quote(), quote(purpose="another")], ACCESS),  # a member that counts for nothing makes no difference
        ([quote([])], f"{ACCESS}[0].actions"),
        ([quote(["list"])], f"{ACCESS}[0].actions[0]"),
        ([quote(["read", "read"])], f"{ACCESS}.actions"),
        ([quote("read")], f"{ACCESS}[0].actions[0]"),
        ([spending(actions=["complete"])], f"{ACCESS}[0].actions[0]"),
        ([quote(), {"type": "account", "actions": ["read"]}], f"{ACCESS}[1].type"),
        ([{"actions": ["read"]}], f"{ACCESS}[0].type"),
        ([{"type": "quote"}], f"{ACCESS}[0].actions"),
        (["quote"], f"{ACCESS}[0]"),
        ([quote(identifier=None)], f"{ACCESS}[0].identifier"),
        ([quote(identifier="{base}/nobody")], f"{ACCESS}.identifier"),
        ([quote(identifier="{shut}")], f"{ACCESS}.identifier"),
        ([quote(identifier="https://elsewhere.example/alice")], f"{ACCESS}.identifier"),
        ([quote(identifier="alice")], f"{ACCESS}.identifier"),
        ([quote(identifier="{base}/quotes")], f"{ACCESS}.identifier"),
        ([{"type": "outgoing-payment", "actions": ["create"]}], f"{ACCESS}[0].identifier"),
        ([incoming("list-all")], f"{ACCESS}.identifier"),
        ([spending(identifier="{shut}")], f"{ACCESS}.identifier"),
        ([spending(), spending(identifier="{bob}")], ACCESS),
        ([limited(debitAmount=amount("1")), limited(debitAmount=amount("9"))], ACCESS),
        ([spending(), spending(actions=["create", "read"], identifier="{alice}/")], ACCESS),
        ([spending(), incoming("list-all", identifier="{bob}")], ACCESS),
        ([spending(limits=[])], f"{ACCESS}[0].limits"),
        # To pass over a limit would give more than was asked for.
        ([spending(limit={})], f"{ACCESS}[0].limit"),
        ([limited(debitAmont=amount("500"))], f"{ACCESS}[0].limits.debitAmont"),
        ([limited(debitAmount=amount("500"), perDay=1)], f"{ACCESS}[0].limits.perDay"),
        ([limited(debit_amount=amount("500"))], f"{ACCESS}[0].limits.debit_amount"),
        ([limited(debitAmount=amount("1"), receiveAmount=amount("1"))], LIMITS),
        ([limited(debitAmount=amount("1", "EUR"))], f"{LIMITS}.debitAmount"),
        ([limited(debitAmount=amount("1", scale=3))], f"{LIMITS}.debitAmount"),
        ([limited(debitAmount=amount("-1"))], f"{LIMITS}.debitAmount.value"),
        ([limited(debitAmount=amount("1.5"))], f"{LIMITS}.debitAmount.value"),
        ([limited(receiveAmount=amount("18446744073709551616"))], f"{LIMITS}.receiveAmount.value"),
        ([limited(debitAmount=amount(1) | {"value": 1})], f"{ACCESS}[0].limits.debitAmount.value"),
        ([limited(debitAmount=None)], f"{ACCESS}[0].limits.debitAmount"),
        ([limited(receiver="{payment}", receiveAmount=amount("1", "EUR"))], f"{LIMITS}.receiveAmount"),
        ([limited(debitAmount=amount("0"))], f"{LIMITS}.debitAmount.value"),
        ([limited(receiveAmount=amount("00", "EUR"))], f"{LIMITS}.receiveAmount.value"),
        ([limited(receiver="text")], f"{LIMITS}.receiver"),
        ([limited(receiver="{base}/incoming-payments/1")], f"{LIMITS}.receiver"),
        ([limited(receiver="{base}/quotes/incoming-payments/1")], f"{LIMITS}.receiver"),
        ([limited(receiver="{payment}/x")], f"{LIMITS}.receiver"),
        ([limited(receiver="{base}/alice/../incoming-payments/1")], f"{LIMITS}.receiver"),
        ([limited(receiver="{bob}")], f"{LIMITS}.receiver"),
        ([limited(receiver="ftp://h.example/incoming-payments/1")], f"{LIMITS}.receiver"),
        ([limited(interval="")], f"{ACCESS}[0].limits.interval"),
        ([limited(interval="monthly")], f"{LIMITS}.interval"),
        ([limited(interval="R0/2000-01-01T00:00:00Z/P1D")], f"{LIMITS}.interval"),
        ([limited(interval="R5/2000-01-01T00:00:00Z/2000-01-02T00:00:00Z")], f"{LIMITS}.interval"),
        ([limited(interval="R/P1D/2000-01-01T00:00:00Z")], f"{LIMITS}.interval"),
    ],
)
def test_access_that_cannot_be_granted_is_refusal(
    shared: Instance, places: Json, access: list[Any], field: str
) -> None:
    refused = refusal(shared.client.request_grant(*filled(access, places)), 400, "invalid_request", field=field)
    lists = " (create, complete, read, read-all, list, list-all), outgoing-payment (" in refused["details"]["hint"]
    assert lists == (field.split(".")[-1].startswith(("type", "actions")) and field[len(ACCESS)] == "["), refused


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"access_token": None}, "access_token"),
        ({"access_token": {}}, "access_token.access"),
        ({"access_token": [{"access": [quote()]}]}, "access_token"),
        ({"access_token": "quote"}, "access_token"),
        ({"client": None}, "client"),
        ({"client": 1}, "client"),
        ({"client": {"walletAddress": "{alice}", "display": {}}}, "client.display"),
        ({"interact": None}, "interact"),
        ({"interact": {}}, "interact.start"),
        *(
            ({"interact": {"start": start}}, "interact.start")
            for start in (
                [],
                ["app"],
                ["Redirect"],
                [{"mode": "redirect"}],
                ["user_code", {"mode": "card"}],
                ["a"] * 17,
            )
        ),
        ({"interact": {"start": "redirect"}}, "interact.start"),
        ({"interact": {"start": ["redirect", 7]}}, "interact.start[1]"),
        ({"interact": {"start": ["redirect", "a" * 257]}}, "interact.start[1]"),
        (finishing(method="push"), None),
        ({"interact": POLLED | {"finish": {"method": "redirect", "uri": "https://a"}}}, None),
        (finishing(nonce=""), "interact.finish.nonce"),
        *(
            (finishing(uri=uri), URL)
            for uri in ("/done", "javascript:alert(1)", "https://a b", "https://♥.example", "myapp:/done")
        ),
        *((finishing(hash_method=m), METHOD) for m in ("sha3-512", "SHA-256", "sha-512", "", None, 256, ["sha-256"])),
        ({"subject": {"sub_ids": []}}, "subject.sub_ids"),
        ({"subject": {"sub_ids": [{"id": "{alice}", "format": "uri"}] * 2}}, "subject.sub_ids"),
        (subject(id="a@b.example", format="email"), "subject.sub_ids[0].format"),
        (subject(id="{alice}"), "subject.sub_ids[0].format"),
        (subject(format="uri"), "subject.sub_ids[0].id"),
        (subject(id="", format="uri"), "subject.sub_ids[0].id"),
        (subject(id="alice", format="uri"), "subject.sub_ids.id"),
        (subject(id="https://elsewhere.example/alice", format="uri"), "subject.sub_ids.id"),
        (subject(id="{shut}", format="uri"), "subject.sub_ids.id"),
        (subject(id="{base}/nobody", format="uri"), "subject.sub_ids.id"),
        (subject(id="{bob}", format="uri"), "access_token.access"),
    ],
)
def test_request_that_breaks_a_rule_is_refusal(
    shared: Instance, places: Json, members: Json, field: str | None
) -> None:
    answer = shared.client.request_grant(*filled([spending()], places), **filled(members, places))
    error = refusal(answer, 400, "invalid_request")
    assert error["details"]["field"] == field or field is None


@pytest.mark.parametrize(
    ("access", "members", "interactive"),
    [
        ([quote(identifier="{alice}/")], {}, False),
        ([quote(identifier="{base}/ALICE")], {}, False),
        ([spending(), quote(identifier="{bob}")], {}, True),
        ([spending(), spending(actions=["read", "list"])], {}, True),
        ([spending(actions=["list-all", "read"])], {"interact": POLLED}, True),
        ([spending(limits={})], {}, True),
        ([limited(debitAmount=amount("18446744073709551615"), interval="R/2026-01-01T00:00:00Z/P1M")], {}, True),
        ([limited(interval="R-1/P1M/2030-01-01T00:00:00Z")], {}, True),
        ([limited(interval="R11/2096-01-01T00:00:00+01:00/2096-02-01T00:00:00Z")], {}, True),
        ([spending()], finishing(hash_method="sha-256"), True),
        ([spending()], {"interact": {"start": ["redirect", "card", "user_code"]}}, True),
        ([spending()], {"interact": {"start": [{"mode": "card", "issuer": {"a": [1]}}, "redirect"]}}, True),
        ([spending()], finishing(uri="com.example.app:/"), True),
        ([spending()], finishing(uri="Com.a-1.App+x:/?a#b"), True),
        ([limited(receiver="{payment}", receiveAmount=amount("1"))], {}, True),
        ([limited(receiveAmount=amount("1", "EUR", 4))], {}, True),
        (
            [limited(receiver="https://elsewhere.example/incoming-payments/1", receiveAmount=amount("1", "EUR"))],
            {},
            True,
        ),
        ([quote()], subject(id="{alice}", format="uri"), True),
        ([spending()], subject(id="{alice}", format="uri"), True),
    ],
)
def test_request_that_keeps_every_rule_is_answered(
    shared: Instance, places: Json, access: list[Any], members: Json, interactive: bool
) -> None:
    answer = shared.client.request_grant(*filled(access, places), **filled(members, places))
    assert answer.status_code == 200, answer.text
    assert ("interact" in answer.json()) == interactive


@pytest.mark.parametrize(
    "members",
    [
        {"capabilities": ["x"]},
        {"access_token": {"label": "mine", "flags": ["bearer"], "access": [quote()]}},
        {"access_token": {"access": [quote(locations=["https://elsewhere.example"])]}},
        {"access_token": {"access": [quote(limits={"debitAmount": "free"})]}},
        {"access_token": {"access": [incoming("read") | {"limits": {}}]}},
        {"interact": POLLED | {"hints": {"ui_locales": ["nb"]}}},
        {"interact": {"start": []}},
    ],
    ids=str,
)
def test_members_that_are_not_known_are_passed_over(shared: Instance, members: Json) -> None:
    """They are not echoed either: the answer says what was granted."""
    answer = shared.client.request_grant(quote(), **members)
    assert answer.status_code == 200, answer.text
    [item] = answer.json()["access_token"]["access"]
    assert item in (quote(), incoming("read"))


def test_two_spellings_of_a_wallet_address_are_one_item(shared: Instance, places: Json) -> None:
    plain = incoming("create", identifier=places["bob"])
    spelt = [plain | {"identifier": shared.wallet(path)} for path in ("BOB", "%62ob/", "bob?x#y")]
    assert shared.client.obtain_grant(*spelt)["access_token"]["access"] == [plain]


@pytest.mark.parametrize(
    ("access", "is_named"),
    [
        ([incoming("create")], False),
        ([incoming("create", identifier="{bob}")], True),
        ([incoming("create", identifier="{bob}"), incoming("create", "read", identifier="{base}/BOB/")], True),
        ([incoming("create", identifier="{bob}"), incoming("create", identifier="{alice}")], False),
        ([incoming("create", identifier="{bob}"), incoming("create")], False),
        ([incoming("create", identifier="{bob}"), incoming("read", identifier="{alice}")], True),
    ],
)
def test_grant_names_a_wallet_address_when_it_is_one(
    shared: Instance, places: Json, access: list[Json], is_named: bool
) -> None:
    answer = shared.client.post("/incoming-payments", {}, shared.client.grant(*filled(access, places)))
    if is_named:
        assert answer.json()["walletAddress"] == places["bob"]
    else:
        refusal(answer, 400, "invalid_request", field="walletAddress")
