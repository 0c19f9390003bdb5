import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from payres.grants.passwords import verify_password
from payres.store.connections import connect_writer
from payres.store.wallets import find_wallet

Command = Callable[..., Result]
Json = Callable[..., Any]

CREATE = ("wallet", "create", "alice", "--asset", "USD", "--scale", "2")


def test_create_makes_the_database_and_prints_the_wallet_address(payres: Command, database: Path) -> None:
    result = payres(*CREATE, "--name", "Alice")
    assert (result.exit_code, result.stdout) == (0, "http://127.0.0.1:8080/alice\n")
    assert stat.S_IMODE(database.stat().st_mode) == 0o600


def test_create_prints_one_json_object(as_json: Json) -> None:
    wallet = as_json(*CREATE, "--name", "Ålice")
    assert wallet.pop("createdAt").endswith("Z")
    assert wallet == {
        "walletAddress": "http://127.0.0.1:8080/alice",
        "path": "alice",
        "publicName": "Ålice",
        "assetCode": "USD",
        "assetScale": 2,
        "balance": "0.00",
        "reserved": "0.00",
        "state": "active",
        "canSignIn": False,
    }


def test_create_twice_is_refused_in_one_sentence(payres: Command) -> None:
    payres(*CREATE)
    result = payres(*CREATE)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == "Error: There is a wallet alice already; choose another path\n"


@pytest.mark.parametrize("missing", ["--asset", "--scale"])
def test_create_without_an_asset_is_a_usage_error(payres: Command, missing: str) -> None:
    position = CREATE.index(missing)
    result = payres(*CREATE[:position], *CREATE[position + 2 :])
    assert result.exit_code == 2
    assert missing in result.stderr


def test_wallet_address_follows_the_base_url(payres: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAYRES_BASE_URL", "https://pay.example")
    assert payres(*CREATE).stdout == "https://pay.example/alice\n"
    assert payres("wallet", "create", ".well-known/pay", "--asset", "USD", "--scale", "2").stdout == (
        "https://pay.example/.well-known/pay\n"
    )


def test_deposit_and_withdraw_move_money(payres: Command, as_json: Json) -> None:
    payres(*CREATE)
    assert as_json("wallet", "deposit", "alice", "100.00")["balance"] == "100.00"
    assert as_json("wallet", "withdraw", "alice", "0.01")["balance"] == "99.99"
    assert "99.99 USD" in payres("wallet", "show", "alice").stdout


def test_withdraw_of_too_much_says_what_is_free(payres: Command, as_json: Json) -> None:
    payres(*CREATE)
    payres("wallet", "deposit", "alice", "5")
    result = payres("wallet", "withdraw", "alice", "6")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "Error: The wallet alice has 5.00 USD free, less than 6.00 USD\n"
    assert as_json("wallet", "show", "alice")["balance"] == "5.00"


def test_show_takes_the_whole_wallet_address(payres: Command, as_json: Json) -> None:
    payres(*CREATE)
    assert as_json("wallet", "show", "http://127.0.0.1:8080/alice/")["path"] == "alice"
    result = payres("wallet", "show", "https://other.example/alice")
    assert result.exit_code == 1
    assert "is not a wallet address under http://127.0.0.1:8080" in result.stderr


def test_list_shows_every_wallet(payres: Command, as_json: Json) -> None:
    payres(*CREATE)
    payres("wallet", "create", "bob", "--asset", "JPY", "--scale", "0")
    payres("wallet", "deactivate", "bob")
    assert [(one["path"], one["balance"], one["state"]) for one in as_json("wallet", "list")["wallets"]] == [
        ("alice", "0.00", "active"),
        ("bob", "0", "inactive"),
    ]
    assert payres("wallet", "list").stdout.splitlines() == [
        "http://127.0.0.1:8080/alice  0.00 USD",
        "http://127.0.0.1:8080/bob  0 JPY, inactive",
    ]


def test_list_of_no_wallets_says_so(payres: Command, as_json: Json) -> None:
    payres("init")
    assert as_json("wallet", "list") == {"wallets": []}
    assert "no wallets yet" in payres("wallet", "list").stdout


def test_deactivate_and_activate(payres: Command, as_json: Json) -> None:
    payres(*CREATE)
    assert as_json("wallet", "deactivate", "alice")["state"] == "inactive"
    assert as_json("wallet", "activate", "alice")["state"] == "active"


def test_password_is_asked_for_on_standard_error(payres: Command, database: Path) -> None:
    payres(*CREATE)
    result = payres("wallet", "password", "alice", "--json", input="secret\nsecret\n")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["canSignIn"] is True
    assert "secret" not in result.output
    connection = connect_writer(str(database))
    assert verify_password(find_wallet(connection, "alice"), "secret")
    connection.close()


def test_create_keeps_a_password_that_signs_in(payres: Command, database: Path) -> None:
    payres(*CREATE, "--password", "correct horse")
    connection = connect_writer(str(database))
    assert verify_password(find_wallet(connection, "alice"), "correct horse")
    connection.close()
