from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest

from payres.clock import format_time, parse_time
from payres.operator import assets, wallets
from payres.testing.client import Client
from payres.testing.instance import Instance, run_instance
from tests.helpers import Json, receiver_of, usd

Refused = Callable[..., Json]

SECOND = 1_000_000


def token_for(instance: Instance, *actions: str, wallet: str | None = "alice", client: Client | None = None) -> str:
    identifier = {"identifier": instance.wallet(wallet)} if wallet else {}
    return (client or instance.client).grant({"type": "quote", "actions": list(actions), **identifier})


def create(instance: Instance, receiver: str, /, **members: Any) -> httpx2.Response:
    body = {"walletAddress": instance.wallet("alice"), "receiver": receiver, "method": "ilp"} | members
    return instance.client.post("/quotes", body, token_for(instance, "create", wallet=None))


SPELLINGS = ["HTTP://", "%69", "/", "//", "?a=b", "#c", "/?a#b"]


def spelt(url: str, spelling: str) -> str:
    """A resource's URL in another spelling."""
    scheme, _, rest = url.partition("://")
    match spelling:
        case "HTTP://":
            return f"{scheme.upper()}://{rest}"
        case "%69":
            *before, collection, identifier = url.split("/")
            escaped = [f"%{ord(text[0]):02x}{text[1:]}" for text in (collection, identifier)]
            return "/".join([*before, *escaped])
    return url + spelling


@pytest.mark.parametrize(
    ("incoming_amount", "members"),
    [
        (500, {}),
        (None, {"debitAmount": usd(500)}),
        (None, {"receiveAmount": usd(500)}),
        (900, {"debitAmount": usd(500)}),
    ],
)
def test_create_answers_with_the_quote(shared: Instance, incoming_amount: int | None, members: Json) -> None:
    receiver = receiver_of(shared, incoming_amount)
    answer = create(shared, receiver, **members)
    assert answer.status_code == 201
    quote = answer.json()
    prefix, _, last = quote["id"].rpartition("/")
    assert (prefix, UUID(last).version) == (f"{shared.base_url}/quotes", 7)
    assert quote == {
        "id": quote["id"],
        "walletAddress": shared.wallet("alice"),
        "receiver": receiver,
        "receiveAmount": usd(500),
        "debitAmount": usd(500),
        "method": "ilp",
        "expiresAt": quote["expiresAt"],
        "createdAt": quote["createdAt"],
    }
    lasts = parse_time(quote["expiresAt"]) - parse_time(quote["createdAt"])
    assert lasts == shared.context.settings.quote_lifetime * SECOND


def test_quote_without_an_amount_is_for_what_remains(payres: Instance, refused: Refused) -> None:
    receiver = receiver_of(payres, 900)
    payres.client.pay(payres.wallet("alice"), receiver, debitAmount=usd(250))
    quote = create(payres, receiver).json()
    assert (quote["receiveAmount"], quote["debitAmount"]) == (usd(650), usd(650))
    error = refused(create(payres, receiver, receiveAmount=usd(651)), 400, "invalid_amount", remaining="650")
    assert "at most 650" in error["details"]["hint"]


def test_quote_expires_no_later_than_its_receiver(shared: Instance) -> None:
    expires_at = format_time(shared.clock.now() + 20 * SECOND)
    assert create(shared, receiver_of(shared, 5, expiresAt=expires_at)).json()["expiresAt"] == expires_at


@pytest.mark.parametrize("settings", [{}, {"quote_lifetime": 300}, {"interaction_lifetime": 1200}], ids=str)
def test_quote_waits_for_an_owner_who_takes_all_the_time_there_is(tmp_path: Path, settings: dict[str, int]) -> None:
    with run_instance(tmp_path / "payres.db", **settings) as payres:
        alice = payres.wallet("alice")
        interaction = payres.context.settings.interaction_lifetime
        asked = payres.client.request_grant(
            {"type": "outgoing-payment", "actions": ["create"], "identifier": alice}, interact={"start": ["redirect"]}
        ).json()
        quote = create(payres, receiver_of(payres, 500)).json()
        payres.clock.advance(interaction - 1)
        payres.approve(asked["interact"]["redirect"])
        follow_up = asked["continue"]
        token = payres.client.post(follow_up["uri"], None, follow_up["access_token"]["value"]).json()["access_token"]
        body = {"walletAddress": alice, "quoteId": quote["id"]}
        answer = payres.client.post("/outgoing-payments", body, token["value"])
        assert answer.status_code == 201, answer.text


def test_quote_charges_the_fee_of_the_senders_asset(shared: Instance, refused: Refused) -> None:
    crowns = {"assetCode": "DKK", "assetScale": 2}
    for path in ("karen", "lars"):
        shared.create_wallet(path, "DKK")
    shared.write(lambda tx: assets.set_fee(tx, "DKK", 2, "0.10", 150))
    receiver = shared.client.create_incoming_payment(shared.wallet("lars"))["id"]
    from_karen = {"walletAddress": shared.wallet("karen")}
    for given, debit, receive in (
        ({"debitAmount": crowns | {"value": "1001"}}, "1001", "975"),  # 10 + 15.015 rounded up
        ({"receiveAmount": crowns | {"value": "1001"}}, "1027", "1001"),
    ):
        quote = create(shared, receiver, **from_karen, **given).json()
        assert quote["debitAmount"] == crowns | {"value": debit}
        assert quote["receiveAmount"] == crowns | {"value": receive}
    too_small = create(shared, receiver, **from_karen, debitAmount=crowns | {"value": "10"})
    refused(too_small, 400, "invalid_amount", field="debitAmount", minSendAmount=crowns | {"value": "12"})
    assert create(shared, receiver, **from_karen, debitAmount=crowns | {"value": "12"}).status_code == 201


def test_quote_names_a_smallest_amount_only_if_it_works(shared: Instance, refused: Refused) -> None:
    """One unit of gold buys more than an amount can hold, or than the receiver takes."""
    shared.create_wallet("goldsmith", "XAU", 0)
    shared.write(lambda tx: assets.set_fee(tx, "XAU", 0, "10", 0))
    for code, scale, wanted in (("XTS", 19, None), ("XTT", 2, "50"), ("XTU", 2, "100")):
        wallet = shared.create_wallet(code.lower(), code, scale)
        shared.write(partial(assets.set_rate, base="XAU", counter=code, rate="1"))
        amount = None if wanted is None else {"value": wanted, "assetCode": code, "assetScale": scale}
        receiver = shared.client.create_incoming_payment(wallet, amount)["id"]
        debit = {"value": "10", "assetCode": "XAU", "assetScale": 0}
        answer = create(shared, receiver, walletAddress=shared.wallet("goldsmith"), debitAmount=debit)
        least = debit | {"value": "11"} if code == "XTU" else None
        refused(answer, 400, "invalid_amount", field="debitAmount", minSendAmount=least)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_receiver_and_quote_are_known_by_every_spelling(shared: Instance, spelling: str) -> None:
    receiver = receiver_of(shared, 1)
    quote = create(shared, spelt(receiver, spelling)).json()
    assert quote["receiver"] == receiver
    assert shared.client.get(quote["id"], token_for(shared, "read")).json() == quote
    paid = shared.client.create_outgoing_payment(shared.wallet("alice"), spelt(quote["id"], spelling))
    assert (paid["receiver"], paid["quoteId"]) == (receiver, quote["id"])


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_receiver_of_a_payment_and_of_its_limit_are_known_by_every_spelling(shared: Instance, spelling: str) -> None:
    receiver = receiver_of(shared, 1)
    alice = shared.wallet("alice")
    item = {"type": "outgoing-payment", "actions": ["create"], "identifier": alice}
    limits = {"receiver": receiver, "debitAmount": usd(1)}
    granted = shared.client.obtain_grant(item | {"limits": limits | {"receiver": spelt(receiver, spelling)}})
    assert granted["access_token"]["access"] == [item | {"limits": limits}]
    body = {"walletAddress": alice, "incomingPayment": spelt(receiver, spelling), "debitAmount": usd(1)}
    paid = shared.client.post("/outgoing-payments", body, granted["access_token"]["value"]).json()
    assert paid["receiver"] == receiver


@pytest.mark.parametrize(
    ("members", "code", "field"),
    [
        ({"debitAmount": usd(1), "receiveAmount": usd(1)}, "invalid_request", "receiveAmount"),
        ({}, "invalid_amount", "debitAmount"),
        ({"debitAmount": usd(0)}, "invalid_amount", "debitAmount.value"),
        ({"receiveAmount": usd(0)}, "invalid_amount", "receiveAmount.value"),
        ({"debitAmount": usd("18446744073709551616")}, "invalid_amount", "debitAmount.value"),
        ({"debitAmount": usd(1) | {"assetCode": "EUR"}}, "invalid_amount", "debitAmount"),
        ({"receiveAmount": usd(1) | {"assetScale": 0}}, "invalid_amount", "receiveAmount"),
        ({"debitAmount": None}, "invalid_request", "debitAmount"),
        ({"debitAmount": "500"}, "invalid_request", "debitAmount"),
        ({"debitAmount": usd(1), "method": "card"}, "invalid_request", "method"),
        ({"debitAmount": usd(1), "method": None}, "invalid_request", "method"),
        (
            {"debitAmount": usd(1), "walletAddress": "http://elsewhere.example/alice"},
            "invalid_request",
            "walletAddress",
        ),
        ({"debitAmount": usd(1), "metadata": {}}, "invalid_request", "metadata"),
        ({"debitAmount": usd(1), "receiver": 5}, "invalid_request", "receiver"),
        ({"debitAmount": usd(1), "receiver": ""}, "invalid_request", "receiver"),
        ({"debitAmount": usd(1), "receiver": "text"}, "invalid_receiver", "receiver"),
        ({"debitAmount": usd(1), "receiver": "ftp://h/incoming-payments/1"}, "invalid_receiver", "receiver"),
        ({"debitAmount": usd(1), "receiver": "http:///incoming-payments/1"}, "invalid_receiver", "receiver"),
        ({"debitAmount": usd(1), "receiver": "http://h.example/1"}, "invalid_receiver", "receiver"),
        ({"debitAmount": usd(1), "receiver": "{base}/quotes/incoming-payments/1"}, "invalid_receiver", "receiver"),
        ({"debitAmount": usd(1), "receiver": "{base}/incoming-payments/none"}, "invalid_receiver", "receiver"),
    ],
)
def test_create_refuses_a_body_that_breaks_a_rule(
    shared: Instance, refused: Refused, members: Json, code: str, field: str
) -> None:
    named = members.get("receiver")
    if isinstance(named, str):
        members = members | {"receiver": named.format(base=shared.base_url)}
    refused(create(shared, receiver_of(shared), **members), 400, code, field=field)


@pytest.mark.parametrize("missing", ["walletAddress", "receiver", "method"])
def test_create_refuses_a_body_without_a_required_member(shared: Instance, refused: Refused, missing: str) -> None:
    body = {"walletAddress": shared.wallet("alice"), "receiver": receiver_of(shared, 5), "method": "ilp"}
    del body[missing]
    refused(shared.client.post("/quotes", body, token_for(shared, "create")), 400, "invalid_request", field=missing)


def test_create_refuses_a_receiver_that_takes_no_more(shared: Instance, refused: Refused) -> None:
    shared.create_wallet("leaving")
    completed, gone = receiver_of(shared), receiver_of(shared, wallet="leaving")
    expired = receiver_of(shared, expiresAt=format_time(shared.clock.now() + 10 * SECOND))
    shared.write(lambda tx: wallets.deactivate(tx, "leaving"))
    token = shared.client.grant({"type": "incoming-payment", "actions": ["complete"]})
    shared.client.post(f"{completed}/complete", None, token)
    shared.clock.advance(10)
    for receiver, reason in ((completed, "completed"), (expired, "expired"), (gone, None)):
        answer = create(shared, receiver, debitAmount=usd(1))
        refused(answer, 400, "invalid_receiver", field="receiver")
        assert answer.json()["error"]["details"].get("reason") == reason


@pytest.mark.parametrize("path", ["/incoming-payments/none", "/quotes/incoming-payments/1"])
def test_create_refuses_a_receiver_that_this_server_does_not_know(
    shared: Instance, refused: Refused, path: str
) -> None:
    answer = create(shared, shared.base_url + path, debitAmount=usd(1))
    refused(answer, 400, "invalid_receiver", field="receiver", reason="not_found")


def test_create_refuses_a_completed_receiver_as_completed_when_its_time_is_over_too(
    shared: Instance, refused: Refused
) -> None:
    receiver = receiver_of(shared, expiresAt=format_time(shared.clock.now() + 10 * SECOND))
    token = shared.client.grant({"type": "incoming-payment", "actions": ["complete"]})
    shared.client.post(f"{receiver}/complete", None, token)
    shared.clock.advance(10)
    answer = create(shared, receiver, debitAmount=usd(1))
    refused(answer, 400, "invalid_receiver", field="receiver", reason="completed")


def test_create_refuses_a_currency_without_a_rate(shared: Instance, refused: Refused) -> None:
    shared.create_wallet("zed", "ZAR")
    receiver = shared.client.create_incoming_payment(shared.wallet("zed"))["id"]
    answer = create(shared, receiver, debitAmount=usd(100))
    refused(answer, 400, "invalid_receiver", reason="no_exchange_rate")


def test_read_shows_the_quote_to_its_maker_for_good(payres: Instance) -> None:
    quote = create(payres, receiver_of(payres, 500)).json()
    payres.client.create_outgoing_payment(payres.wallet("alice"), quote["id"])
    payres.clock.advance(payres.context.settings.quote_lifetime + 1)
    answer = payres.client.get(quote["id"], token_for(payres, "read"))
    assert (answer.status_code, answer.json()) == (200, quote)


def test_read_hides_other_clients_quotes_unless_all_may_be_read(shared: Instance, refused: Refused) -> None:
    other = shared.new_client("quote-reader")
    quote = create(shared, receiver_of(shared, 500)).json()
    refused(other.get(quote["id"], token_for(shared, "read", client=other)), 404, "not_found")
    refused(other.get(quote["id"], token_for(shared, "read-all", wallet="bob", client=other)), 404, "not_found")
    allowed = other.get(quote["id"], token_for(shared, "read-all", client=other))
    assert (allowed.status_code, allowed.json()) == (200, quote)
    refused(other.get(f"/quotes/{UUID(int=0)}", token_for(shared, "read-all", client=other)), 404, "not_found")
