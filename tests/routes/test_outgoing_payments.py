from urllib.parse import quote as percent_encoded

import pytest

from payres.clock import format_time
from payres.operator import wallets
from payres.testing.client import Client
from payres.testing.instance import Instance
from tests.conftest import Refused
from tests.helpers import Json, receiver_of, usd

SECOND = 1_000_000


@pytest.fixture(scope="session")
def payer(shared: Instance) -> str:
    """The address of a wallet that has enough for all the tests below."""
    return shared.create_wallet("payer", deposit="100000.00")


def token_for(
    instance: Instance, wallet_address: str, *actions: str, limits: Json | None = None, client: Client | None = None
) -> str:
    item = {"type": "outgoing-payment", "actions": list(actions or ["create"]), "identifier": wallet_address}
    return (client or instance.client).grant(item | ({"limits": limits} if limits else {}))


def test_wallet_that_is_inactive_neither_pays_nor_quotes_nor_lists(shared: Instance, refused: Refused) -> None:
    wallet_address = shared.create_wallet("retired", deposit="10.00")
    token = token_for(shared, wallet_address, "create", "read", "list")
    payment = shared.client.pay(wallet_address, receiver_of(shared), debitAmount=usd(100))
    quoting = shared.client.grant({"type": "quote", "actions": ["create"], "identifier": wallet_address})
    shared.write(lambda tx: wallets.deactivate(tx, "retired"))
    body = {"walletAddress": wallet_address, "incomingPayment": receiver_of(shared), "debitAmount": usd(100)}
    answer = shared.client.post("/outgoing-payments", body, token)
    refused(answer, 400, "invalid_request", field="walletAddress")
    quote = {"walletAddress": wallet_address, "receiver": receiver_of(shared, 100), "method": "ilp"}
    refused(shared.client.post("/quotes", quote, quoting), 400, "invalid_request", field="walletAddress")
    url = f"/outgoing-payments?wallet-address={percent_encoded(wallet_address, '')}"
    refused(shared.client.get(url, token), 400, "invalid_request", field="wallet-address")
    assert shared.client.get(payment["id"], token).json()["sentAmount"] == usd(100)


def test_grant_spending_stays_with_the_grant_when_its_token_is_rotated(
    shared: Instance, payer: str, refused: Refused
) -> None:
    item = {
        "type": "outgoing-payment",
        "actions": ["create"],
        "identifier": payer,
        "limits": {"debitAmount": usd(500)},
    }
    token = shared.client.obtain_grant(item)["access_token"]
    body = {"walletAddress": payer, "incomingPayment": receiver_of(shared), "debitAmount": usd(300)}
    assert shared.client.post("/outgoing-payments", body, token["value"]).status_code == 201
    rotated = shared.client.post(token["manage"], None, token["value"]).json()["access_token"]["value"]
    spent = shared.client.get("/outgoing-payment-grant", rotated).json()
    assert spent == {"spentDebitAmount": usd(300), "spentReceiveAmount": usd(300)}
    too_much = shared.client.post("/outgoing-payments", body, rotated)
    refused(too_much, 403, "limit_exceeded", reason="debitAmount", left="200", needed="300")
    last = shared.client.post("/outgoing-payments", body | {"debitAmount": usd(200)}, rotated)
    assert last.json()["grantSpentDebitAmount"] == usd(500)


def test_grant_spending_counts_for_the_window_of_now(payres: Instance) -> None:
    start = format_time(payres.clock.now())
    alice = payres.wallet("alice")
    lifetime = payres.context.settings.access_token_lifetime
    item = {
        "type": "outgoing-payment",
        "actions": ["create"],
        "identifier": alice,
        "limits": {"debitAmount": usd(500), "interval": f"R1/{start}/PT{lifetime // 3}S"},
    }
    token = payres.client.grant(item)
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
