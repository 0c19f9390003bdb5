import json

import pytest

from payres.core.store.work import Transaction
from tests.cli.conftest import CREATE, AsJson, Command


@pytest.fixture
def books(payres: Command) -> None:
    payres(*CREATE)
    payres("wallet", "deposit", "alice", "10.00")


@pytest.mark.usefixtures("books")
def test_check_says_what_it_proved(payres: Command, as_json: AsJson) -> None:
    result = payres("ledger", "check")
    assert result.exit_code == 0
    assert "ok      balances: each account's balance is its credits minus its debits (2 accounts)" in result.stdout
    printed = as_json("ledger", "check")
    assert (printed["ok"], printed["broken"]) == (True, None)
    checked_at = as_json("status")["lastCheckAt"]
    assert f"in order at {checked_at[:10]} {checked_at[11:16]} UTC" in payres("status").stdout
    assert all(check["holds"] for check in printed["checks"])


@pytest.mark.usefixtures("books")
def test_check_names_the_first_broken_invariant(payres: Command, tx: Transaction) -> None:
    tx.execute("UPDATE account SET balance = balance + 1 WHERE kind = 'wallet'")
    assert payres("status").stdout.count("not checked yet") == 1
    result = payres("ledger", "check")
    assert result.exit_code == 1
    assert "BROKEN: its invariant `zero_sum` did not hold" in payres("status").stdout
    assert "ledger: the ledger does not add up: its invariant `zero_sum` did not hold" in payres("doctor").stdout
    assert "BROKEN  zero_sum" in result.stdout
    assert result.stderr.startswith(
        "Error: The invariant `zero_sum` is broken: the balances in USD with scale 2 sum to 1"
    )
    result = payres("ledger", "check", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["broken"] == "zero_sum"


@pytest.mark.usefixtures("books")
def test_check_waits_for_nobody_who_writes(payres: Command, tx: Transaction) -> None:
    tx.execute("BEGIN IMMEDIATE")
    assert payres("ledger", "check").exit_code == 0
    tx.execute("ROLLBACK")
