"""Outgoing payments to receivers on this server: paid whole when they are made, or refused with nothing made.

What holds one back: the receiver, the limits of its grant, the money of its wallet, and everyone else at once.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from itertools import count
from typing import Any

import httpx2
import pytest

from payres import ledger
from payres.amounts import MAX_LEDGER
from payres.clock import format_time
from payres.operator import wallets
from payres.operator.assets import deposit_liquidity, set_fee, set_rate
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


def test_payment_has_arrived_when_it_is_answered(shared: Instance) -> None:
    spender = Spender(shared, deposit="10.00")
    shared.create_wallet("moves-to")
    receiver = receiver_of(shared, wallet="moves-to")
    answer = spender.pay(receiver, 250)
    assert (answer.status_code, answer.json()["failed"], answer.json()["sentAmount"]) == (201, False, usd(250))
    assert (spender.balance(), shared.balance("moves-to")) == ("7.50", "2.50")
    assert received(shared, receiver) == (usd(250), False)
    read = shared.client.get(answer.json()["id"], spender.token).json()
    assert (read["failed"], read["sentAmount"]) == (False, usd(250))
    assert spender.spent() == (usd(250), usd(250))
    shared.check_ledger()


def test_receiver_that_has_all_it_wants_is_completed(shared: Instance) -> None:
    spender, receiver = Spender(shared), receiver_of(shared, 500)
    assert spender.pay(receiver, 200).json()["sentAmount"] == usd(200)
    assert received(shared, receiver) == (usd(200), False)
    assert spender.pay(receiver, 300).json()["sentAmount"] == usd(300)
    assert received(shared, receiver) == (usd(500), True)
    shared.check_ledger()


def test_wallet_may_pay_itself(shared: Instance) -> None:
    spender = Spender(shared, deposit="10.00")
    receiver = receiver_of(shared, 400, spender.path)
    answer = spender.pay(receiver, 400)
    assert (answer.json()["failed"], answer.json()["sentAmount"]) == (False, usd(400))
    assert received(shared, receiver) == (usd(400), True)
    assert spender.balance() == "10.00"
    shared.check_ledger()


def test_money_received_can_be_spent(shared: Instance) -> None:
    first, second = Spender(shared, deposit="10.00"), Spender(shared, deposit="0.01")
    assert first.pay(receiver_of(shared, wallet=second.path), 600).status_code == 201
    assert second.pay(receiver_of(shared, wallet=first.path), 600).status_code == 201
    assert (first.balance(), second.balance()) == ("10.00", "0.01")
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


def test_total_of_a_receiver_never_passes_what_one_figure_holds(shared: Instance, refused: Refused) -> None:
    def whole(value: int) -> Json:
        return amount(value, "WHOLE", 0)

    def pay(path: str, receiver: str, value: int) -> httpx2.Response:
        item = {"type": "outgoing-payment", "actions": ["create", "read"], "identifier": shared.wallet(path)}
        body = {"walletAddress": shared.wallet(path), "incomingPayment": receiver, "debitAmount": whole(value)}
        return shared.client.post("/outgoing-payments", body, shared.client.grant(item))

    shared.create_wallet("whole-sender", "WHOLE", 0, deposit=str(MAX_LEDGER))
    shared.create_wallet("whole-taker", "WHOLE", 0)
    receiver, back = receiver_of(shared, wallet="whole-taker"), receiver_of(shared, wallet="whole-sender")
    for path, target in (("whole-sender", receiver), ("whole-taker", back)):
        assert pay(path, target, MAX_LEDGER - 10).status_code == 201
    assert pay("whole-sender", receiver, 10).json()["sentAmount"] == whole(10)
    refused(pay("whole-sender", receiver, 1), 400, "invalid_amount", receiveValue="1")
    assert received(shared, receiver) == (whole(MAX_LEDGER), False)
    assert shared.balance("whole-sender") == str(MAX_LEDGER - 10)
    item = {"type": "outgoing-payment", "actions": ["list"], "identifier": shared.wallet("whole-sender")}
    url = f"/outgoing-payments?wallet-address={item['identifier']}"
    assert len(shared.client.get(url, shared.client.grant(item)).json()["result"]) == 2
    shared.check_ledger()


# Limits


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
    shared: Instance, refused: Refused, kind: str, limit: int, payments: list[tuple[int, bool]]
) -> None:
    spender, receiver = Spender(shared, {kind: usd(limit)}), receiver_of(shared)
    spent = 0
    for value, allowed in payments:
        answer = spender.pay(receiver, value)
        if not allowed:
            left = str(limit - spent)
            refused(answer, 403, "limit_exceeded", reason=kind, left=left, needed=str(value))
            continue
        assert answer.status_code == 201
        spent += value
        assert answer.json()["grantSpentDebitAmount"] == answer.json()["grantSpentReceiveAmount"] == usd(spent)
    assert spender.spent() == ((usd(spent), usd(spent)) if spent else (None, None))
    shared.check_ledger()


def test_no_limits_are_no_limits(shared: Instance) -> None:
    spender, receiver = Spender(shared), receiver_of(shared)
    for total in (40_000, 80_000):
        assert spender.pay(receiver, 40_000).json()["grantSpentDebitAmount"] == usd(total)
    assert spender.spent() == (usd(80_000), usd(80_000))


def test_debit_limit_counts_the_fee_and_receive_limit_does_not(shared: Instance, refused: Refused) -> None:
    taker = shared.create_wallet("fee-taker", "NOK")
    shared.write(lambda tx: set_fee(tx, "NOK", 2, "0.50", 0))
    receiver = shared.client.create_incoming_payment(taker)["id"]
    for kind in ("debitAmount", "receiveAmount"):
        spender = Spender(shared, {kind: amount(1000, "NOK")}, code="NOK")
        quote = shared.client.create_quote(spender.address, receiver, receiveAmount=amount(1000, "NOK"))
        answer = spender.pay_quote(quote)
        if kind == "debitAmount":
            refused(answer, 403, "limit_exceeded", reason=kind, left="1000", needed="1050")
        else:
            assert answer.json()["grantSpentDebitAmount"] == amount(1050, "NOK")
            assert answer.json()["grantSpentReceiveAmount"] == amount(1000, "NOK")


def test_receive_limit_is_for_receivers_of_its_asset(shared: Instance, refused: Refused) -> None:
    taker = shared.create_wallet("krona", "SEK")
    shared.write(lambda tx: set_rate(tx, "USD", "SEK", "10"))
    shared.write(lambda tx: deposit_liquidity(tx, "SEK", 2, "1000"))
    in_kronor = shared.client.create_incoming_payment(taker)["id"]
    refused(
        Spender(shared, {"receiveAmount": usd(500)}).pay(in_kronor, 1), 403, "limit_exceeded", reason="receiveAmount"
    )
    spender = Spender(shared, {"receiveAmount": amount(500, "SEK")})
    assert spender.pay(in_kronor, 50).json()["grantSpentReceiveAmount"] == amount(500, "SEK")
    refused(spender.pay(in_kronor, 1), 403, "limit_exceeded", reason="receiveAmount", left="0", needed="10")
    refused(spender.pay(receiver_of(shared), 1), 403, "limit_exceeded", reason="receiveAmount")


def test_debit_limit_counts_payments_to_receivers_of_every_asset(shared: Instance, refused: Refused) -> None:
    taker = shared.create_wallet("zloty", "PLN")
    shared.write(lambda tx: set_rate(tx, "USD", "PLN", "4"))
    shared.write(lambda tx: deposit_liquidity(tx, "PLN", 2, "1000"))
    spender = Spender(shared, {"debitAmount": usd(500)})
    assert spender.pay(receiver_of(shared), 300).status_code == 201
    in_zloty = shared.client.create_incoming_payment(taker)["id"]
    answer = spender.pay(in_zloty, 200)
    assert answer.json()["grantSpentDebitAmount"] == usd(500)
    assert answer.json()["grantSpentReceiveAmount"] == amount(800, "PLN")
    refused(spender.pay(receiver_of(shared), 1), 403, "limit_exceeded", reason="debitAmount", left="0")
    assert spender.spent() == (usd(500), amount(800, "PLN"))


def test_receiver_limit_is_for_that_receiver(shared: Instance, refused: Refused) -> None:
    receiver = receiver_of(shared)
    spender = Spender(shared, {"receiver": receiver, "debitAmount": usd(500)})
    refused(spender.pay(receiver_of(shared), 100), 403, "limit_exceeded", reason="receiver")
    assert spender.spent() == (None, None)
    assert spender.pay(receiver, 100).status_code == 201
    assert spender.pay(f"{receiver}/", 100).status_code == 201
    assert spender.spent() == (usd(200), usd(200))


def test_interval_renews_the_limit_in_each_window(shared: Instance, refused: Refused) -> None:
    start = shared.clock.now() // SECOND * SECOND + 100 * SECOND
    limits = {"debitAmount": usd(500), "interval": f"R1/{format_time(start)}/PT60S"}
    spender, receiver = Spender(shared, limits), receiver_of(shared)
    refused(spender.pay(receiver, 1), 403, "limit_exceeded", reason="interval")  # before the first window
    assert spender.spent() == (None, None)
    shared.clock.advance((start - shared.clock.now()) / SECOND + 1)
    for _ in range(2):  # R1 is one more window after the first
        assert spender.spent() == (None, None)
        assert spender.pay(receiver, 400).json()["grantSpentDebitAmount"] == usd(400)
        refused(spender.pay(receiver, 101), 403, "limit_exceeded", reason="debitAmount", left="100")
        assert spender.pay(receiver, 100).json()["grantSpentDebitAmount"] == usd(500)
        assert spender.spent() == (usd(500), usd(500))
        shared.clock.advance(60)
    refused(spender.pay(receiver, 1), 403, "limit_exceeded", reason="interval")
    assert spender.spent() == (None, None)


def test_interval_without_an_amount_limits_only_the_time(shared: Instance, refused: Refused) -> None:
    interval = f"R0/{format_time(shared.clock.now())}/PT30S"
    spender, receiver = Spender(shared, {"interval": interval}), receiver_of(shared)
    assert spender.pay(receiver, 90_000).status_code == 201
    shared.clock.advance(31)
    refused(spender.pay(receiver, 1), 403, "limit_exceeded", reason="interval")


def test_limits_hold_for_each_grant_on_its_own(shared: Instance) -> None:
    spender, receiver = Spender(shared, {"debitAmount": usd(500)}), receiver_of(shared)
    assert spender.pay(receiver, 500).status_code == 201
    item = {"type": "outgoing-payment", "actions": ["create"], "identifier": spender.address}
    spender.token = shared.client.grant(item | {"limits": {"debitAmount": usd(500)}})
    assert spender.pay(receiver, 500).json()["grantSpentDebitAmount"] == usd(500)


def test_refused_payment_leaves_its_quote_as_it_was(shared: Instance, refused: Refused) -> None:
    spender = Spender(shared, {"debitAmount": usd(500)})
    quote = shared.client.create_quote(spender.address, receiver_of(shared), debitAmount=usd(501))
    for _ in range(2):
        refused(spender.pay_quote(quote), 403, "limit_exceeded", reason="debitAmount")
    item = {"type": "outgoing-payment", "actions": ["create"], "identifier": spender.address}
    spender.token = shared.client.grant(item)
    assert spender.pay_quote(quote).status_code == 201


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
