import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from payres import ledger
from payres.amounts import MAX_LEDGER
from payres.clock import MovableClock, format_time
from payres.grants.access import encode_access
from payres.identifiers import SystemIdentifiers
from payres.operator import audit, wallets
from payres.operator.assets import set_fee
from payres.payments import settlement
from payres.payments.incoming import create_incoming_payment
from payres.payments.outgoing import create_outgoing_payment
from payres.payments.settlement import SettlementWorker
from payres.store import accounts, outgoing
from payres.store.clients import ensure_client
from payres.store.database import Database, Transaction
from payres.store.grants import GrantRecord, insert_grant
from payres.testing.instance import Instance
from payres.urls import Urls
from payres.wire import Amount, IncomingPaymentRequest, OutgoingPaymentRequest
from tests.helpers import PATIENCE, Json, usd

Refused = Callable[..., Json]

SECOND = 1_000_000


class Purse:
    """A wallet with 10.00 USD and a grant to spend at most 6.00 of it."""

    def __init__(self, instance: Instance, path: str, deposit: str = "10.00") -> None:
        self.instance = instance
        self.path = path
        self.address = instance.create_wallet(path, deposit=deposit)
        item = {"type": "outgoing-payment", "actions": ["create", "read"], "identifier": self.address}
        self.token = instance.client.grant(item | {"limits": {"debitAmount": usd(600)}})

    def pay(self, receiver: str, value: int) -> Json:
        body = {"walletAddress": self.address, "incomingPayment": receiver, "debitAmount": usd(value)}
        answer = self.instance.client.post("/outgoing-payments", body, self.token)
        assert answer.status_code == 201, answer.text
        payment: Json = answer.json()
        return payment

    def state(self, payment: Json) -> tuple[bool, Json]:
        """Whether the payment failed, and what it sent."""
        read = self.instance.client.get(payment["id"], self.token).json()
        return read["failed"], read["sentAmount"]

    def spent(self) -> Json:
        body: Json = self.instance.client.get("/outgoing-payment-grant", self.token).json()
        return body

    def balance(self) -> str:
        return self.instance.balance(self.path)

    def free(self) -> int:
        """The balance without what is reserved, in cents."""

        def unit(tx: Transaction) -> int:
            account_id = wallets.require_wallet(tx, self.path).account_id
            return ledger.free_balance(accounts.account_by_id(tx, account_id))

        return self.instance.read(unit)


def receiver_of(instance: Instance, path: str, amount: int | None = None, **members: Any) -> str:
    incoming_amount = None if amount is None else usd(amount)
    url: str = instance.client.create_incoming_payment(instance.wallet(path), incoming_amount, **members)["id"]
    return url


def received(instance: Instance, receiver: str) -> tuple[Json, bool]:
    payment = instance.client.get(receiver, instance.client.grant({"type": "incoming-payment", "actions": ["read"]}))
    return payment.json()["receivedAmount"], payment.json()["completed"]


def complete(instance: Instance, receiver: str) -> None:
    token = instance.client.grant({"type": "incoming-payment", "actions": ["complete"]})
    assert instance.client.post(f"{receiver}/complete", None, token).status_code == 200


def assert_nothing_happened(purse: Purse, payment: Json) -> None:
    """The payment failed whole: its money is back, and so is its share of the grant's limit."""
    assert purse.state(payment) == (True, usd(0))
    assert (purse.balance(), purse.free()) == ("10.00", 1000)
    assert purse.spent() == {"spentDebitAmount": usd(0), "spentReceiveAmount": usd(0)}
    purse.instance.check_ledger()


def test_settle_moves_what_was_reserved(idle: Instance) -> None:
    purse = Purse(idle, "moves")
    idle.create_wallet("moves-to")
    receiver = receiver_of(idle, "moves-to")
    payment = purse.pay(receiver, 250)
    assert (purse.balance(), purse.free(), idle.balance("moves-to")) == ("10.00", 750, "0.00")
    assert purse.state(payment) == (False, usd(0))
    idle.check_ledger()
    idle.settle()
    assert (purse.balance(), purse.free(), idle.balance("moves-to")) == ("7.50", 750, "2.50")
    assert purse.state(payment) == (False, usd(250))
    assert received(idle, receiver) == (usd(250), False)
    idle.settle()
    assert (purse.balance(), idle.balance("moves-to")) == ("7.50", "2.50")
    assert purse.spent() == {"spentDebitAmount": usd(250), "spentReceiveAmount": usd(250)}
    idle.check_ledger()


def test_settle_completes_a_receiver_that_has_all_it_wants(idle: Instance) -> None:
    purse = Purse(idle, "completes")
    receiver = receiver_of(idle, "bob", 500)
    payments = [purse.pay(receiver, 200), purse.pay(receiver, 300)]
    idle.settle()
    assert [purse.state(payment) for payment in payments] == [(False, usd(200)), (False, usd(300))]
    assert received(idle, receiver) == (usd(500), True)
    idle.check_ledger()


def test_payment_to_a_receiver_completed_meanwhile_fails_whole(idle: Instance) -> None:
    purse = Purse(idle, "completed-meanwhile")
    receiver = receiver_of(idle, "bob")
    payment = purse.pay(receiver, 600)
    complete(idle, receiver)
    idle.settle()
    assert received(idle, receiver) == (usd(0), True)
    assert_nothing_happened(purse, payment)
    again = purse.pay(receiver_of(idle, "bob"), 600)  # for which the limit has room again
    idle.settle()
    assert purse.state(again) == (False, usd(600))


def test_payment_to_a_receiver_expired_meanwhile_fails_whole(idle: Instance) -> None:
    purse = Purse(idle, "expired-meanwhile")
    receiver = receiver_of(idle, "bob", expiresAt=format_time(idle.clock.now() + 30 * SECOND))
    payment = purse.pay(receiver, 600)
    idle.clock.advance(30)
    idle.settle()
    assert received(idle, receiver) == (usd(0), False)
    assert_nothing_happened(purse, payment)


def test_payment_that_no_longer_fits_fails_whole(idle: Instance) -> None:
    early, late = Purse(idle, "fits"), Purse(idle, "no-longer-fits")
    receiver = receiver_of(idle, "bob", 500)
    payments = early.pay(receiver, 300), late.pay(receiver, 201)
    idle.settle()
    assert early.state(payments[0]) == (False, usd(300))
    assert received(idle, receiver) == (usd(300), False)
    assert_nothing_happened(late, payments[1])


def test_payment_that_the_receiving_account_cannot_hold_fails_whole(
    idle: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    purse = Purse(idle, "plenty")
    idle.create_wallet("full", deposit="1.00")
    payment = purse.pay(receiver_of(idle, "full"), 250)
    monkeypatch.setattr(ledger, "MAX_LEDGER", 300)
    idle.settle()
    assert_nothing_happened(purse, payment)
    assert idle.balance("full") == "1.00"


def test_wallet_may_pay_itself(idle: Instance) -> None:
    purse = Purse(idle, "myself")
    receiver = receiver_of(idle, "myself", 400)
    payment = purse.pay(receiver, 400)
    idle.settle()
    assert purse.state(payment) == (False, usd(400))
    assert received(idle, receiver) == (usd(400), True)
    assert (purse.balance(), purse.free()) == ("10.00", 1000)
    idle.check_ledger()


def test_money_received_can_be_spent(idle: Instance) -> None:
    first, second = Purse(idle, "chain-first"), Purse(idle, "chain-second", deposit="0.01")
    first.pay(receiver_of(idle, "chain-second"), 600)
    idle.settle()
    second.pay(receiver_of(idle, "chain-first"), 600)
    idle.settle()
    assert (first.balance(), second.balance()) == ("10.00", "0.01")
    idle.check_ledger()


def test_total_of_a_receiver_never_passes_what_one_figure_holds(idle: Instance) -> None:
    def whole(value: int) -> Json:
        return {"value": str(value), "assetCode": "WHOLE", "assetScale": 0}

    def pay(path: str, receiver: str, value: int) -> str:
        item = {"type": "outgoing-payment", "actions": ["create", "read"], "identifier": idle.wallet(path)}
        body = {"walletAddress": idle.wallet(path), "incomingPayment": receiver, "debitAmount": whole(value)}
        answer = idle.client.post("/outgoing-payments", body, idle.client.grant(item))
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    idle.create_wallet("whole-sender", "WHOLE", 0, deposit=str(MAX_LEDGER))
    idle.create_wallet("whole-taker", "WHOLE", 0)
    receiver, back = receiver_of(idle, "whole-taker"), receiver_of(idle, "whole-sender")
    for path, target in (("whole-sender", receiver), ("whole-taker", back)):
        pay(path, target, MAX_LEDGER - 10)
        idle.settle()
    payments = [pay("whole-sender", receiver, value) for value in (10, 1)]  # each fits, and both do not
    idle.settle()
    reading = idle.client.grant(
        {"type": "outgoing-payment", "actions": ["read"], "identifier": idle.wallet("whole-sender")}
    )
    ended = [idle.client.get(payment, reading).json() for payment in payments]
    assert [(one["failed"], one["sentAmount"]) for one in ended] == [(False, whole(10)), (True, whole(0))]
    assert received(idle, receiver) == (whole(MAX_LEDGER), False)
    idle.check_ledger()


def test_payment_is_settled_soon_by_itself(shared: Instance) -> None:
    purse = Purse(shared, "in-a-hurry")
    payment = purse.pay(receiver_of(shared, "bob"), 100)
    assert any(purse.state(payment) == (False, usd(100)) for _ in range(10_000))


CLOCK = MovableClock(1_700_000_000_000_000, frozen=True)


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = await Database.open(str(tmp_path / "payres.db"))
    yield opened
    await opened.close()


def open_payments(tx: Transaction, count: int) -> list[str]:
    """Makes payments of 1.00 USD with a fee of 0.05 from alice to bob; their ids."""
    now, identifiers, urls = CLOCK.now(), SystemIdentifiers(), Urls("https://pay.example")
    set_fee(tx, "USD", 2, "0.05", 0)
    alice = wallets.create_wallet(tx, "alice", "USD", 2, None, None, now)
    bob = wallets.create_wallet(tx, "bob", "USD", 2, None, None, now)
    wallets.deposit(tx, "alice", "1000.00", now)
    client = ensure_client(tx, "https://shop.example", "https://shop.example", None, now)
    grant = GrantRecord("g", client.id, None, "issued", encode_access([]), None, alice.id, b"", now, now, None)
    insert_grant(tx, grant)
    asked = IncomingPaymentRequest()
    receiver = create_incoming_payment(tx, bob, client.id, asked, identifiers, 3600, now)
    request = OutgoingPaymentRequest(
        wallet_address=urls.wallet("alice"),
        incoming_payment=urls.resource("incoming-payments", receiver.id),
        debit_amount=Amount(value="105", asset_code="USD", asset_scale=2),
    )
    about = (tx, urls, alice, client.id, grant.id, None, request, identifiers, now)
    return [create_outgoing_payment(*about).payment.id for _ in range(count)]


async def states(database: Database, ids: list[str]) -> set[str]:
    def unit(tx: Transaction) -> set[str]:
        return {payment.state for one in ids if (payment := outgoing.find_outgoing(tx, one))}

    return await database.read(unit)


async def run_until_settled(worker: SettlementWorker, database: Database, ids: list[str]) -> None:
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(PATIENCE):
        while "sending" in await states(database, ids):
            pass
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


@pytest.mark.parametrize("count", [1, settlement.BATCH + 1])
async def test_worker_takes_up_what_it_finds_under_way(database: Database, count: int) -> None:
    ids = await database.write(lambda tx: open_payments(tx, count))
    await run_until_settled(SettlementWorker(database, CLOCK), database, ids)
    assert await states(database, ids) == {"completed"}

    def unit(tx: Transaction) -> list[int]:
        bob = wallets.require_wallet(tx, "bob")
        fees = ledger.operator_account(tx, bob.asset_id, "fees")
        assert all(finding.holds for finding in audit.check(tx))
        return [accounts.account_by_id(tx, account_id).balance for account_id in (bob.account_id, fees)]

    assert await database.read(unit) == [100 * count, 5 * count]


async def test_worker_tries_again_after_a_failure_of_storage(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ids = await database.write(lambda tx: open_payments(tx, 2))
    failures = iter([OSError("disk on fire")])
    settle = settlement.settle

    def fail_once(tx: Transaction, payment_id: str, clock: MovableClock) -> None:
        for failure in failures:
            raise failure
        settle(tx, payment_id, clock)

    monkeypatch.setattr(settlement, "RETRY_SECONDS", 0)
    monkeypatch.setattr(settlement, "settle", fail_once)
    with caplog.at_level(logging.ERROR, "payres.settlement"):
        await run_until_settled(SettlementWorker(database, CLOCK), database, ids)
    assert await states(database, ids) == {"completed"}
    assert "disk on fire" in caplog.text
