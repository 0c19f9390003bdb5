"""What holds an outgoing payment back: the limits of its grant, the money of its wallet, and everyone else at once."""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pytest

from payres.clock import format_time
from payres.operator.assets import set_fee, set_rate
from payres.operator.liquidity import deposit_liquidity
from payres.testing.client import Client
from payres.testing.instance import Instance
from tests.helpers import Json

Refused = Callable[..., Json]
Crowd = Callable[[Callable[[Client], Any]], Counter[int]]

SECOND = 1_000_000
AT_ONCE = 100
FRESH = count()


def money(value: int, code: str = "USD", scale: int = 2) -> Json:
    return {"value": str(value), "assetCode": code, "assetScale": scale}


class Spender:
    """A wallet with money and a grant that spends from it, within limits or not."""

    def __init__(
        self, instance: Instance, limits: Json | None = None, deposit: str = "1000.00", code: str = "USD"
    ) -> None:
        self.instance = instance
        self.code = code
        self.path = f"spender-{next(FRESH)}"
        self.address = instance.create_wallet(self.path, code, deposit=deposit)
        item = {"type": "outgoing-payment", "actions": ["create", "list"], "identifier": self.address}
        self.token = instance.client.grant(item | ({"limits": limits} if limits else {}))

    def pay(self, receiver: str, value: int, client: Client | None = None) -> Any:
        debit = money(value, self.code)
        body = {"walletAddress": self.address, "incomingPayment": receiver, "debitAmount": debit}
        return (client or self.instance.client).post("/outgoing-payments", body, self.token)

    def pay_quote(self, quote: Json) -> Any:
        body = {"walletAddress": self.address, "quoteId": quote["id"]}
        return self.instance.client.post("/outgoing-payments", body, self.token)

    def spent(self) -> tuple[Any, Any]:
        body = self.instance.client.get("/outgoing-payment-grant", self.token).json()
        return body["spentDebitAmount"], body["spentReceiveAmount"]


def receiver_of(instance: Instance, path: str = "bob") -> str:
    url: str = instance.client.create_incoming_payment(instance.wallet(path))["id"]
    return url


@pytest.mark.parametrize(
    ("limit", "payments"),
    [
        (500, [(500, True), (1, False)]),
        (500, [(501, False), (500, True)]),
        (500, [(200, True), (301, False), (300, True), (1, False)]),
    ],
)
@pytest.mark.parametrize("kind", ["debitAmount", "receiveAmount"])
def test_amount_limit_is_spent_to_the_last_unit(
    idle: Instance, refused: Refused, kind: str, limit: int, payments: list[tuple[int, bool]]
) -> None:
    spender, receiver = Spender(idle, {kind: money(limit)}), receiver_of(idle)
    spent = 0
    for value, allowed in payments:
        answer = spender.pay(receiver, value)
        if not allowed:
            left = str(limit - spent)
            refused(answer, 403, "limit_exceeded", reason=kind, left=left, needed=str(value))
            continue
        assert answer.status_code == 201
        spent += value
        assert answer.json()["grantSpentDebitAmount"] == answer.json()["grantSpentReceiveAmount"] == money(spent)
    assert spender.spent() == ((money(spent), money(spent)) if spent else (None, None))
    idle.settle()
    assert spender.spent() == ((money(spent), money(spent)) if spent else (None, None))
    idle.check_ledger()


def test_no_limits_are_no_limits(idle: Instance) -> None:
    spender, receiver = Spender(idle), receiver_of(idle)
    for total in (40_000, 80_000):
        assert spender.pay(receiver, 40_000).json()["grantSpentDebitAmount"] == money(total)
    assert spender.spent() == (money(80_000), money(80_000))


def test_debit_limit_counts_the_fee_and_receive_limit_does_not(idle: Instance, refused: Refused) -> None:
    taker = idle.create_wallet("fee-taker", "NOK")
    idle.write(lambda tx: set_fee(tx, "NOK", 2, "0.50", 0))
    receiver = idle.client.create_incoming_payment(taker)["id"]
    for kind in ("debitAmount", "receiveAmount"):
        spender = Spender(idle, {kind: money(1000, "NOK")}, code="NOK")
        quote = idle.client.create_quote(spender.address, receiver, receiveAmount=money(1000, "NOK"))
        answer = spender.pay_quote(quote)
        if kind == "debitAmount":
            refused(answer, 403, "limit_exceeded", reason=kind, left="1000", needed="1050")
        else:
            assert answer.json()["grantSpentDebitAmount"] == money(1050, "NOK")
            assert answer.json()["grantSpentReceiveAmount"] == money(1000, "NOK")


def test_receive_limit_is_for_receivers_of_its_asset(idle: Instance, refused: Refused) -> None:
    taker = idle.create_wallet("krona", "SEK")
    now = idle.clock.now()
    idle.write(lambda tx: set_rate(tx, "USD", "SEK", "10", now))
    idle.write(lambda tx: deposit_liquidity(tx, "SEK", 2, "1000", now))
    in_kronor = idle.client.create_incoming_payment(taker)["id"]
    refused(
        Spender(idle, {"receiveAmount": money(500)}).pay(in_kronor, 1), 403, "limit_exceeded", reason="receiveAmount"
    )
    spender = Spender(idle, {"receiveAmount": money(500, "SEK")})
    assert spender.pay(in_kronor, 50).json()["grantSpentReceiveAmount"] == money(500, "SEK")
    refused(spender.pay(in_kronor, 1), 403, "limit_exceeded", reason="receiveAmount", left="0", needed="10")
    refused(spender.pay(receiver_of(idle), 1), 403, "limit_exceeded", reason="receiveAmount")


def test_debit_limit_counts_payments_to_receivers_of_every_asset(idle: Instance, refused: Refused) -> None:
    taker = idle.create_wallet("zloty", "PLN")
    now = idle.clock.now()
    idle.write(lambda tx: set_rate(tx, "USD", "PLN", "4", now))
    idle.write(lambda tx: deposit_liquidity(tx, "PLN", 2, "1000", now))
    spender = Spender(idle, {"debitAmount": money(500)})
    assert spender.pay(receiver_of(idle), 300).status_code == 201
    in_zloty = idle.client.create_incoming_payment(taker)["id"]
    answer = spender.pay(in_zloty, 200)
    assert answer.json()["grantSpentDebitAmount"] == money(500)
    assert answer.json()["grantSpentReceiveAmount"] == money(800, "PLN")
    refused(spender.pay(receiver_of(idle), 1), 403, "limit_exceeded", reason="debitAmount", left="0")
    assert spender.spent() == (money(500), money(800, "PLN"))


def test_receiver_limit_is_for_that_receiver(idle: Instance, refused: Refused) -> None:
    receiver = receiver_of(idle)
    spender = Spender(idle, {"receiver": receiver, "debitAmount": money(500)})
    refused(spender.pay(receiver_of(idle), 100), 403, "limit_exceeded", reason="receiver")
    assert spender.spent() == (None, None)
    assert spender.pay(receiver, 100).status_code == 201
    assert spender.pay(f"{receiver}/", 100).status_code == 201
    assert spender.spent() == (money(200), money(200))


def test_interval_renews_the_limit_in_each_window(idle: Instance, refused: Refused) -> None:
    start = idle.clock.now() // SECOND * SECOND + 100 * SECOND
    limits = {"debitAmount": money(500), "interval": f"R1/{format_time(start)}/PT60S"}
    spender, receiver = Spender(idle, limits), receiver_of(idle)
    refused(spender.pay(receiver, 1), 403, "limit_exceeded", reason="interval")  # before the first window
    assert spender.spent() == (None, None)
    idle.clock.advance((start - idle.clock.now()) / SECOND + 1)
    for _ in range(2):  # R1 is one more window after the first
        assert spender.spent() == (None, None)
        assert spender.pay(receiver, 400).json()["grantSpentDebitAmount"] == money(400)
        refused(spender.pay(receiver, 101), 403, "limit_exceeded", reason="debitAmount", left="100")
        assert spender.pay(receiver, 100).json()["grantSpentDebitAmount"] == money(500)
        assert spender.spent() == (money(500), money(500))
        idle.clock.advance(60)
    refused(spender.pay(receiver, 1), 403, "limit_exceeded", reason="interval")
    assert spender.spent() == (None, None)


def test_interval_without_an_amount_limits_only_the_time(idle: Instance, refused: Refused) -> None:
    interval = f"R0/{format_time(idle.clock.now())}/PT30S"
    spender, receiver = Spender(idle, {"interval": interval}), receiver_of(idle)
    assert spender.pay(receiver, 90_000).status_code == 201
    idle.clock.advance(31)
    refused(spender.pay(receiver, 1), 403, "limit_exceeded", reason="interval")


def test_payment_that_fails_gives_back_to_the_window_it_was_made_in(idle: Instance) -> None:
    start = format_time(idle.clock.now())
    spender = Spender(idle, {"debitAmount": money(500), "interval": f"R/{start}/PT60S"})
    doomed, receiver = receiver_of(idle), receiver_of(idle)
    assert spender.pay(doomed, 300).status_code == 201
    idle.clock.advance(60)
    assert spender.pay(receiver, 400).status_code == 201
    token = idle.client.grant({"type": "incoming-payment", "actions": ["complete"]})
    idle.client.post(f"{doomed}/complete", None, token)
    idle.settle()
    assert spender.spent() == (money(400), money(400))
    idle.check_ledger()


def test_limits_hold_for_each_grant_on_its_own(idle: Instance) -> None:
    spender, receiver = Spender(idle, {"debitAmount": money(500)}), receiver_of(idle)
    assert spender.pay(receiver, 500).status_code == 201
    item = {"type": "outgoing-payment", "actions": ["create"], "identifier": spender.address}
    spender.token = idle.client.grant(item | {"limits": {"debitAmount": money(500)}})
    assert spender.pay(receiver, 500).json()["grantSpentDebitAmount"] == money(500)


def test_refused_payment_leaves_its_quote_as_it_was(idle: Instance, refused: Refused) -> None:
    spender = Spender(idle, {"debitAmount": money(500)})
    quote = idle.client.create_quote(spender.address, receiver_of(idle), debitAmount=money(501))
    for _ in range(2):
        refused(spender.pay_quote(quote), 403, "limit_exceeded", reason="debitAmount")
    item = {"type": "outgoing-payment", "actions": ["create"], "identifier": spender.address}
    spender.token = idle.client.grant(item)
    assert spender.pay_quote(quote).status_code == 201


@pytest.fixture
def crowd(idle: Instance) -> Iterator[Crowd]:
    """Runs a request many times at once, over connections of their own; how often each status came back."""
    known = idle.client
    about = (known.wallet_address, known.private_key, known.jwk, known.base_url, idle.clock, idle.approve)
    clients = [Client(*about) for _ in range(20)]

    def run(request: Callable[[Client], Any]) -> Counter[int]:
        with ThreadPoolExecutor(len(clients)) as pool:
            return Counter(pool.map(lambda n: request(clients[n % len(clients)]).status_code, range(AT_ONCE)))

    yield run
    for client in clients:
        client.close()


def test_limit_for_seven_allows_seven_of_a_hundred_at_once(idle: Instance, crowd: Crowd) -> None:
    spender, receiver = Spender(idle, {"debitAmount": money(799)}), receiver_of(idle)
    assert crowd(lambda client: spender.pay(receiver, 100, client)) == {201: 7, 403: AT_ONCE - 7}
    assert spender.spent() == (money(700), money(700))
    idle.settle()
    assert idle.balance(spender.path) == "993.00"
    idle.check_ledger()


def test_money_for_seven_pays_seven_of_a_hundred_at_once(idle: Instance, crowd: Crowd) -> None:
    spender, receiver = Spender(idle, deposit="7.99"), receiver_of(idle)
    assert crowd(lambda client: spender.pay(receiver, 100, client)) == {201: 7, 403: AT_ONCE - 7}
    idle.settle()
    assert idle.balance(spender.path) == "0.99"
    idle.check_ledger()


def test_quote_makes_one_payment_of_a_hundred_at_once(idle: Instance, crowd: Crowd) -> None:
    spender = Spender(idle)
    quote = idle.client.create_quote(spender.address, receiver_of(idle), debitAmount=money(100))
    body = {"walletAddress": spender.address, "quoteId": quote["id"]}
    statuses = crowd(lambda client: client.post("/outgoing-payments", body, spender.token))
    assert statuses == {201: 1, 409: AT_ONCE - 1}
    idle.settle()
    assert idle.balance(spender.path) == "999.00"
    idle.check_ledger()


def test_receiver_for_seven_is_paid_seven_times_by_a_hundred_at_once(idle: Instance, crowd: Crowd) -> None:
    """The others are refused, or fail whole when they were made before the money arrived."""
    spender = Spender(idle)
    receiver = idle.client.create_incoming_payment(idle.wallet("bob"), money(799))["id"]
    made = crowd(lambda client: spender.pay(receiver, 100, client))
    assert made[201] >= 7
    idle.settle()
    assert idle.balance(spender.path) == "993.00"
    assert spender.spent() == (money(700), money(700))
    idle.check_ledger()
