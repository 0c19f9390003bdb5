"""What a client may ask for, and what is refused at once because it could never be granted or kept."""

from collections.abc import Callable
from typing import Any

import pytest

from payres.operator import wallets
from payres.testing.instance import Instance
from tests.helpers import Json

Refused = Callable[..., Json]

ACCESS = "access_token.access"
LIMITS = "access_token.access.limits"
FINISH = {"method": "redirect", "uri": "https://shop.example/done", "nonce": "n"}


def usd(value: Any, code: str = "USD", scale: int = 2) -> Json:
    return {"value": value, "assetCode": code, "assetScale": scale}


def filled(value: Any, places: Json) -> Any:
    """`value` with the places such as {alice} in its texts filled in."""
    if isinstance(value, dict):
        return {name: filled(member, places) for name, member in value.items()}
    if isinstance(value, list):
        return [filled(member, places) for member in value]
    return value.format(**places) if isinstance(value, str) else value


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
        ([{"type": "incoming-payment", "actions": ["list-all"]}], f"{ACCESS}.identifier"),
        ([spending(identifier="{shut}")], f"{ACCESS}.identifier"),
        ([spending(), spending(identifier="{bob}")], ACCESS),
        ([limited(debitAmount=usd("1")), limited(debitAmount=usd("9"))], ACCESS),
        ([spending(), spending(actions=["create", "read"], identifier="{alice}/")], ACCESS),
        ([spending(), {"type": "incoming-payment", "actions": ["list-all"], "identifier": "{bob}"}], ACCESS),
        ([spending(limits=[])], f"{ACCESS}[0].limits"),
        # To pass over a limit would give more than was asked for.
        ([spending(limit={})], f"{ACCESS}[0].limit"),
        ([limited(debitAmont=usd("500"))], f"{ACCESS}[0].limits.debitAmont"),
        ([limited(debitAmount=usd("500"), perDay=1)], f"{ACCESS}[0].limits.perDay"),
        ([limited(debit_amount=usd("500"))], f"{ACCESS}[0].limits.debit_amount"),
        ([limited(debitAmount=usd("1"), receiveAmount=usd("1"))], LIMITS),
        ([limited(debitAmount=usd("1", "EUR"))], f"{LIMITS}.debitAmount"),
        ([limited(debitAmount=usd("1", scale=3))], f"{LIMITS}.debitAmount"),
        ([limited(debitAmount=usd("-1"))], f"{LIMITS}.debitAmount.value"),
        ([limited(debitAmount=usd("1.5"))], f"{LIMITS}.debitAmount.value"),
        ([limited(receiveAmount=usd("18446744073709551616"))], f"{LIMITS}.receiveAmount.value"),
        ([limited(debitAmount=usd(1))], f"{ACCESS}[0].limits.debitAmount.value"),
        ([limited(debitAmount=None)], f"{ACCESS}[0].limits.debitAmount"),
        ([limited(receiver="{payment}", receiveAmount=usd("1", "EUR"))], f"{LIMITS}.receiveAmount"),
        ([limited(debitAmount=usd("0"))], f"{LIMITS}.debitAmount.value"),
        ([limited(receiveAmount=usd("00", "EUR"))], f"{LIMITS}.receiveAmount.value"),
        ([limited(receiver="text")], f"{LIMITS}.receiver"),
        ([limited(receiver="{base}/incoming-payments/1")], f"{LIMITS}.receiver"),
        ([limited(receiver="{base}/quotes/incoming-payments/1")], f"{LIMITS}.receiver"),
        ([limited(receiver="{payment}/x")], f"{LIMITS}.receiver"),
        ([limited(receiver="{base}/alice/../incoming-payments/1")], f"{LIMITS}.receiver"),
        ([limited(receiver="{bob}")], f"{LIMITS}.receiver"),
        ([limited(receiver="ftp://h.example/incoming-payments/1")], f"{LIMITS}.receiver"),
        ([limited(interval="")], f"{ACCESS}[0].limits.interval"),
        ([limited(interval="monthly")], f"{LIMITS}.interval"),
        ([limited(interval="P1M")], f"{LIMITS}.interval"),
        ([limited(interval="R12/2026-01-01T00:00:00Z")], f"{LIMITS}.interval"),
        ([limited(interval="R-5/2026-01-01T00:00:00Z/P1M")], f"{LIMITS}.interval"),
        ([limited(interval="R/2026-02-30T00:00:00Z/P1M")], f"{LIMITS}.interval"),
        ([limited(interval="R/2026-01-01T00:00:00Z/PT0S")], f"{LIMITS}.interval"),
        ([limited(interval="R/2026-01-01T00:00:00Z/2025-01-01T00:00:00Z")], f"{LIMITS}.interval"),
        ([limited(interval="R0/2000-01-01T00:00:00Z/P1D")], f"{LIMITS}.interval"),
        ([limited(interval="R5/2000-01-01T00:00:00Z/2000-01-02T00:00:00Z")], f"{LIMITS}.interval"),
        ([limited(interval="R/P1D/2000-01-01T00:00:00Z")], f"{LIMITS}.interval"),
    ],
)
def test_access_that_cannot_be_granted_is_refused(
    shared: Instance, refused: Refused, places: Json, access: list[Any], field: str
) -> None:
    refused(shared.client.request_grant(*filled(access, places)), 400, "invalid_request", field=field)


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
        ({"interact": {"start": ["app"]}}, "interact.start[0]"),
        ({"interact": {"start": ["redirect"], "finish": {"method": "push", "uri": "https://a", "nonce": "n"}}}, None),
        ({"interact": {"start": ["redirect"], "finish": {"method": "redirect", "uri": "https://a"}}}, None),
        ({"interact": {"start": ["redirect"], "finish": FINISH | {"nonce": ""}}}, "interact.finish.nonce"),
        ({"interact": {"start": ["redirect"], "finish": FINISH | {"uri": "/done"}}}, "interact.finish.uri"),
        (
            {"interact": {"start": ["redirect"], "finish": FINISH | {"uri": "javascript:alert(1)"}}},
            "interact.finish.uri",
        ),
        ({"interact": {"start": ["redirect"], "finish": FINISH | {"uri": "https://a b"}}}, "interact.finish.uri"),
        ({"interact": {"start": ["redirect"], "finish": FINISH | {"uri": "https://♥.example"}}}, "interact.finish.uri"),
        ({"interact": {"start": ["redirect"], "finish": FINISH | {"uri": "myapp:/done"}}}, "interact.finish.uri"),
        *(
            (
                {"interact": {"start": ["redirect"], "finish": FINISH | {"hash_method": method}}},
                "interact.finish.hash_method",
            )
            for method in ("sha3-512", "SHA-256", "sha-512", "", None, 256, ["sha-256"])
        ),
        ({"subject": {"sub_ids": []}}, "subject.sub_ids"),
        ({"subject": {"sub_ids": [{"id": "{alice}", "format": "uri"}] * 2}}, "subject.sub_ids"),
        ({"subject": {"sub_ids": [{"id": "a@b.example", "format": "email"}]}}, "subject.sub_ids[0].format"),
        ({"subject": {"sub_ids": [{"id": "{alice}"}]}}, "subject.sub_ids[0].format"),
        ({"subject": {"sub_ids": [{"format": "uri"}]}}, "subject.sub_ids[0].id"),
        ({"subject": {"sub_ids": [{"id": "", "format": "uri"}]}}, "subject.sub_ids[0].id"),
        ({"subject": {"sub_ids": [{"id": "alice", "format": "uri"}]}}, "subject.sub_ids.id"),
        ({"subject": {"sub_ids": [{"id": "https://elsewhere.example/alice", "format": "uri"}]}}, "subject.sub_ids.id"),
        ({"subject": {"sub_ids": [{"id": "{shut}", "format": "uri"}]}}, "subject.sub_ids.id"),
        ({"subject": {"sub_ids": [{"id": "{base}/nobody", "format": "uri"}]}}, "subject.sub_ids.id"),
        ({"subject": {"sub_ids": [{"id": "{bob}", "format": "uri"}]}}, "access_token.access"),
    ],
)
def test_request_that_breaks_a_rule_is_refused(
    shared: Instance, refused: Refused, places: Json, members: Json, field: str | None
) -> None:
    answer = shared.client.request_grant(*filled([spending()], places), **filled(members, places))
    error = refused(answer, 400, "invalid_request")
    assert error["details"]["field"] == field or field is None


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"{", b'"text"'])
def test_request_that_is_no_json_object_is_refused(shared: Instance, refused: Refused, body: bytes) -> None:
    refused(shared.client.request("POST", "/", raw=body), 400, "invalid_request", field="body")


@pytest.mark.parametrize(
    ("access", "members", "interactive"),
    [
        ([quote(identifier="{alice}/")], {}, False),
        ([quote(identifier="{base}/ALICE")], {}, False),
        ([spending(), quote(identifier="{bob}")], {}, True),
        ([spending(), spending(actions=["read", "list"])], {}, True),
        ([spending(actions=["list-all", "read"])], {"interact": {"start": ["redirect"]}}, True),
        ([spending(limits={})], {}, True),
        ([limited(debitAmount=usd("18446744073709551615"), interval="R/2026-01-01T00:00:00Z/P1M")], {}, True),
        ([limited(interval="R-1/P1M/2030-01-01T00:00:00Z")], {}, True),
        ([limited(interval="R11/2096-01-01T00:00:00+01:00/2096-02-01T00:00:00Z")], {}, True),
        ([spending()], {"interact": {"start": ["redirect"], "finish": FINISH | {"hash_method": "sha-256"}}}, True),
        ([spending()], {"interact": {"start": ["redirect"], "finish": FINISH | {"uri": "com.example.app:/"}}}, True),
        ([spending()], {"interact": {"start": ["redirect"], "finish": FINISH | {"uri": "Com.a-1.App+x:/?a#b"}}}, True),
        ([limited(receiver="{payment}", receiveAmount=usd("1"))], {}, True),
        ([limited(receiveAmount=usd("1", "EUR", 4))], {}, True),
        ([limited(receiver="https://elsewhere.example/incoming-payments/1", receiveAmount=usd("1", "EUR"))], {}, True),
        ([quote()], {"subject": {"sub_ids": [{"id": "{alice}", "format": "uri"}]}}, True),
        ([spending()], {"subject": {"sub_ids": [{"id": "{alice}", "format": "uri"}]}}, True),
    ],
)
def test_request_that_keeps_every_rule_is_answered(
    shared: Instance, places: Json, access: list[Any], members: Json, interactive: bool
) -> None:
    answer = shared.client.request_grant(*filled(access, places), **filled(members, places))
    assert answer.status_code == 200, answer.text
    assert ("interact" in answer.json()) == interactive


def test_nothing_is_kept_of_a_refused_request(shared: Instance) -> None:
    def grants() -> int:
        return shared.read(lambda tx: int(tx.execute('SELECT count(*) FROM "grant"').fetchone()[0]))

    before = grants()
    assert shared.client.request_grant({"type": "outgoing-payment", "actions": ["create"]}).status_code == 400
    assert grants() == before
