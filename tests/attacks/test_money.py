"""Attempts to make money: by spending twice at once, by sign, by size, by rounding, and by windows without number."""

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from fractions import Fraction
from functools import partial
from typing import Any

import pytest

from payres.operator.assets import deposit_liquidity, set_rate
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
