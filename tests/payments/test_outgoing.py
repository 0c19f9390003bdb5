"""Outgoing payments to receivers on this server: paid whole when they are made, or refused with nothing made.

What holds one back: the receiver, the limits of its grant, the money of its wallet, and everyone else at once.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count, cycle
from typing import Any, NamedTuple, TypeVar

import pytest

from payres import ledger
from payres.clock import format_time
from payres.operator import wallets
from payres.operator.assets import deposit_liquidity, set_rate, withdraw_liquidity
from payres.store.accounts import ACCOUNTS
from payres.store.work import Work
from payres.testing.client import Client
from payres.testing.instance import Instance
from tests.helpers import Json, amount, receiver_of, usd

Refused = Callable[..., Json]
T = TypeVar("T")
R = TypeVar("R")
AT_ONCE = 100


class Crowd(NamedTuple):
    """Clients that are one, each with connections of its own."""

    clients: list[Client]

    def __call__(self, request: Callable[[Client], Any], times: int = AT_ONCE) -> Counter[int]:
        """Runs a request many times at once; how often each status came back."""
        return Counter(answer.status_code for answer in self.map(lambda client, _: request(client), range(times)))

    def map(self, act: Callable[[Client, T], R], given: Iterable[T]) -> list[R]:
        """What the clients make of this, each in its turn and many at once."""
        with ThreadPoolExecutor(len(self.clients)) as pool:
            return list(pool.map(act, cycle(self.clients), given))


SECOND = 1_000_000
FRESH = count()


class Spender:
    """A wallet with money and a grant that spends from it, within limits or not."""

    def __init__(self, instance: Instance, limits: Json | None = None, deposit: str = "1000.00") -> None:
        self.instance = instance
        self.path = f"spender-{next(FRESH)}"
        self.address = instance.create_wallet(self.path, deposit=deposit)
        self.renew(limits)

    def renew(self, limits: Json | None) -> None:
        """Asks for another grant."""
        item = {"type": "outgoing-payment", "actions": ["create", "read", "list"], "identifier": self.address}
        self.grant = self.instance.client.obtain_grant(item | ({"limits": limits} if limits else {}))["access_token"]

    def order(self, shape: str, receiver: str, value: int, client: Client | None = None) -> Json:
        """The body of a request to pay, with a fresh quote of the client if that is its shape."""
        if shape == "direct":
            return {"walletAddress": self.address, "incomingPayment": receiver, "debitAmount": usd(value)}
        quote = (client or self.instance.client).create_quote(self.address, receiver, debitAmount=usd(value))
        return {"walletAddress": self.address, "quoteId": quote["id"]}

    def place(self, order: Json, client: Client | None = None) -> Any:
        return (client or self.instance.client).post("/outgoing-payments", order, self.grant["value"])

    def pay(self, receiver: str, value: int, client: Client | None = None) -> Any:
        return self.place(self.order("direct", receiver, value), client)

    def state(self) -> tuple[Json, list[Json], int]:
        """What the grant has spent, the payments that there are, and what is free in the wallet."""
        client, token = self.instance.client, self.grant["value"]
        spent = client.get("/outgoing-payment-grant", token).json()
        made = client.get(f"/outgoing-payments?wallet-address={self.address}", token).json()["result"]

        def free(tx: Work) -> int:
            return ledger.free_balance(ACCOUNTS.by_id(tx, wallets.require_wallet(tx, self.path).account_id))

        return spent, made, self.instance.read(free)


def spent(value: int) -> Json:
    """What a grant says that it has spent, in one asset and without fees."""
    return {"spentDebitAmount": usd(value), "spentReceiveAmount": usd(value)}


NOTHING: Json = {"spentDebitAmount": None, "spentReceiveAmount": None}


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
    assert shared.balance(spender.path) == "10.00"
    shared.check_ledger()


# What the receiver cannot take is refused whole


@pytest.mark.parametrize("how", ["quote", "direct"])
@pytest.mark.parametrize("reason", ["completed", "expired"])
def test_receiver_that_ended_meanwhile_is_not_paid(shared: Instance, refused: Refused, how: str, reason: str) -> None:
    spender = Spender(shared, {"debitAmount": usd(600)})
    receiver = receiver_of(shared, expiresAt=format_time(shared.clock.now() + 30 * SECOND))
    order = spender.order("quote", receiver, 600)
    if reason == "completed":
        complete(shared, receiver)
    else:
        shared.clock.advance(29)
        order = spender.order("quote", receiver, 600)
        shared.clock.advance(1)
    answer = spender.place(order if how == "quote" else spender.order("direct", receiver, 600))
    if (how, reason) == ("quote", "expired"):  # a quote does not outlive its receiver
        refused(answer, 400, "invalid_quote", field="quoteId")
    else:
        refused(answer, 400, "invalid_receiver", reason=reason)
    assert received(shared, receiver) == (usd(0), reason == "completed")
    assert spender.state() == (NOTHING, [], 1000_00)
    again = spender.pay(receiver_of(shared), 600)  # for which the limit has room
    assert again.json()["sentAmount"] == usd(600)


@pytest.mark.parametrize("how", ["quote", "direct"])
def test_receiver_that_takes_less_by_now_is_not_paid(shared: Instance, refused: Refused, how: str) -> None:
    early, late = Spender(shared), Spender(shared, {"debitAmount": usd(600)})
    receiver = receiver_of(shared, 500)
    order = late.order("quote", receiver, 201)
    assert early.pay(receiver, 300).status_code == 201
    if how == "quote":
        refused(late.place(order), 400, "invalid_quote", field="quoteId")
    else:
        refused(late.pay(receiver, 201), 400, "invalid_amount", remaining="200", receiveValue="201")
    assert received(shared, receiver) == (usd(300), False)
    assert late.state() == (NOTHING, [], 1000_00)
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
    assert spender.state() == (NOTHING, [], 10_00)


# What a limit, the wallet or liquidity does not allow is refused in both shapes, and leaves nothing behind

LATER = "R/2999-01-01T00:00:00Z/P1D"


@pytest.fixture(scope="session")
def receiver_in(shared: Instance) -> Callable[[str], str]:
    """Makes incoming payments; a dollar is worth as much in the other currencies."""
    addresses = {"USD": shared.wallet("bob")}
    for code in ("DKK", "CHF"):
        addresses[code] = shared.create_wallet(f"in-{code.lower()}", code)
        shared.write(partial(set_rate, base="USD", counter=code, rate="1"))
        shared.write(partial(deposit_liquidity, code=code, scale=2, amount="1000.00"))

    def make(code: str) -> str:
        url: str = shared.client.create_incoming_payment(addresses[code])["id"]
        return url

    return make


@pytest.mark.parametrize("shape", ["direct", "quote"])
@pytest.mark.parametrize(
    ("limits", "value", "currency", "code", "details"),
    [
        ({"debitAmount": usd(399)}, 400, "USD", "limit_exceeded", ("debitAmount", "399", "400")),
        ({"debitAmount": usd(399)}, 400, "DKK", "limit_exceeded", ("debitAmount", "399", "400")),
        ({"receiveAmount": usd(399)}, 400, "USD", "limit_exceeded", ("receiveAmount", "399", "400")),
        ({"receiveAmount": amount(399, "DKK")}, 400, "DKK", "limit_exceeded", ("receiveAmount", "399", "400")),
        ({"receiveAmount": usd(399)}, 1, "DKK", "limit_exceeded", ("receiveAmount",)),
        ({"receiveAmount": amount(399, "DKK")}, 1, "USD", "limit_exceeded", ("receiveAmount",)),
        ({"receiver": "{another}"}, 1, "USD", "limit_exceeded", ("receiver",)),
        ({"receiver": "{another}", "interval": LATER}, 1, "USD", "limit_exceeded", ("receiver",)),
        ({"interval": LATER}, 1, "USD", "limit_exceeded", ("interval",)),
        ({"interval": LATER, "debitAmount": usd(1000)}, 1, "USD", "limit_exceeded", ("interval",)),
        (None, 1001, "USD", "insufficient_funds", ("wallet",)),
        ({"debitAmount": usd(2000)}, 1001, "USD", "insufficient_funds", ("wallet",)),
        (None, 1, "CHF", "insufficient_funds", ("liquidity",)),
    ],
)
def test_refused_payment_leaves_nothing_behind(
    shared: Instance,
    receiver_in: Callable[[str], str],
    refused: Refused,
    shape: str,
    limits: Json | None,
    value: int,
    currency: str,
    code: str,
    details: tuple[str, ...],
) -> None:
    receiver, another = receiver_in(currency), receiver_in("USD")
    if limits and "receiver" in limits:
        limits = limits | {"receiver": another}
    spender = Spender(shared, limits, "10.00")
    order, before = spender.order(shape, receiver, value), spender.state()
    if details == ("liquidity",):
        shared.write(lambda tx: withdraw_liquidity(tx, currency, 2, "1000.00"))
    expected = dict(zip(("reason", "left", "needed"), details, strict=False))
    for _ in range(2):
        refused(spender.place(order), 403, code, **expected)
        assert spender.state() == before == (NOTHING, [], 10_00)
    if code == "limit_exceeded":  # the order was good, and a grant that allows it takes it
        spender.renew({"debitAmount": usd(value), "receiver": receiver, "interval": "R/2000-01-01T00:00:00Z/P1Y"})
        assert spender.place(order).json()["grantSpentDebitAmount"] == usd(value)
    if details == ("liquidity",):
        shared.write(lambda tx: deposit_liquidity(tx, currency, 2, "1000.00"))
    shared.check_ledger()


# A hundred at once


@pytest.fixture
def crowd(shared: Instance) -> Iterator[Crowd]:
    known = shared.client
    about = (known.wallet_address, known.private_key, known.jwk, known.base_url, shared.clock, shared.approve)
    clients = [Client(*about) for _ in range(20)]
    yield Crowd(clients)
    for client in clients:
        client.close()


def test_receiver_for_seven_is_paid_seven_times_by_a_hundred_at_once(shared: Instance, crowd: Crowd) -> None:
    spender = Spender(shared)
    receiver = receiver_of(shared, 799)
    assert crowd(lambda client: spender.pay(receiver, 100, client)) == {201: 7, 400: AT_ONCE - 7}
    assert received(shared, receiver) == (usd(700), False)
    assert shared.balance(spender.path) == "993.00"
    assert spender.state()[0] == spent(700)
    shared.check_ledger()


def test_window_for_seven_takes_seven_of_a_hundred_quotes_at_once(shared: Instance, crowd: Crowd) -> None:
    """The other quotes are as good as before, for a grant that allows them."""
    limits = {"receiveAmount": usd(79), "interval": f"R/{format_time(shared.clock.now())}/P1D"}
    spender = Spender(shared, limits, "10.00")
    receiver = shared.client.create_incoming_payment(shared.wallet("bob"))["id"]
    orders = crowd.map(lambda client, _: spender.order("quote", receiver, 10, client), range(AT_ONCE))
    statuses = crowd.map(lambda client, order: spender.place(order, client).status_code, orders)
    assert Counter(statuses) == {201: 7, 403: 93}
    assert spender.state()[0] == spent(70)
    assert spender.state()[2] == 1000 - 70
    spender.renew(None)
    left_over = [order for order, status in zip(orders, statuses, strict=True) if status == 403]
    assert [spender.place(order).status_code for order in left_over[:3]] == [201, 201, 201]
    shared.check_ledger()


def test_limit_holds_while_its_token_is_rotated(shared: Instance, crowd: Crowd) -> None:
    """Payments come in with whatever token is the newest at the time; the grant counts them all."""
    spender = Spender(shared, {"debitAmount": usd(79)}, "10.00")
    order = spender.order("direct", shared.client.create_incoming_payment(shared.wallet("bob"))["id"], 10)

    def rotate() -> None:
        for _ in range(8):
            answer = shared.client.post(spender.grant["manage"], None, spender.grant["value"])
            spender.grant = answer.json()["access_token"]

    with ThreadPoolExecutor(1) as pool:
        rotations = pool.submit(rotate)
        statuses = crowd(lambda client: spender.place(order, client))
        rotations.result()
    while (status := spender.place(order).status_code) == 201:  # what came in with a token that had just ended
        statuses[status] += 1
    assert (statuses[201], status) == (7, 403)
    assert statuses.keys() <= {201, 401, 403}
    assert spender.state()[0] == spent(70)
    assert shared.balance(spender.path) == "9.30"
    shared.check_ledger()
