"""Outgoing payments to receivers on this server: paid whole when they are made, or refused with nothing made.

What holds one back: the receiver, the limits of its grant, the money of its wallet, and everyone else at once.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from itertools import count
from typing import Any

import pytest

from payres import ledger
from payres.clock import format_time
from payres.operator import wallets
from payres.store.accounts import ACCOUNTS
from payres.store.work import Work
from payres.testing.client import Client
from payres.testing.instance import Instance
from tests.helpers import Json, amount, receiver_of, usd

Refused = Callable[..., Json]
Crowd = Callable[[Callable[[Client], Any]], Counter[int]]

SECOND = 1_000_000
AT_ONCE = 100
FRESH = count()


class Spender:
    """A wallet with money and a grant that spends from it, within limits or not."""

    def __init__(
        self, instance: Instance, limits: Json | None = None, deposit: str = "1000.00", code: str = "USD"
    ) -> None:
        self.instance = instance
        self.code = code
        self.path = f"spender-{next(FRESH)}"
        self.address = instance.create_wallet(self.path, code, deposit=deposit)
        item = {"type": "outgoing-payment", "actions": ["create", "read", "list"], "identifier": self.address}
        self.token = instance.client.grant(item | ({"limits": limits} if limits else {}))

    def pay(self, receiver: str, value: int, client: Client | None = None) -> Any:
        debit = amount(value, self.code)
        body = {"walletAddress": self.address, "incomingPayment": receiver, "debitAmount": debit}
        return (client or self.instance.client).post("/outgoing-payments", body, self.token)

    def pay_quote(self, quote: Json) -> Any:
        body = {"walletAddress": self.address, "quoteId": quote["id"]}
        return self.instance.client.post("/outgoing-payments", body, self.token)

    def balance(self) -> str:
        return self.instance.balance(self.path)

    def payments(self) -> list[Json]:
        url = f"/outgoing-payments?wallet-address={self.address}"
        listed: list[Json] = self.instance.client.get(url, self.token).json()["result"]
        return listed

    def assert_nothing_happened(self, balance: str) -> None:
        """There is no payment, the money is all there and free, and the grant has spent nothing."""

        def unit(tx: Work) -> tuple[int, int]:
            account = ACCOUNTS.by_id(tx, wallets.require_wallet(tx, self.path).account_id)
            return account.held, ledger.free_balance(account)

        assert (self.payments(), self.balance(), self.spent()) == ([], balance, (None, None))
        assert self.instance.read(unit) == (0, round(Decimal(balance) * 100))
        self.instance.check_ledger()

    def spent(self) -> tuple[Any, Any]:
        body = self.instance.client.get("/outgoing-payment-grant", self.token).json()
        return body["spentDebitAmount"], body["spentReceiveAmount"]


def received(instance: Instance, receiver: str) -> tuple[Json, bool]:
    """What the incoming payment has received, and whether it is completed."""
    token = instance.client.grant({"type": "incoming-payment", "actions": ["read"]})
    payment = instance.client.get(receiver, token).json()
    return payment["receivedAmount"], payment["completed"]


def complete(instance: Instance, receiver: str) -> None:
    token = instance.client.grant({"type": "incoming-payment", "actions": ["complete"]})
    assert instance.client.post(f"{receiver}/complete", None, token).status_code == 200


# The money arrives with the payment


def test_wallet_may_pay_itself(shared: Instance) -> None:
    spender = Spender(shared, deposit="10.00")
    receiver = receiver_of(shared, 400, spender.path)
    answer = spender.pay(receiver, 400)
    assert (answer.json()["failed"], answer.json()["sentAmount"]) == (False, usd(400))
    assert received(shared, receiver) == (usd(400), True)
    assert spender.balance() == "10.00"
    shared.check_ledger()


# What the receiver cannot take is refused whole


@pytest.mark.parametrize("how", ["quote", "direct"])
@pytest.mark.parametrize("reason", ["completed", "expired"])
def test_receiver_that_ended_meanwhile_is_not_paid(shared: Instance, refused: Refused, how: str, reason: str) -> None:
    spender = Spender(shared, {"debitAmount": usd(600)})
    receiver = receiver_of(shared, expiresAt=format_time(shared.clock.now() + 30 * SECOND))
    quote = shared.client.create_quote(spender.address, receiver, debitAmount=usd(600))
    if reason == "completed":
        complete(shared, receiver)
    else:
        shared.clock.advance(29)
        quote = shared.client.create_quote(spender.address, receiver, debitAmount=usd(600))
        shared.clock.advance(1)
    answer = spender.pay_quote(quote) if how == "quote" else spender.pay(receiver, 600)
    if (how, reason) == ("quote", "expired"):  # a quote does not outlive its receiver
        refused(answer, 400, "invalid_quote", field="quoteId")
    else:
        refused(answer, 400, "invalid_receiver", reason=reason)
    assert received(shared, receiver) == (usd(0), reason == "completed")
    spender.assert_nothing_happened("1000.00")
    again = spender.pay(receiver_of(shared), 600)  # for which the limit has room
    assert again.json()["sentAmount"] == usd(600)


@pytest.mark.parametrize("how", ["quote", "direct"])
def test_receiver_that_takes_less_by_now_is_not_paid(shared: Instance, refused: Refused, how: str) -> None:
    early, late = Spender(shared), Spender(shared, {"debitAmount": usd(600)})
    receiver = receiver_of(shared, 500)
    quote = shared.client.create_quote(late.address, receiver, debitAmount=usd(201))
    assert early.pay(receiver, 300).status_code == 201
    if how == "quote":
        refused(late.pay_quote(quote), 400, "invalid_quote", field="quoteId")
    else:
        refused(late.pay(receiver, 201), 400, "invalid_amount", remaining="200", receiveValue="201")
    assert received(shared, receiver) == (usd(300), False)
    late.assert_nothing_happened("1000.00")
    assert late.pay(receiver, 200).status_code == 201


def test_receiving_account_that_cannot_hold_it_is_not_paid(
    shared: Instance, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    spender = Spender(shared, deposit="10.00")
    shared.create_wallet("full", deposit="1.00")
    receiver = receiver_of(shared, wallet="full")
    with monkeypatch.context() as patch:
        patch.setattr(ledger, "MAX_LEDGER", 300)
        refused(spender.pay(receiver, 250), 400, "invalid_amount")
    assert (shared.balance("full"), received(shared, receiver)) == ("1.00", (usd(0), False))
    spender.assert_nothing_happened("10.00")


# Limits


# A hundred at once


@pytest.fixture
def crowd(shared: Instance) -> Iterator[Crowd]:
    """Runs a request many times at once, over connections of their own; how often each status came back."""
    known = shared.client
    about = (known.wallet_address, known.private_key, known.jwk, known.base_url, shared.clock, shared.approve)
    clients = [Client(*about) for _ in range(20)]

    def run(request: Callable[[Client], Any]) -> Counter[int]:
        with ThreadPoolExecutor(len(clients)) as pool:
            return Counter(pool.map(lambda n: request(clients[n % len(clients)]).status_code, range(AT_ONCE)))

    yield run
    for client in clients:
        client.close()


def test_limit_for_seven_allows_seven_of_a_hundred_at_once(shared: Instance, crowd: Crowd) -> None:
    spender, receiver = Spender(shared, {"debitAmount": usd(799)}), receiver_of(shared)
    assert crowd(lambda client: spender.pay(receiver, 100, client)) == {201: 7, 403: AT_ONCE - 7}
    assert spender.spent() == (usd(700), usd(700))
    assert shared.balance(spender.path) == "993.00"
    shared.check_ledger()


def test_money_for_seven_pays_seven_of_a_hundred_at_once(shared: Instance, crowd: Crowd) -> None:
    spender, receiver = Spender(shared, deposit="7.99"), receiver_of(shared)
    assert crowd(lambda client: spender.pay(receiver, 100, client)) == {201: 7, 403: AT_ONCE - 7}
    assert shared.balance(spender.path) == "0.99"
    shared.check_ledger()


def test_quote_makes_one_payment_of_a_hundred_at_once(shared: Instance, crowd: Crowd) -> None:
    spender = Spender(shared)
    quote = shared.client.create_quote(spender.address, receiver_of(shared), debitAmount=usd(100))
    body = {"walletAddress": spender.address, "quoteId": quote["id"]}
    statuses = crowd(lambda client: client.post("/outgoing-payments", body, spender.token))
    assert statuses == {201: 1, 409: AT_ONCE - 1}
    assert shared.balance(spender.path) == "999.00"
    shared.check_ledger()


def test_receiver_for_seven_is_paid_seven_times_by_a_hundred_at_once(shared: Instance, crowd: Crowd) -> None:
    spender = Spender(shared)
    receiver = receiver_of(shared, 799)
    assert crowd(lambda client: spender.pay(receiver, 100, client)) == {201: 7, 400: AT_ONCE - 7}
    assert received(shared, receiver) == (usd(700), False)
    assert shared.balance(spender.path) == "993.00"
    assert spender.spent() == (usd(700), usd(700))
    shared.check_ledger()
