"""Outgoing payments to receivers on this server: paid whole when they are made, or refused with nothing made.

What holds one back: the receiver, the limits of its grant, the money of its wallet, and everyone else at once.
"""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count

import httpx2
import pytest

from payres.core.payments import ledger
from payres.core.store.accounts import ACCOUNTS
from payres.core.store.wallets import require_wallet
from payres.core.store.work import Work
from payres.operator.assets import deposit_liquidity, set_rate, withdraw_liquidity
from tests.helpers import Json, amount, receiver_of, refusal, usd
from tests.instance import Instance

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

    def order(self, shape: str, receiver: str, value: int) -> Json:
        """The body of a request to pay, with a fresh quote if that is its shape."""
        if shape == "direct":
            return {"walletAddress": self.address, "incomingPayment": receiver, "debitAmount": usd(value)}
        quote = self.instance.client.create_quote(self.address, receiver, debitAmount=usd(value))
        return {"walletAddress": self.address, "quoteId": quote["id"]}

    def place(self, order: Json) -> httpx2.Response:
        return self.instance.client.post("/outgoing-payments", order, self.grant["value"])

    def pay(self, receiver: str, value: int) -> httpx2.Response:
        return self.place(self.order("direct", receiver, value))

    def state(self) -> tuple[Json, list[Json], int]:
        """What the grant has spent, the payments that there are, and what is free in the wallet."""
        client, token = self.instance.client, self.grant["value"]
        spent = client.get("/outgoing-payment-grant", token).json()
        made = client.get(f"/outgoing-payments?wallet-address={self.address}", token).json()["result"]

        def free(tx: Work) -> int:
            return ledger.free_balance(ACCOUNTS.by_id(tx, require_wallet(tx, self.path).account_id))

        return spent, made, self.instance.read(free)


NOTHING: Json = {"spentDebitAmount": None, "spentReceiveAmount": None}


def received(instance: Instance, receiver: str) -> tuple[Json, bool]:
    """What the incoming payment has received, and whether it is completed."""
    token = instance.client.grant({"type": "incoming-payment", "actions": ["read"]})
    payment = instance.client.get(receiver, token).json()
    return payment["receivedAmount"], payment["completed"]


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
def test_receiver_that_takes_less_by_now_is_not_paid(shared: Instance, how: str) -> None:
    early, late = Spender(shared), Spender(shared, {"debitAmount": usd(600)})
    receiver = receiver_of(shared, 500)
    order = late.order(how, receiver, 201)
    assert early.pay(receiver, 300).status_code == 201
    if how == "quote":
        refusal(late.place(order), 400, "invalid_quote", field="quoteId")
    else:
        refusal(late.place(order), 400, "invalid_amount", remaining="200", receiveValue="201")
    assert received(shared, receiver) == (usd(300), False)
    assert late.state() == (NOTHING, [], 1000_00)
    assert late.pay(receiver, 200).status_code == 201


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
        refusal(spender.place(order), 403, code, **expected)
        assert spender.state() == before == (NOTHING, [], 10_00)
    if code == "limit_exceeded":  # the order was good, and a grant that allows it takes it
        spender.renew({"debitAmount": usd(value), "receiver": f"{receiver}/", "interval": "R/2000-01-01T00:00:00Z/P1Y"})
        assert spender.place(order).json()["grantSpentDebitAmount"] == usd(value)
    if details == ("liquidity",):
        shared.write(lambda tx: deposit_liquidity(tx, currency, 2, "1000.00"))
    shared.check_ledger()


def test_grant_tells_what_it_has_spent_of_the_asset_last_paid_to(
    shared: Instance, receiver_in: Callable[[str], str]
) -> None:
    spender, spent = Spender(shared), []
    for value, currency in ((10, "USD"), (20, "DKK"), (5, "USD")):
        assert spender.pay(receiver_in(currency), value).status_code == 201
        spent.append(spender.state()[0])
    assert spent == [
        {"spentDebitAmount": usd(10), "spentReceiveAmount": usd(10)},
        {"spentDebitAmount": usd(30), "spentReceiveAmount": amount(20, "DKK")},
        {"spentDebitAmount": usd(35), "spentReceiveAmount": usd(15)},
    ]


def test_limit_holds_while_its_token_is_rotated(shared: Instance) -> None:
    """Payments come in with whatever token is the newest at the time; the grant counts them all."""
    spender = Spender(shared, {"debitAmount": usd(79)}, "10.00")
    order = spender.order("direct", receiver_of(shared), 10)

    def rotate() -> None:
        for _ in range(8):
            answer = shared.client.post(spender.grant["manage"], None, spender.grant["value"])
            spender.grant = answer.json()["access_token"]

    with ThreadPoolExecutor(20) as pool:
        rotations = pool.submit(rotate)
        statuses = Counter(pool.map(lambda _: spender.place(order).status_code, range(100)))
        rotations.result()
    while (status := spender.place(order).status_code) == 201:  # what came in with a token that had just ended
        statuses[status] += 1
    assert (statuses[201], status) == (7, 403)
    assert statuses.keys() <= {201, 401, 403}
    assert spender.state()[0]["spentDebitAmount"] == usd(70)
    assert shared.balance(spender.path) == "9.30"
    shared.check_ledger()
