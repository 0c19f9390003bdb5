"""What outlasts a request: a quote while its owner decides, and what a grant has spent."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from payres.core.grants.access import Caller, permit
from payres.core.grants.tokens import require_still_valid, revoke_grant
from payres.core.http import authorize
from payres.core.protocol.clock import format_time
from payres.core.protocol.errors import LimitExceeded, TokenInvalid
from tests.helpers import Json, receiver_of, usd
from tests.instance import Instance, run_instance


def spending(wallet_address: str, **limits: Json | str) -> Json:
    item: Json = {"type": "outgoing-payment", "actions": ["create"], "identifier": wallet_address}
    return item | ({"limits": limits} if limits else {})


def test_grant_spending_counts_for_the_window_of_now(payres: Instance) -> None:
    alice, lifetime = payres.wallet("alice"), payres.context.settings.access_token_lifetime
    interval = f"R1/{format_time(payres.clock.now())}/PT{lifetime // 3}S"
    token = payres.client.grant(spending(alice, debitAmount=usd(500), interval=interval))
    body = {"walletAddress": alice, "incomingPayment": receiver_of(payres), "debitAmount": usd(400)}
    nothing = {"spentDebitAmount": None, "spentReceiveAmount": None}
    for _ in range(2):
        assert payres.client.get("/outgoing-payment-grant", token).json() == nothing
        payment = payres.client.post("/outgoing-payments", body, token).json()
        assert payment["grantSpentDebitAmount"] == usd(400)
        spent = payres.client.get("/outgoing-payment-grant", token).json()
        assert spent == {"spentDebitAmount": usd(400), "spentReceiveAmount": usd(400)}
        payres.clock.advance(lifetime // 3)
    assert payres.client.get("/outgoing-payment-grant", token).json() == nothing


def test_reading_what_was_spent_does_not_pay(shared: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both need the action `create`, and only what pays is told that its grant was revoked."""
    callers: list[Caller] = []

    def permitted(*asked: Any, **options: Any) -> Caller:
        callers.append(permit(*asked, **options))
        return callers[-1]

    payer = shared.create_wallet("reader", deposit="1.00")
    token = shared.client.grant(spending(payer))
    body = {"walletAddress": payer, "incomingPayment": receiver_of(shared), "debitAmount": usd(1)}
    monkeypatch.setattr(authorize, "permit", permitted)
    assert shared.client.get("/outgoing-payment-grant", token).status_code == 200
    assert shared.client.post("/outgoing-payments", body, token).status_code == 201
    reading, paying = callers
    shared.write(partial(revoke_grant, grant_id=reading.grant_id))
    for caller, error in ((reading, TokenInvalid), (paying, LimitExceeded)):
        with pytest.raises(error):
            shared.read(partial(require_still_valid, caller=caller))


@pytest.mark.parametrize("settings", [{}, {"quote_lifetime": 300}, {"interaction_lifetime": 1200}], ids=str)
def test_quote_waits_for_an_owner_who_takes_all_the_time_there_is(tmp_path: Path, settings: dict[str, int]) -> None:
    with run_instance(tmp_path / "payres.db", **settings) as payres:
        alice, client = payres.wallet("alice"), payres.client
        asked = client.request_grant(spending(alice), interact={"start": ["redirect"]}).json()
        quote = client.create_quote(alice, receiver_of(payres, 500))
        payres.clock.advance(payres.context.settings.interaction_lifetime - 1)
        payres.approve(asked["interact"]["redirect"])
        follow_up = asked["continue"]
        token = client.post(follow_up["uri"], None, follow_up["access_token"]["value"]).json()["access_token"]
        answer = client.post("/outgoing-payments", {"walletAddress": alice, "quoteId": quote["id"]}, token["value"])
        assert answer.status_code == 201, answer.text
