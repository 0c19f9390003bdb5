from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest

from payres.clock import format_time
from payres.operator import assets
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


def test_read_hides_other_clients_quotes_unless_all_may_be_read(shared: Instance, refused: Refused) -> None:
    other = shared.new_client("quote-reader")
    quote = create(shared, receiver_of(shared, 500)).json()
    refused(other.get(quote["id"], token_for(shared, "read", client=other)), 404, "not_found")
    refused(other.get(quote["id"], token_for(shared, "read-all", wallet="bob", client=other)), 404, "not_found")
    allowed = other.get(quote["id"], token_for(shared, "read-all", client=other))
    assert (allowed.status_code, allowed.json()) == (200, quote)
    refused(other.get(f"/quotes/{UUID(int=0)}", token_for(shared, "read-all", client=other)), 404, "not_found")
