from pathlib import Path
from typing import Any

from payres.core.store.connections import server_lock
from tests.cli.conftest import CREATE, AsJson, Command, facts_of


def test_status_shows_money_and_files(payres: Command, as_json: AsJson, database: Path) -> None:
    payres(*CREATE)
    payres("wallet", "deposit", "alice", "12.50")
    payres("liquidity", "deposit", "EUR", "2", "1000.00")
    found = as_json("status")
    assert (found["wallets"], found["running"], found["sending"], found["unresolvedPackets"]) == (1, False, 0, 0)
    assert [(one["kind"], one["balance"], one["assetCode"]) for one in found["balances"]] == [
        ("liquidity", "1000.00", "EUR"),
        ("wallet", "12.50", "USD"),
    ]
    assert found["databaseBytes"] == database.stat().st_size
    assert found["lastDay"] == {"incomingPayments": 0, "outgoingPayments": 0, "failed": 0}
    facts = facts_of(payres("status"))
    assert (facts["In wallets"], facts["Liquidity"], facts["Fees"]) == ("USD 12.50", "EUR 1000.00", "none")
    assert facts["Server"].endswith("not running")
    assert facts["Last 24 hours"] == "0 incoming payments; 0 outgoing payments"


def test_status_says_that_a_server_has_the_database(payres: Command, as_json: AsJson, database: Path) -> None:
    payres("init")
    with server_lock(str(database)):
        assert as_json("status")["running"] is True


def test_status_shows_peers_with_what_went_wrong(payres: Command, as_json: AsJson, tx: Any) -> None:
    payres("init")
    peer = ("peer", "add", "bank", "--ilp-address", "test.bank", "--asset", "USD", "--scale", "2")
    tokens = ("--outgoing-token", "a" * 32, "--incoming-token", "b" * 32)
    assert payres(*peer, "--url", "https://bank.example/ilp", *tokens).exit_code == 0
    tx.execute("UPDATE peer SET last_error = 'The peer does not answer', last_error_at = 0")
    assert as_json("status")["peers"] == [
        {"name": "bank", "lastError": "The peer does not answer", "lastErrorAt": "1970-01-01T00:00:00.000Z"}
    ]
    assert "bank (1970-01-01 00:00 UTC: The peer does not answer)" in payres("status").stdout
