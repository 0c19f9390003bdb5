"""Attempts to make money: by spending twice at once, by sign, by size, by rounding, and by windows without number."""

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from fractions import Fraction
from functools import partial
from typing import Any

import httpx2
import pytest

from payres.operator.assets import deposit_liquidity, set_rate
from tests.conftest import Refused
from tests.helpers import TIMEOUT, Json, usd
from tests.instance import Instance, run_instance
from tests.signing_client import Client

Crowd = Sequence[Client]

AT_ONCE = 200
CLIENTS = 20


def spending(wallet: str, **limits: Any) -> Json:
    item = {"type": "outgoing-payment", "actions": ["create", "read"], "identifier": wallet}
    return item | ({"limits": limits} if limits else {})


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """A server of its own; after all attacks its ledger balances."""
    with run_instance(tmp_path_factory.mktemp("bank") / "payres.db") as instance:
        yield instance
        instance.check_ledger()


@pytest.fixture(scope="module")
def crowd(bank: Instance) -> Iterator[Crowd]:
    known = bank.client
    about = (known.wallet_address, known.private_key, known.jwk, known.base_url, bank.clock, bank.approve)
    with ExitStack() as opened:
        yield [opened.enter_context(closing(Client(*about))) for _ in range(CLIENTS)]


def rush(crowd: Crowd, url: str, body: Json, token: str) -> Counter[int]:
    """How often each status came back for one request, sent by everyone at once, over and over."""
    start = threading.Barrier(len(crowd))

    def send(client: Client) -> list[int]:
        start.wait(TIMEOUT)
        return [client.post(url, body, token).status_code for _ in range(AT_ONCE // len(crowd))]

    with ThreadPoolExecutor(len(crowd)) as pool:
        return Counter(status for statuses in pool.map(send, crowd) for status in statuses)


@pytest.mark.parametrize(
    ("deposit", "limits", "is_quoted", "paid", "refusal"),
    [
        ("1000.00", {}, True, 1, 409),
        ("1000.00", {"debitAmount": usd(1199)}, False, 3, 403),
        ("11.99", {}, False, 3, 403),
    ],
    ids=["quote", "limit", "balance"],
)
def test_double_spend_by_200_requests_at_once(
    bank: Instance, crowd: Crowd, deposit: str, limits: Json, is_quoted: bool, paid: int, refusal: int
) -> None:
    wallet = bank.create_wallet(f"spending-{deposit}-{paid}", deposit=deposit)
    receiver = bank.client.create_incoming_payment(bank.wallet("bob"))["id"]
    body = {"walletAddress": wallet, "incomingPayment": receiver, "debitAmount": usd(300)}
    if is_quoted:
        quote = bank.client.create_quote(wallet, receiver, debitAmount=usd(300))["id"]
        body = {"walletAddress": wallet, "quoteId": quote}
    statuses = rush(crowd, "/outgoing-payments", body, bank.client.grant(spending(wallet, **limits)))
    assert statuses == {201: paid, refusal: AT_ONCE - paid}
    assert Fraction(bank.balance(wallet.rpartition("/")[2])) == Fraction(deposit) - 3 * paid


WRONG_VALUES = [
    *("-1", "-0", "+1", "1e3", "1.0", " 1", "1 ", "0x10", "1_000", "\u0661", "\uff11", "", "NaN", "Infinity"),
    *(str(2**64), str(2**64 + 1), str(2**128), str(-(2**63)), "9" * 400),
]


@pytest.mark.parametrize("value", WRONG_VALUES)
def test_negative_and_wrapped_amounts(bank: Instance, refused: Refused, value: str) -> None:
    client, alice = bank.client, bank.wallet("alice")
    receiver = client.create_incoming_payment(bank.wallet("bob"))["id"]
    billing = client.grant({"type": "incoming-payment", "actions": ["create"]})
    pricing = client.grant({"type": "quote", "actions": ["create"]})
    paying = client.grant(spending(alice))
    priced = {"walletAddress": alice, "receiver": receiver, "method": "ilp"}
    paid = {"walletAddress": alice, "incomingPayment": receiver}
    before = bank.balance("alice")
    answers = [
        client.post("/incoming-payments", {"walletAddress": alice, "incomingAmount": usd(value)}, billing),
        client.post("/quotes", priced | {"debitAmount": usd(value)}, pricing),
        client.post("/quotes", priced | {"receiveAmount": usd(value)}, pricing),
        client.post("/outgoing-payments", paid | {"debitAmount": usd(value)}, paying),
        client.request_grant(spending(alice, debitAmount=usd(value))),
        client.request_grant(spending(alice, receiveAmount=usd(value))),
    ]
    for answer in answers:
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["code"] in {"invalid_amount", "invalid_request"}, answer.text
    assert bank.balance("alice") == before


def test_rounding_harvest(bank: Instance) -> None:
    """Cents into yen and back, the least that goes each time: the two wallets end with less than they had."""
    bank.write(lambda tx: set_rate(tx, "USD", "JPY", "149.7"))
    dollars = bank.create_wallet("harvest-usd", deposit="1.00")
    yen = bank.create_wallet("harvest-jpy", "JPY", 0, deposit="150")
    for code, scale in (("USD", 2), ("JPY", 0)):
        bank.write(partial(deposit_liquidity, code=code, scale=scale, amount="10000"))
    client = bank.client
    bills = {wallet: client.create_incoming_payment(wallet)["id"] for wallet in (dollars, yen)}
    for path, payer, payee, code, scale in (
        ("harvest-usd", dollars, yen, "USD", 2),
        ("harvest-jpy", yen, dollars, "JPY", 0),
    ):
        token = client.grant(spending(payer))
        least = {"value": "1", "assetCode": code, "assetScale": scale}
        body = {"walletAddress": payer, "incomingPayment": bills[payee], "debitAmount": least}
        statuses = {client.post("/outgoing-payments", body, token).status_code for _ in range(75)}
        assert statuses <= {201, 400}, path
    worth = Fraction(bank.balance("harvest-usd")) + Fraction(bank.balance("harvest-jpy")) / Fraction("149.7")
    assert worth <= 1 + 150 / Fraction("149.7")
    bank.check_ledger()


BOMBS = [
    *("R/1970-01-01T00:00:00Z/PT1S", "R999999999/1970-01-01T00:00:00Z/PT1S", "R/0001-01-01T00:00:00Z/PT0.000001S"),
    *("R/PT0.000001S/9999-12-31T23:59:59Z", "R/0001-01-01T00:00:00Z/P1M"),
    *("R/1970-01-01T00:00:00Z/PT999999999999999999999999S", "R/1970-01-01T00:00:00Z/P99999999999999999999Y"),
    "R99999999999999999999/1970-01-01T00:00:00Z/PT1S",
    "R/1970-01-01T00:00:00Z/PT" + "9" * 200 + "S",
    "R/1970-01-01T00:00:00Z/PT0S",
    "R/1970-01-01T00:00:00Z/P0D",
    "R/1970-01-01T00:00:00Z/P0Y0M0W0DT0H0M0.0000001S",
    "R/1970-01-01T00:00:00Z/-PT1S",
    "R/1970-01-01T00:00:00Z/1970-01-01T00:00:00Z",
]


@pytest.mark.parametrize("interval", BOMBS)
def test_interval_bombs(bank: Instance, anonymous: httpx2.Client, interval: str) -> None:
    """An interval is refused, or it is shown, counted and spent in; who went through its windows would never end."""
    wallet = bank.create_wallet(f"bombed-{BOMBS.index(interval)}", deposit="10.00")
    receiver = bank.client.create_incoming_payment(bank.wallet("bob"))["id"]
    answer = bank.client.request_grant(spending(wallet, debitAmount=usd(100), interval=interval))
    if answer.status_code == 200:
        assert anonymous.get(answer.json()["interact"]["redirect"]).status_code == 200
        token = bank.client.grant(spending(wallet, debitAmount=usd(100), interval=interval))
        body = {"walletAddress": wallet, "incomingPayment": receiver, "debitAmount": usd(1)}
        assert bank.client.post("/outgoing-payments", body, token).status_code in {201, 403}
        assert bank.client.get("/outgoing-payment-grant", token).status_code == 200
    else:
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request"), answer.text
