"""Books that were changed behind the ledger's back: the next movement stops all writing, and everyone is told so."""

import asyncio
import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx2
import pytest

from payres.application import create_app
from payres.ledger import SUMMED
from payres.operator.watch import BooksWatch
from payres.settings import Settings
from payres.testing.instance import Instance, run_instance
from tests.conftest import Refused
from tests.helpers import wait_until


@pytest.fixture
def payres(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Instance]:
    """Without the watch, which would find some of it first."""

    async def look_away(_: BooksWatch) -> None:
        pass

    monkeypatch.setattr(BooksWatch, "run", look_away)
    with run_instance(tmp_path / "payres.db") as instance:
        yield instance


def corrupt(payres: Instance, path: str, change: str) -> None:
    with closing(sqlite3.connect(payres.context.database.path)) as other:
        other.execute("PRAGMA ignore_check_constraints = ON")
        account = "(SELECT account_id FROM wallet_address WHERE path = ?)"
        other.execute(f"UPDATE account SET {change} WHERE id = {account}", (path,))
        other.commit()


@pytest.mark.parametrize("wallet", ["alice", "bob"])
@pytest.mark.parametrize("change", ["reserved = balance + 1", "reserved = -1", "balance = -1, floor = 0"])
def test_next_movement_halts_and_reading_goes_on(
    payres: Instance,
    stranger: httpx2.Client,
    refused: Refused,
    caplog: pytest.LogCaptureFixture,
    wallet: str,
    change: str,
) -> None:
    alice, bob = payres.wallet("alice"), payres.wallet("bob")
    receiver = payres.client.create_incoming_payment(bob)["id"]
    quoted = payres.client.create_quote(
        alice, receiver, debitAmount={"value": "5", "assetCode": "USD", "assetScale": 2}
    )
    access = {"type": "outgoing-payment", "actions": ["create", "read"], "identifier": alice}
    token = payres.client.grant(access)
    reader = payres.client.grant({"type": "incoming-payment", "actions": ["read"]})
    corrupt(payres, wallet, change)
    answer = payres.client.post("/outgoing-payments", {"walletAddress": alice, "quoteId": quoted["id"]}, token)
    if wallet == "bob":  # his account is touched when the payment is settled
        assert answer.status_code == 201
        wait_until_halted(payres)
    else:
        refused(answer, 503, "unavailable")
    error = refused(payres.client.request_grant({"type": "quote", "actions": ["read"]}), 503, "unavailable")
    assert error["description"] == "The server takes no more work: its books do not balance, and an operator must look"
    ready = stranger.get(f"{payres.base_url}/readyz")
    assert (ready.status_code, ready.json()["reason"]) == (503, error["description"])
    assert stranger.get(f"{payres.base_url}/healthz").status_code == 200
    assert stranger.get(alice).status_code == 200
    assert payres.client.get(receiver, token=reader).status_code == 200
    [shout] = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert shout.getMessage().startswith("WRITING HAS STOPPED")
    assert "account " in shout.getMessage()
    assert "reserved" in shout.getMessage()
    assert token not in shout.getMessage()


def edit(payres: Instance, statement: str, *values: str) -> None:
    with closing(sqlite3.connect(payres.context.database.path)) as other:
        assert other.execute(statement, values).rowcount > 0
        other.commit()


def last_part(url: str) -> str:
    return url.rpartition("/")[2]


def test_paid_bill_that_was_set_back_is_not_paid_again(payres: Instance, caplog: pytest.LogCaptureFixture) -> None:
    alice, bob = payres.wallet("alice"), payres.wallet("bob")
    bill = payres.client.create_incoming_payment(bob, {"value": "500", "assetCode": "USD", "assetScale": 2})["id"]
    payres.wait_for(payres.client.pay(alice, bill))
    before = payres.balance("bob")
    edit(payres, "UPDATE incoming_payment SET received = 0, completed_at = NULL WHERE id = ?", last_part(bill))
    payres.client.pay(alice, bill)
    wait_until_halted(payres)
    assert payres.balance("bob") == before
    assert f"the received of incoming payment {last_part(bill)} is 500, and all that it is the sum of" in caplog.text


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("UPDATE grant_spending SET debit = 0, receive = 0", "the debit of grant "),
        ("UPDATE grant_spending SET receive = 0", "the receive of grant "),
        ("UPDATE grant_spending SET debit = debit + 1", "the debit of grant "),
        ("DELETE FROM grant_spending", "the debit of grant "),
        ("UPDATE account SET reserved = 7 WHERE kind = 'wallet' AND balance > 0", "the reserved of account "),
        ("UPDATE reservation SET remaining = amount", "the reserved of account "),
    ],
)
def test_next_payment_halts_on_totals_that_were_changed(
    payres: Instance, refused: Refused, caplog: pytest.LogCaptureFixture, statement: str, found: str
) -> None:
    alice, bob = payres.wallet("alice"), payres.wallet("bob")
    access = {"type": "outgoing-payment", "actions": ["create", "read"], "identifier": alice}
    token = payres.client.grant(access)

    def pay() -> httpx2.Response:
        body = {
            "walletAddress": alice,
            "incomingPayment": payres.client.create_incoming_payment(bob)["id"],
            "debitAmount": {"value": "5", "assetCode": "USD", "assetScale": 2},
        }
        return payres.client.post("/outgoing-payments", body, token)

    for _ in range(SUMMED + 1):
        payres.wait_for(pay().json())
    if "debit + 1" in statement:  # which can only be told while all payments of a grant are summed
        token = payres.client.grant(access)
        payres.wait_for(pay().json())
    edit(payres, statement)
    refused(pay(), 503, "unavailable")
    assert found in caplog.text


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("DELETE FROM account WHERE id = (SELECT account_id FROM wallet_address WHERE path = 'bob')", "does not exist"),
        ("DROP TABLE transfer", "no such table: transfer"),
        (
            "CREATE TRIGGER lose AFTER INSERT ON grant_spending BEGIN DELETE FROM reservation; END",
            "has no reservation",
        ),
    ],
)
def test_payment_that_cannot_be_settled_for_what_is_missing_halts(
    payres: Instance, stranger: httpx2.Client, caplog: pytest.LogCaptureFixture, statement: str, found: str
) -> None:
    alice, bob = payres.wallet("alice"), payres.wallet("bob")
    receiver = payres.client.create_incoming_payment(bob)["id"]
    with closing(sqlite3.connect(payres.context.database.path)) as other:
        other.execute(statement)
        other.commit()
    debit = {"value": "5", "assetCode": "USD", "assetScale": 2}
    payres.client.pay(alice, receiver, debitAmount=debit)
    wait_until_halted(payres)
    assert found in caplog.text
    ready = stranger.get(f"{payres.base_url}/readyz")
    assert (ready.status_code, "an operator must look" in ready.json()["reason"]) == (503, True)


def wait_until_halted(payres: Instance) -> None:
    wait_until(lambda: payres.context.database.halted, "the settlement worker did not find it")


def test_restart_looks_at_the_balances_and_halts_again(tmp_path: Path) -> None:
    with run_instance(tmp_path / "first.db") as first:
        corrupt(first, "alice", "balance = balance + 1")
        copy = tmp_path / "copy.db"
        with closing(sqlite3.connect(first.context.database.path)) as other, closing(sqlite3.connect(copy)) as target:
            other.backup(target)
    app = create_app(Settings(database=str(copy)))

    async def start() -> str | None:
        async with app.router.lifespan_context(app):
            await asyncio.to_thread(wait_until, lambda: app.state.context.database.halted)
            problem: str | None = await app.state.context.readiness.problem()
            return problem

    assert "its books do not balance" in (asyncio.run(start()) or "")
