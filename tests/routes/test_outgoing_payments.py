from collections.abc import Callable
from urllib.parse import quote as percent_encoded
from uuid import UUID

import httpx2
import pytest

from payres.clock import format_time
from payres.operator import wallets
from payres.testing.client import Client
from payres.testing.instance import Instance
from tests.helpers import Json, receiver_of, usd

Refused = Callable[..., Json]

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


def quote_of(instance: Instance, wallet_address: str, value: int, client: Client | None = None) -> str:
    receiver = receiver_of(instance)
    quoted = (client or instance.client).create_quote(wallet_address, receiver, debitAmount=usd(value))
    url: str = quoted["id"]
    return url


def test_create_from_a_quote_answers_with_the_payment_and_what_the_grant_spent(shared: Instance, payer: str) -> None:
    receiver = receiver_of(shared, 2500)
    quote = shared.client.create_quote(payer, receiver)
    body = {"walletAddress": payer, "quoteId": quote["id"], "metadata": {"order": "A/1"}}
    answer = shared.client.post("/outgoing-payments", body, token_for(shared, payer))
    assert answer.status_code == 201
    payment = answer.json()
    prefix, _, last = payment["id"].rpartition("/")
    assert (prefix, UUID(last).version) == (f"{shared.base_url}/outgoing-payments", 7)
    assert payment == {
        "id": payment["id"],
        "walletAddress": payer,
        "quoteId": quote["id"],
        "failed": False,
        "receiver": receiver,
        "receiveAmount": usd(2500),
        "debitAmount": usd(2500),
        "sentAmount": usd(2500),
        "grantSpentDebitAmount": usd(2500),
        "grantSpentReceiveAmount": usd(2500),
        "metadata": {"order": "A/1"},
        "createdAt": payment["createdAt"],
    }


def test_create_directly_from_an_incoming_payment(shared: Instance, payer: str) -> None:
    receiver = receiver_of(shared)
    token = token_for(shared, payer)
    body = {"walletAddress": payer, "incomingPayment": receiver, "debitAmount": usd(300)}
    first, second = (shared.client.post("/outgoing-payments", body, token) for _ in range(2))
    assert (first.status_code, second.status_code) == (201, 201)
    payment = first.json()
    assert payment == {
        "id": payment["id"],
        "walletAddress": payer,
        "failed": False,
        "receiver": receiver,
        "receiveAmount": usd(300),
        "debitAmount": usd(300),
        "sentAmount": usd(300),
        "grantSpentDebitAmount": usd(300),
        "grantSpentReceiveAmount": usd(300),
        "createdAt": payment["createdAt"],
    }
    assert second.json()["grantSpentDebitAmount"] == second.json()["grantSpentReceiveAmount"] == usd(600)


def test_payment_is_sent_whole_and_its_receiver_completed(shared: Instance, anonymous: httpx2.Client) -> None:
    sender, taker = shared.create_wallet("sender", deposit="10.00"), shared.create_wallet("taker")
    receiver = shared.client.create_incoming_payment(taker, usd(750))["id"]
    payment = shared.client.pay(sender, receiver)
    read = shared.client.get(payment["id"], token_for(shared, sender, "read"))
    del payment["grantSpentDebitAmount"], payment["grantSpentReceiveAmount"]
    assert (read.status_code, read.json()) == (200, payment)
    assert payment["sentAmount"] == usd(750)
    received = shared.client.get(
        receiver, shared.client.grant({"type": "incoming-payment", "actions": ["read"]})
    ).json()
    assert (received["completed"], received["receivedAmount"], received["methods"]) == (True, usd(750), [])
    assert anonymous.get(receiver).json()["receivedAmount"] == usd(750)
    assert (shared.balance("sender"), shared.balance("taker")) == ("2.50", "7.50")
    shared.check_ledger()


def test_payments_in_parts_complete_the_receiver_with_the_last(shared: Instance, refused: Refused) -> None:
    sender = shared.create_wallet("piecemeal", deposit="10.00")
    receiver = receiver_of(shared, 500)
    reading = shared.client.grant({"type": "incoming-payment", "actions": ["read"]})
    for debit, received, completed in ((200, 200, False), (300, 500, True)):
        shared.client.pay(sender, receiver, debitAmount=usd(debit))
        payment = shared.client.get(receiver, reading).json()
        assert (payment["receivedAmount"], payment["completed"]) == (usd(received), completed)
    body = {"walletAddress": sender, "incomingPayment": receiver, "debitAmount": usd(1)}
    late = shared.client.post("/outgoing-payments", body, token_for(shared, sender))
    refused(late, 400, "invalid_receiver", field="incomingPayment", reason="completed")
    assert shared.balance("piecemeal") == "5.00"
    shared.check_ledger()


@pytest.mark.parametrize(
    ("members", "code", "field"),
    [
        ({}, "invalid_request", "quoteId"),
        ({"quoteId": "{quote}", "incomingPayment": "{receiver}"}, "invalid_request", "quoteId"),
        ({"quoteId": "{quote}", "debitAmount": usd(1)}, "invalid_request", "quoteId"),
        ({"incomingPayment": "{receiver}"}, "invalid_request", "quoteId"),
        ({"debitAmount": usd(1)}, "invalid_request", "quoteId"),
        ({"quoteId": None}, "invalid_request", "quoteId"),
        ({"quoteId": "{quote}", "metadata": [1]}, "invalid_request", "metadata"),
        ({"quoteId": "{quote}", "receiver": "{receiver}"}, "invalid_request", "receiver"),
        ({"quoteId": "{quote}", "walletAddress": 1}, "invalid_request", "walletAddress"),
        ({"quoteId": "none"}, "invalid_quote", "quoteId"),
        ({"quoteId": "{base}/quotes/none"}, "invalid_quote", "quoteId"),
        ({"quoteId": "{receiver}"}, "invalid_quote", "quoteId"),
        ({"quoteId": "http://elsewhere.example/quotes/1"}, "invalid_quote", "quoteId"),
        ({"incomingPayment": "{receiver}", "debitAmount": usd(0)}, "invalid_amount", "debitAmount.value"),
        ({"incomingPayment": "{receiver}", "debitAmount": usd("-5")}, "invalid_amount", "debitAmount.value"),
        (
            {"incomingPayment": "{receiver}", "debitAmount": usd(1) | {"assetCode": "EUR"}},
            "invalid_amount",
            "debitAmount",
        ),
        ({"incomingPayment": "{receiver}", "debitAmount": usd(1) | {"assetScale": 3}}, "invalid_amount", "debitAmount"),
        ({"incomingPayment": "{receiver}", "debitAmount": {"value": "1"}}, "invalid_request", "debitAmount.assetCode"),
        ({"incomingPayment": "{quote}", "debitAmount": usd(1)}, "invalid_receiver", "incomingPayment"),
        (
            {"incomingPayment": "http://h/incoming-payments/1", "debitAmount": usd(1)},
            "invalid_receiver",
            "incomingPayment",
        ),
    ],
)
def test_create_refuses_a_body_that_breaks_a_rule(
    shared: Instance, payer: str, refused: Refused, members: Json, code: str, field: str
) -> None:
    named = {"quote": quote_of(shared, payer, 1), "receiver": receiver_of(shared), "base": shared.base_url}
    body = {"walletAddress": payer} | {k: v.format(**named) if isinstance(v, str) else v for k, v in members.items()}
    refused(shared.client.post("/outgoing-payments", body, token_for(shared, payer)), 400, code, field=field)


@pytest.mark.parametrize("value", ["9223372036854775808", "18446744073709551615"])
def test_create_refuses_more_than_the_ledger_can_move(
    shared: Instance, payer: str, refused: Refused, value: str
) -> None:
    body = {"walletAddress": payer, "incomingPayment": receiver_of(shared), "debitAmount": usd(value)}
    refused(shared.client.post("/outgoing-payments", body, token_for(shared, payer)), 400, "invalid_amount")


def test_quote_pays_once(shared: Instance, payer: str, refused: Refused) -> None:
    token = token_for(shared, payer, "create", "list")
    body = {"walletAddress": payer, "quoteId": quote_of(shared, payer, 100)}
    assert shared.client.post("/outgoing-payments", body, token).status_code == 201
    refused(shared.client.post("/outgoing-payments", body, token), 409, "wrong_state", field="quoteId")
    spent = shared.client.get("/outgoing-payment-grant", token).json()
    assert spent == {"spentDebitAmount": usd(100), "spentReceiveAmount": usd(100)}


def test_quote_pays_for_its_own_client_and_wallet_only(shared: Instance, payer: str, refused: Refused) -> None:
    other = shared.new_client("quoting")
    wallet_address = shared.create_wallet("other-payer", deposit="10.00")
    for owner, quote in (
        (payer, quote_of(shared, payer, 100, other)),
        (payer, quote_of(shared, wallet_address, 100)),
    ):
        body = {"walletAddress": owner, "quoteId": quote}
        answer = shared.client.post("/outgoing-payments", body, token_for(shared, owner))
        refused(answer, 400, "invalid_quote", field="quoteId")


def test_quote_pays_until_it_expires(shared: Instance, payer: str, refused: Refused) -> None:
    body = {"walletAddress": payer, "quoteId": quote_of(shared, payer, 100)}
    shared.clock.advance(shared.context.settings.quote_lifetime)
    answer = shared.client.post("/outgoing-payments", body, token_for(shared, payer))
    error = refused(answer, 400, "invalid_quote", field="quoteId")
    assert "expired" in error["details"]["hint"]


def test_quote_pays_only_what_its_receiver_still_takes(shared: Instance, payer: str, refused: Refused) -> None:
    receiver = receiver_of(shared, 500)
    token = token_for(shared, payer)
    early, late = (shared.client.create_quote(payer, receiver, receiveAmount=usd(300))["id"] for _ in range(2))
    assert shared.client.post("/outgoing-payments", {"walletAddress": payer, "quoteId": early}, token).is_success
    answer = shared.client.post("/outgoing-payments", {"walletAddress": payer, "quoteId": late}, token)
    refused(answer, 400, "invalid_quote", field="quoteId")
    completed = shared.client.grant({"type": "incoming-payment", "actions": ["complete"]})
    shared.client.post(f"{receiver}/complete", None, completed)
    answer = shared.client.post("/outgoing-payments", {"walletAddress": payer, "quoteId": late}, token)
    refused(answer, 400, "invalid_receiver", field="receiver", reason="completed")


def test_receiver_that_expired_is_not_paid(shared: Instance, payer: str, refused: Refused) -> None:
    receiver = receiver_of(shared, expiresAt=format_time(shared.clock.now() + 10 * SECOND))
    shared.clock.advance(10)
    body = {"walletAddress": payer, "incomingPayment": receiver, "debitAmount": usd(1)}
    answer = shared.client.post("/outgoing-payments", body, token_for(shared, payer))
    refused(answer, 400, "invalid_receiver", field="incomingPayment", reason="expired")


def test_wallet_pays_no_more_than_it_has(shared: Instance, refused: Refused) -> None:
    poor = shared.create_wallet("poor", deposit="5.00")
    token = token_for(shared, poor, "create", "list")
    for value, status in ((501, 403), (300, 201), (201, 403), (200, 201), (1, 403)):
        body = {"walletAddress": poor, "quoteId": quote_of(shared, poor, value)}
        answer = shared.client.post("/outgoing-payments", body, token)
        if status == 201:
            assert answer.status_code == 201
        else:
            refused(answer, 403, "insufficient_funds", reason="wallet", needed=str(value))
            assert shared.client.post("/outgoing-payments", body, token).status_code == 403  # the quote is not used up
    listed = shared.client.get(f"/outgoing-payments?wallet-address={percent_encoded(poor, '')}", token).json()["result"]
    assert [item["debitAmount"] for item in listed] == [usd(200), usd(300)]
    assert shared.balance("poor") == "0.00"
    shared.check_ledger()


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


def test_read_hides_other_clients_payments_unless_all_may_be_read(
    shared: Instance, payer: str, refused: Refused
) -> None:
    other = shared.new_client("payment-reader")
    payment = shared.client.create_outgoing_payment(payer, quote_of(shared, payer, 100))
    refused(other.get(payment["id"], token_for(shared, payer, "read", client=other)), 404, "not_found")
    elsewhere = token_for(shared, shared.wallet("bob"), "read-all", client=other)
    refused(other.get(payment["id"], elsewhere), 404, "not_found")
    seen = other.get(payment["id"], token_for(shared, payer, "read-all", client=other))
    assert (seen.status_code, seen.json()["id"]) == (200, payment["id"])
    missing = f"/outgoing-payments/{UUID(int=0)}"
    refused(other.get(missing, token_for(shared, payer, "read-all", client=other)), 404, "not_found")


def test_list_shows_payments_as_reading_does_newest_first(shared: Instance) -> None:
    wallet_address = shared.create_wallet("spender", deposit="10.00")
    ids = [shared.client.pay(wallet_address, receiver_of(shared, value))["id"] for value in (100, 200, 300)]
    token = token_for(shared, wallet_address, "read", "list")
    url = f"/outgoing-payments?wallet-address={percent_encoded(wallet_address, '')}&first=2"
    newest, middle, oldest = (shared.client.get(one, token).json() for one in ids[::-1])
    cursors = [one.rpartition("/")[2] for one in ids[::-1]]
    assert shared.client.get(url, token).json() == {
        "pagination": {
            "startCursor": cursors[0],
            "endCursor": cursors[1],
            "hasNextPage": True,
            "hasPreviousPage": False,
        },
        "result": [newest, middle],
    }
    assert shared.client.get(f"{url}&cursor={cursors[1]}", token).json() == {
        "pagination": {
            "startCursor": cursors[2],
            "endCursor": cursors[2],
            "hasNextPage": False,
            "hasPreviousPage": True,
        },
        "result": [oldest],
    }
    other = shared.new_client("watcher")
    assert other.get(url, token_for(shared, wallet_address, "list", client=other)).json()["result"] == []
    seen = other.get(url, token_for(shared, wallet_address, "list-all", client=other)).json()["result"]
    assert seen == [newest, middle]


def test_grant_spending_is_null_before_the_first_payment(shared: Instance, payer: str) -> None:
    answer = shared.client.get("/outgoing-payment-grant", token_for(shared, payer, limits={"debitAmount": usd(500)}))
    assert (answer.status_code, answer.json()) == (200, {"spentDebitAmount": None, "spentReceiveAmount": None})


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
