from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from payres.clock import format_time
from payres.operator import assets
from payres.testing.client import Client
from payres.testing.instance import Instance, run_instance
from tests.conftest import Refused
from tests.helpers import receiver_of, usd

SECOND = 1_000_000


def token_for(instance: Instance, *actions: str, wallet: str | None = "alice", client: Client | None = None) -> str:
    identifier = {"identifier": instance.wallet(wallet)} if wallet else {}
    return (client or instance.client).grant({"type": "quote", "actions": list(actions), **identifier})


def create(instance: Instance, receiver: str, /, **members: Any) -> httpx2.Response:
    body = {"walletAddress": instance.wallet("alice"), "receiver": receiver, "method": "ilp"} | members
    return instance.client.post("/quotes", body, token_for(instance, "create", wallet=None))


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


def test_create_refuses_a_completed_receiver_as_completed_when_its_time_is_over_too(
    shared: Instance, refused: Refused
) -> None:
    receiver = receiver_of(shared, expiresAt=format_time(shared.clock.now() + 10 * SECOND))
    token = shared.client.grant({"type": "incoming-payment", "actions": ["complete"]})
    shared.client.post(f"{receiver}/complete", None, token)
    shared.clock.advance(10)
    answer = create(shared, receiver, debitAmount=usd(1))
    refused(answer, 400, "invalid_receiver", field="receiver", reason="completed")
