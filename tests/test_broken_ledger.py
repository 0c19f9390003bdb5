"""A ledger changed by another program: a movement or the background check stops all writing, and callers get 503."""

import asyncio
import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx2
import pytest

from payres.application import create_app
from payres.core.process.settings import Settings
from payres.operator.services import operator_of
from payres.operator.upkeep.invariant_checks import BackgroundCheck
from tests.conftest import Refused
from tests.helpers import last_segment, receiver_of, usd, wait_until
from tests.instance import Instance, run_instance


@pytest.fixture
def payres(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Instance]:
    """Without the background check, which would find some of it first; `check` runs it once."""

    async def not_now(_: BackgroundCheck, delay: float) -> None:
        pass

    monkeypatch.setattr(BackgroundCheck, "run", not_now)
    with run_instance(tmp_path / "payres.db") as instance:
        yield instance


def edit(payres: Instance, statement: str, *values: str) -> None:
    """As another program does, which heeds no constraints."""
    with closing(sqlite3.connect(payres.context.database.path)) as other:
        other.execute("PRAGMA ignore_check_constraints = ON")
        assert other.execute(statement, values).rowcount
        other.commit()


def corrupt(payres: Instance, path: str, change: str) -> None:
    account = "(SELECT account_id FROM wallet_address WHERE path = ?)"
    edit(payres, f"UPDATE account SET {change} WHERE id = {account}", path)


def paying(payres: Instance, receiver: str, token: str) -> httpx2.Response:
    body = {"walletAddress": payres.wallet("alice"), "incomingPayment": receiver, "debitAmount": usd(5)}
    return payres.client.post("/outgoing-payments", body, token)


def spending_token(payres: Instance) -> str:
    identifier = payres.wallet("alice")
    return payres.client.grant({"type": "outgoing-payment", "actions": ["create", "read"], "identifier": identifier})


@pytest.mark.parametrize("wallet", ["alice", "bob"])
@pytest.mark.parametrize("change", ["held = balance + 1", "held = -1", "balance = -1, floor = 0"])
def test_next_movement_halts_and_reading_goes_on(
    payres: Instance,
    anonymous: httpx2.Client,
    refused: Refused,
    caplog: pytest.LogCaptureFixture,
    wallet: str,
    change: str,
) -> None:
    receiver, token = receiver_of(payres), spending_token(payres)
    reader = payres.client.grant({"type": "incoming-payment", "actions": ["read"]})
    corrupt(payres, wallet, change)
    refused(paying(payres, receiver, token), 503, "unavailable")
    error = refused(payres.client.request_grant({"type": "quote", "actions": ["read"]}), 503, "unavailable")
    assert (
        error["details"]["hint"]
        == "The server takes no more work: its ledger does not balance, and an operator must look"
    )
    ready = anonymous.get(f"{payres.base_url}/readyz")
    assert (ready.status_code, ready.json()["reason"]) == (503, error["details"]["hint"])
    assert anonymous.get(f"{payres.base_url}/healthz").status_code == 200
    assert anonymous.get(payres.wallet("alice")).status_code == 200
    assert payres.client.get(receiver, token=reader).status_code == 200
    [shout] = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert shout.getMessage().startswith("WRITING HAS STOPPED")
    assert "account " in shout.getMessage()
    assert "held" in shout.getMessage()
    assert token not in shout.getMessage()


def check(payres: Instance) -> None:
    """What the background check does each minute."""
    payres._server.call(BackgroundCheck(payres.context.database).check_recent())


def test_paid_bill_that_was_set_back_is_not_paid_again(
    payres: Instance, refused: Refused, caplog: pytest.LogCaptureFixture
) -> None:
    bill = receiver_of(payres, 500)
    payres.wait_for(payres.client.pay(payres.wallet("alice"), bill))
    before = payres.balance("bob")
    edit(payres, "UPDATE incoming_payment SET received = 0, completed_at = NULL WHERE id = ?", last_segment(bill))
    check(payres)
    refused(payres.client.request_grant({"type": "quote", "actions": ["read"]}), 503, "unavailable")
    assert payres.balance("bob") == before
    assert f"incoming payment {last_segment(bill)} says it received 0, its transfers sum to 500" in caplog.text


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        (
            "UPDATE grant_spending SET debit = 0, receive = 0",
            "misses its payments by a debit of -10 and a receive of -",
        ),
        ("UPDATE grant_spending SET receive = 0", "misses its payments by a debit of 0 and a receive of -"),
        ("UPDATE grant_spending SET debit = debit + 1", "misses its payments by a debit of 1 and a receive of 0"),
        ("DELETE FROM grant_spending", "misses its payments by a debit of -10 and a receive of -"),
        ("UPDATE account SET held = 7 WHERE kind = 'wallet' AND balance > 0", "holds back 7, its open "),
        ("UPDATE account SET balance = balance + 1 WHERE kind = 'wallet'", "in USD with scale 2 sum to 3 minor units"),
        ("UPDATE account SET floor = 1 WHERE kind = 'wallet'", "has a balance of 0 with 0 held, its floor is 1"),
    ],
)
def test_check_halts_on_totals_that_were_changed(
    payres: Instance, refused: Refused, caplog: pytest.LogCaptureFixture, statement: str, found: str
) -> None:
    token = spending_token(payres)
    for _ in range(2):
        payres.wait_for(paying(payres, receiver_of(payres), token).json())
    edit(payres, statement)
    check(payres)
    refused(payres.client.request_grant({"type": "quote", "actions": ["read"]}), 503, "unavailable")
    assert found in caplog.text


def test_restart_looks_at_the_balances_and_halts_again(tmp_path: Path) -> None:
    with run_instance(tmp_path / "first.db") as first:
        corrupt(first, "alice", "balance = balance + 1")
        copy = tmp_path / "copy.db"
        with closing(sqlite3.connect(first.context.database.path)) as other, closing(sqlite3.connect(copy)) as target:
            other.backup(target)
    app = create_app(Settings(database=str(copy)))

    async def start() -> str | None:
        async with app.router.lifespan_context(app):
            await asyncio.to_thread(wait_until, lambda: app.state.context.database.stopped)
            problem: str | None = await operator_of(app.state.context).readiness.problem()
            return problem

    assert "its ledger does not balance" in (asyncio.run(start()) or "")
