"""Payments between assets: rates, scales, fees and liquidity, to the last minor unit."""

from fractions import Fraction
from itertools import count
from typing import Any, NamedTuple

import httpx2
import pytest

from payres.core.payments import ledger
from payres.core.payments.quotes import rate_between
from payres.core.protocol.amounts import Asset
from payres.core.protocol.clock import SECOND
from payres.core.protocol.errors import DomainError
from payres.core.store import accounts
from payres.core.store.accounts import ACCOUNTS, RateRecord
from payres.core.store.work import Work
from payres.operator.assets import deposit_liquidity, set_fee, set_rate, withdraw_liquidity
from tests.helpers import Json, refusal
from tests.instance import Instance
from tests.works import work_at

FRESH = count()


class Market:
    """Two wallets in assets that no other test uses, with money, and liquidity on both sides."""

    def __init__(self, instance: Instance, scales: tuple[int, int], rate: str | None, one_code: bool = False) -> None:
        number = next(FRESH)
        self.instance = instance
        self.source = Asset(f"S{number}", scales[0])
        self.target = Asset(f"S{number}" if one_code else f"T{number}", scales[1])
        self.sender = instance.create_wallet(f"sender-{number}", self.source.code, self.source.scale, deposit="1000")
        self.taker = instance.create_wallet(f"taker-{number}", self.target.code, self.target.scale)
        self.paths = f"sender-{number}", f"taker-{number}"
        self.receiver = instance.client.create_incoming_payment(self.taker)["id"]
        if rate is not None:
            instance.write(lambda tx: set_rate(tx, self.source.code, self.target.code, rate))

    def add_liquidity(self, text: str) -> None:
        self.instance.write(lambda tx: deposit_liquidity(tx, self.target.code, self.target.scale, text))

    def take_liquidity(self, text: str) -> None:
        self.instance.write(lambda tx: withdraw_liquidity(tx, self.target.code, self.target.scale, text))

    def charge(self, fixed: str, basis_points: int) -> None:
        self.instance.write(lambda tx: set_fee(tx, self.source.code, self.source.scale, fixed, basis_points))

    def quote(self, **given: int) -> Json:
        """A quote for sending `debit`, or for delivering `receive`."""
        sides = {"debit": self.source, "receive": self.target}
        fixed = {f"{side}Amount": amount(value, sides[side]) for side, value in given.items()}
        return self.instance.client.create_quote(self.sender, self.receiver, **fixed)

    def pay(self, quote: Json) -> httpx2.Response:
        body = {"walletAddress": self.sender, "quoteId": quote["id"]}
        return self.instance.client.post("/outgoing-payments", body, self.token("create"))

    def payments(self) -> list[Json]:
        """The sender's outgoing payments."""
        answer = self.instance.client.get(f"/outgoing-payments?wallet-address={self.sender}", self.token("list"))
        listed: list[Json] = answer.json()["result"]
        return listed

    def token(self, action: str) -> str:
        item = {"type": "outgoing-payment", "actions": [action], "identifier": self.sender}
        return self.instance.client.grant(item)

    def figures(self) -> "Figures":
        """What the accounts of both assets hold, in minor units."""

        def unit(tx: Work) -> Figures:
            def balance(asset: Asset, kind: str) -> int:
                record = accounts.ASSETS.find(tx, code=asset.code, scale=asset.scale)
                assert record is not None
                return ACCOUNTS.by_id(tx, ledger.operator_account(tx, record.id, kind)).balance

            return Figures(
                balance(self.source, "liquidity"), balance(self.target, "liquidity"), balance(self.source, "fees")
            )

        return self.instance.write(unit)

    def balances(self) -> tuple[int, int]:
        """The balances of sender and taker, in minor units."""
        shown = [self.instance.balance(path) for path in self.paths]
        return int(shown[0].replace(".", "")), int(shown[1].replace(".", ""))


class Figures(NamedTuple):
    bought: int
    liquidity: int
    fees: int


def amount(value: int, asset: Asset) -> Json:
    return {"value": str(value), "assetCode": asset.code, "assetScale": asset.scale}


THERE, BACK = ("USD", "EUR"), ("EUR", "USD")


@pytest.mark.parametrize(
    ("of_operator", "of_service", "now", "there", "back"),
    [
        ([(*THERE, "0.92")], [], 0, "92/100", "100/92"),
        ([(*THERE, "0.92"), (*BACK, "1.05")], [], 0, "92/100", "105/100"),
        # Those of the service hold until they expire, and overwrite none of the operator's.
        ([], [(*THERE, "0.92", 0, 5)], 4, "92/100", "100/92"),
        ([], [(*THERE, "0.92", 0, 2), (*BACK, "1.05", 0, 3)], 1, "92/100", "105/100"),
        ([], [(*THERE, "0.92", 0, 2), (*BACK, "1.05", 0, 3)], 2, "100/105", "105/100"),
        ([(*THERE, "0.92")], [(*THERE, "9", 0, 5)], 1, "92/100", "100/92"),
        ([(*THERE, "0.92")], [(*BACK, "9", 0, 5)], 1, "92/100", "100/92"),
        # Two that were rounded apart gain nothing there and back.
        ([], [(*THERE, "0.92", 0, 5), (*BACK, "1.0870", 0, 5)], 1, "92/100", "100/92"),
    ],
)
def test_rate_is_what_was_set_or_its_inverse(
    tx: Work, of_operator: list[Any], of_service: list[Any], now: int, there: str, back: str
) -> None:
    for rate in of_operator:
        set_rate(tx, *rate)
    for rate in of_service:
        accounts.refresh_rate(tx, RateRecord(*rate))
    at = work_at(tx, now)
    assert (rate_between(at, *THERE), rate_between(at, *BACK)) == (Fraction(there), Fraction(back))
    assert rate_between(at, "USD", "USD") == 1


def test_rate_that_nobody_set_or_that_has_expired_is_refused(tx: Work) -> None:
    set_rate(tx, "EUR", "CHF", "0.95")
    accounts.refresh_rate(tx, RateRecord(*THERE, "0.92", SECOND, 5 * SECOND))
    for base, counter, sentence, details in (
        ("USD", "CHF", "no exchange rate from USD to CHF", {"reason": "no_exchange_rate"}),  # none is made up from two
        (*THERE, "from USD to EUR is 4 s old; try again shortly", {"reason": "exchange_rate_expired"}),
        (*BACK, "from EUR to USD is 4 s old; try again shortly", {"reason": "exchange_rate_expired"}),
    ):
        with pytest.raises(DomainError, match=sentence) as caught:
            rate_between(work_at(tx, 5 * SECOND), base, counter)
        assert (caught.value.status, caught.value.code) == (400, "invalid_receiver")
        assert caught.value.details == details


@pytest.mark.parametrize(
    ("scales", "rate", "fee", "given", "debit", "receive", "charged"),
    [
        # What arrives is rounded down, what it costs is rounded up.
        ((2, 2), "0.92", ("0", 0), {"debit": 1000}, 1000, 920, 0),
        ((2, 2), "0.92", ("0", 0), {"debit": 999}, 999, 919, 0),
        ((2, 2), "0.92", ("0", 0), {"receive": 919}, 999, 919, 0),
        ((2, 2), "0.92", ("0", 0), {"receive": 920}, 1000, 920, 0),
        ((2, 2), "0.92", ("0", 0), {"receive": 921}, 1002, 921, 0),
        # Scales: 1.00 in cents is 100, in millionths 1000000, without decimals 1.
        ((2, 6), "1", ("0", 0), {"debit": 1}, 1, 10_000, 0),
        ((2, 0), "150.5", ("0", 0), {"debit": 100}, 100, 150, 0),
        ((2, 0), "150.5", ("0", 0), {"receive": 151}, 101, 151, 0),
        ((0, 2), "0.0066", ("0", 0), {"debit": 2}, 2, 1, 0),
        ((9, 2), "3000", ("0", 0), {"receive": 1}, 3334, 1, 0),
        # The fee: fixed and a rounded-up share, out of what is sent or on top of what it costs.
        ((2, 2), "0.5", ("0.25", 100), {"debit": 1001}, 1001, 482, 36),
        ((2, 2), "0.5", ("0.25", 100), {"receive": 482}, 999, 482, 35),
        ((2, 2), "2", ("0", 1), {"debit": 2}, 2, 2, 1),
    ],
)
def test_payment_between_assets(
    shared: Instance,
    scales: tuple[int, int],
    rate: str,
    fee: tuple[str, int],
    given: dict[str, int],
    debit: int,
    receive: int,
    charged: int,
) -> None:
    market = Market(shared, scales, rate)
    market.charge(*fee)
    market.add_liquidity("1000")
    before, funds = market.figures(), market.balances()
    quote = market.quote(**given)
    assert quote["debitAmount"] == amount(debit, market.source)
    assert quote["receiveAmount"] == amount(receive, market.target)
    payment = market.pay(quote).json()
    assert (payment["failed"], payment["sentAmount"]) == (False, amount(debit, market.source))
    assert market.balances() == (funds[0] - debit, funds[1] + receive)
    assert market.figures() == Figures(before.bought + debit - charged, before.liquidity - receive, charged)
    shared.check_ledger()


def test_one_currency_in_two_scales_needs_no_rate(shared: Instance) -> None:
    market = Market(shared, (2, 9), None, one_code=True)
    market.add_liquidity("5")
    quote = market.quote(debit=500)
    assert quote["receiveAmount"] == amount(5_000_000_000, market.target)
    assert market.pay(quote).status_code == 201
    assert market.balances() == (99_500, 5_000_000_000)
    shared.check_ledger()


def test_payment_beyond_the_liquidity_is_refused_and_leaves_nothing(shared: Instance) -> None:
    market = Market(shared, (2, 2), "2")
    market.charge("1", 0)
    market.add_liquidity("10.01")
    quote = market.quote(receive=1001)
    market.charge("5", 0)  # which changes no quote
    market.take_liquidity("0.01")
    before, funds = market.figures(), market.balances()
    for _ in range(2):
        refusal(market.pay(quote), 403, "insufficient_funds", reason="liquidity")
    assert (market.figures(), market.balances(), market.payments()) == (before, funds, [])
    market.add_liquidity("0.01")
    assert market.pay(quote).status_code == 201  # the quote was not used up
    assert market.figures().liquidity == 0
    assert market.balances()[1] == 1001
    shared.check_ledger()


def test_exchange_that_the_receiving_account_cannot_hold_moves_nothing(
    shared: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By then the fee has been taken, and the sender's side of the exchange."""
    market = Market(shared, (2, 2), "10")
    market.charge("1", 0)
    market.add_liquidity("100")
    assert market.pay(market.quote(receive=5000)).status_code == 201
    before, funds, made = market.figures(), market.balances(), market.payments()
    quote = market.quote(receive=5000)
    with monkeypatch.context() as patch:
        patch.setattr(ledger, "MAX_LEDGER", 9_999)
        refusal(market.pay(quote), 400, "invalid_amount")
    assert (market.figures(), market.balances(), market.payments()) == (before, funds, made)
    assert market.pay(quote).status_code == 201
    shared.check_ledger()
