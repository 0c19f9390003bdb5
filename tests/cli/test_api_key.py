import getpass
from collections.abc import Callable
from typing import Any

import pytest

from payres.operator.api_keys import authenticate
from payres.store.work import Work
from tests.cli.conftest import Command


@pytest.fixture(autouse=True)
def initialized(payres: Command) -> None:
    payres("init")


def test_create_prints_a_key_that_is_good(payres: Command, tx: Work) -> None:
    made = payres("api-key", "create", "Order book", "--scope", "payments:read", "--scope", "wallets:read")
    assert authenticate(tx, made.stdout.strip()).scopes == ["wallets:read", "payments:read"]
    assert made.stdout.strip() not in payres("api-key", "list", "--json").stdout


def test_list_shows_state_scopes_and_use(payres: Command, as_json: Callable[..., Any]) -> None:
    assert "There are no API keys yet" in payres("api-key", "list").stdout
    made = as_json("api-key", "create", "Mine", "--scope", "audit:read", "--expires", "2100-01-01T00:00:00Z")
    line = payres("api-key", "list").stdout
    assert line == f"{made['id']}  valid, until 2100-01-01T00:00:00.000Z  Mine: audit:read; never used\n"
    assert as_json("api-key", "revoke", made["id"])["state"] == "revoked"
    assert f"{made['id']}  revoked" in payres("api-key", "list").stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("create", "Mine"), "--scope"),
        (("create", "Mine", "--scope", "everything"), "everything"),
        (("create", "Mine", "--scope", "audit:read", "--expires", "2020-01-01T00:00:00Z"), "future"),
        (("revoke", "nothing"), "There is no API key nothing"),
    ],
)
def test_what_cannot_be_is_refused(payres: Command, arguments: tuple[str, ...], says: str) -> None:
    result = payres("api-key", *arguments)
    assert result.exit_code
    assert says in result.stderr


def test_audit_list_says_who_did_what(
    payres: Command, as_json: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "Nothing has been changed yet" in payres("audit", "list").stdout
    monkeypatch.delenv("SUDO_USER", raising=False)
    payres("wallet", "create", "alice", "--asset", "USD", "--scale", "2")
    monkeypatch.setenv("SUDO_USER", "carla")
    payres("wallet", "deposit", "alice", "10.00", "--reference", "bank-1")
    newest, oldest = as_json("audit", "list")["entries"]
    assert (newest["actor"], newest["action"], newest["object"]) == ("shell:carla", "wallet.deposit", "alice")
    assert newest["details"] == {"amount": "10.00 USD", "reference": "bank-1"}
    assert (oldest["actor"], oldest["action"]) == (f"shell:{getpass.getuser()}", "wallet.create")
    line = payres("audit", "list", "--limit", "1").stdout
    assert line.endswith("  shell:carla  wallet.deposit  alice: amount 10.00 USD, reference bank-1\n")


def test_movements_are_listed_with_their_references(payres: Command, as_json: Callable[..., Any]) -> None:
    payres("wallet", "create", "alice", "--asset", "USD", "--scale", "2")
    assert "Nothing was deposited" in payres("wallet", "movements", "alice").stdout
    for _ in range(2):
        payres("wallet", "deposit", "alice", "10.00", "--reference", "bank-1")
    payres("wallet", "withdraw", "alice", "3.00")
    assert as_json("wallet", "show", "alice")["balance"] == "7.00"
    lines = payres("wallet", "movements", "alice").stdout.splitlines()
    assert [line.partition("  ")[2] for line in lines] == ["withdrawal  3.00 USD", "deposit     10.00 USD, bank-1"]
    refused = payres("wallet", "deposit", "alice", "11.00", "--reference", "bank-1")
    assert "is that of a deposit of 10.00 USD" in refused.stderr
    assert len(as_json("wallet", "movements", "alice", "--limit", "1")["movements"]) == 1
