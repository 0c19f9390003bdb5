import json
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from payres.accounts.passwords import verify_password
from payres.accounts.store.owners import owner_at
from payres.core.store.connections import connect_writer
from tests.cli.conftest import CREATE, AsJson, Command, rows_of
from tests.helpers import TIMEOUT, free_of_settings


def signs_in(database: Path, password: str) -> bool:
    connection = connect_writer(str(database))
    try:
        return verify_password(owner_at(connection, "alice"), password)
    finally:
        connection.close()


def test_create_makes_the_database_and_prints_the_wallet_address(payres: Command, database: Path) -> None:
    result = payres(*CREATE, "--name", "Alice")
    assert (result.exit_code, result.stdout) == (0, "http://127.0.0.1:8080/alice\n")
    assert stat.S_IMODE(database.stat().st_mode) == 0o600


def test_create_prints_one_json_object(as_json: AsJson) -> None:
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
        "otherWallets": [],
    }


def test_another_wallet_of_an_owner_has_the_same_password(payres: Command, as_json: AsJson, database: Path) -> None:
    payres(*CREATE, "--password", "correct horse")
    another = ("wallet", "create", "household", "--asset", "EUR", "--scale", "2", "--owner")
    refused = payres(*another, "http://127.0.0.1:8080/alice", "--password", "another one")
    assert (refused.exit_code, "leave out --owner, or --password" in refused.stderr) == (2, True)
    assert payres(*another, "nobody").exit_code == 1
    made = as_json(*another, "http://127.0.0.1:8080/alice")
    assert (made["canSignIn"], made["otherWallets"]) == (True, ["alice"])
    assert "Other wallets of its owner  household" in payres("wallet", "show", "alice").stdout


@pytest.mark.parametrize("wrong", [("alice!", "USD", "2"), ("alice", "usd", "2")])
def test_create_that_fails_makes_no_database(payres: Command, database: Path, wrong: tuple[str, str, str]) -> None:
    path, asset, scale = wrong
    assert payres("wallet", "create", path, "--asset", asset, "--scale", scale, "--create").exit_code == 1
    assert not [*Path().iterdir()]
    assert not database.exists()


def test_second_scale_of_a_currency_is_warned_about(payres: Command) -> None:
    assert payres(*CREATE).stderr == payres("fee", "set", "EUR", "9").stderr == ""
    result = payres("wallet", "create", "bob", "--asset", "USD", "--scale", "9")
    assert (result.exit_code, result.stdout) == (0, "http://127.0.0.1:8080/bob\n")
    assert result.stderr.startswith("Warning: USD is in use with scale 2. With scale 9 it is another asset")
    assert "USD is in use with scale 2 and 9." in payres("liquidity", "deposit", "USD", "0", "1").stderr
    assert "USD is in use with scale 0 and 2 and 9." in payres("fee", "set", "USD", "1").stderr
    assert payres("wallet", "create", "carol", "--asset", "USD", "--scale", "9").stderr == ""


def test_wallet_address_follows_the_base_url(payres: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAYRES_BASE_URL", "https://pay.example")
    assert payres(*CREATE).stdout == "https://pay.example/alice\n"
    assert payres("wallet", "create", ".well-known/pay", "--asset", "USD", "--scale", "2").stdout == (
        "https://pay.example/.well-known/pay\n"
    )


def test_show_takes_the_whole_wallet_address(payres: Command, as_json: AsJson) -> None:
    payres(*CREATE)
    assert as_json("wallet", "show", "http://127.0.0.1:8080/alice/")["path"] == "alice"
    result = payres("wallet", "show", "https://other.example/alice")
    assert result.exit_code == 1
    assert "is not a wallet address under http://127.0.0.1:8080" in result.stderr


def test_list_shows_every_wallet(payres: Command, as_json: AsJson) -> None:
    payres(*CREATE)
    payres("wallet", "create", "bob", "--asset", "JPY", "--scale", "0")
    payres("wallet", "deactivate", "bob")
    assert [(one["path"], one["balance"], one["state"]) for one in as_json("wallet", "list")["wallets"]] == [
        ("alice", "0.00", "active"),
        ("bob", "0", "inactive"),
    ]
    assert [row[:-1] for row in rows_of(payres("wallet", "list"))] == [
        ["Wallet", "Balance", "Reserved", "Asset", "State", "Wallet address"],
        ["alice", "0.00", "0.00", "USD", "active", "http://127.0.0.1:8080/alice"],
        ["bob", "0", "0", "JPY", "inactive", "http://127.0.0.1:8080/bob"],
    ]


def test_rename_changes_the_public_name_and_nothing_else(payres: Command, as_json: AsJson) -> None:
    payres(*CREATE, "--name", "Alice")
    before = as_json("wallet", "show", "alice")
    assert as_json("wallet", "rename", "alice", "Ålice") == before | {"publicName": "Ålice"}
    assert as_json("wallet", "rename", "http://127.0.0.1:8080/alice", "") == before | {"publicName": None}
    result = payres("wallet", "rename", "alice", "two\nlines")
    assert (result.exit_code, result.stderr) == (1, "Error: A public name has 1 to 200 printable characters\n")
    assert "There is no wallet bob" in payres("wallet", "rename", "bob", "Bob").stderr
    assert as_json("wallet", "show", "alice")["publicName"] is None


@pytest.mark.parametrize("forget", [False, True])
def test_password_is_asked_for_on_standard_error(
    payres: Command, as_json: AsJson, database: Path, forget: bool
) -> None:
    payres(*CREATE)
    options = ["--forget-browsers"] if forget else []
    result = payres("wallet", "password", "alice", "--json", *options, input="secret words\nsecret words\n")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["canSignIn"] is True
    assert "secret" not in result.output
    assert signs_in(database, "secret words")
    assert as_json("audit", "list")["entries"][0]["details"] == {"forgetBrowsers": forget}


def test_password_cannot_be_asked_for_without_a_terminal(payres: Command, database: Path) -> None:
    payres(*CREATE)
    command = [sys.executable, "-m", "payres", "wallet", "password", "alice"]
    for given in ("secret words\nsecret words\n", ""):
        # A process in a new session has no terminal, not even one besides its standard input.
        found = subprocess.run(
            command,
            env=free_of_settings(),
            input=given,
            start_new_session=True,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        assert (found.returncode, found.stdout) == (1, "")
        assert found.stderr == (
            "Error: There is no terminal to ask for the password on: give it with --password-file FILE, - for stdin\n"
        )
    assert not signs_in(database, "secret words")


@pytest.mark.parametrize("command", [CREATE, ("wallet", "password", "alice")])
@pytest.mark.parametrize(
    ("content", "password"),
    [
        ("correct horse\n", "correct horse"),
        ("correct horse", "correct horse"),
        ("correct horse\r\n", "correct horse"),
        (" correct horse \n", " correct horse "),
        ("un pâté 🔑\n", "un pâté 🔑"),
        ("first line\nsecond line\n", "first line"),
    ],
)
def test_password_comes_from_a_line_of_a_file_or_of_standard_input(
    payres: Command, database: Path, command: tuple[str, ...], content: str, password: str
) -> None:
    if command is not CREATE:
        payres(*CREATE)
    (database.parent / "password").write_bytes(content.encode())
    result = payres(*command, "--password-file", "password", input="never read\n")
    assert (result.exit_code, result.stderr) == (0, "")
    assert signs_in(database, password)
    result = payres("wallet", "password", "alice", "--password-file", "-", "--json", input="another one\n")
    assert (json.loads(result.stdout)["canSignIn"], result.stderr) == (True, "")
    assert signs_in(database, "another one")
    assert not signs_in(database, password)


@pytest.mark.parametrize(
    ("content", "exit_code", "sentence"),
    [
        (None, 2, "'password'"),
        (b"secret!\nsecret words\n", 1, "A password has 8 to 1024 characters"),
        (b"secret\xff\n", 1, "The file with the password is not text in UTF-8"),
    ],
)
def test_password_file_is_refused_in_one_sentence(
    payres: Command, as_json: AsJson, database: Path, content: bytes | None, exit_code: int, sentence: str
) -> None:
    if content is not None:
        (database.parent / "password").write_bytes(content)
    payres("init")
    for command in (CREATE, ("wallet", "password", "alice")):
        result = payres(*command, "--password-file", "password")
        assert (result.exit_code, result.stdout) == (exit_code, "")
        assert sentence in result.stderr.splitlines()[-1]
        assert "secret" not in result.stderr
        assert as_json("wallet", "list") == {"wallets": []} or not as_json("wallet", "show", "alice")["canSignIn"]
        payres(*CREATE)


def test_password_on_the_command_line_has_eight_characters_too(
    payres: Command, as_json: AsJson, database: Path
) -> None:
    payres("init")
    result = payres(*CREATE, "--password", "seven77")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "Error: A password has 8 to 1024 characters of Unicode\n"
    assert as_json("wallet", "list") == {"wallets": []}
    assert payres(*CREATE, "--password", "eight888").exit_code == 0
    assert signs_in(database, "eight888")


def test_create_takes_one_password_only(payres: Command, database: Path) -> None:
    (database.parent / "password").write_text("correct horse\n")
    result = payres(*CREATE, "--password", "battery staple", "--password-file", "password")
    assert result.exit_code == 2
    assert result.stderr.endswith("Error: Give the password once, with --password-file or with --password\n")
    assert not database.exists()


def test_create_says_who_sees_a_password_on_the_command_line(payres: Command) -> None:
    assert "others can see it in ps" in " ".join(payres("wallet", "create", "--help").stdout.split())
    assert "--password TEXT" not in payres("wallet", "password", "--help").stdout


def test_reset_link_says_until_when_it_works_beside_the_url(payres: Command) -> None:
    payres(*CREATE)
    printed = payres("wallet", "reset-link", "alice")
    assert re.fullmatch(r"http://127\.0\.0\.1:8080/\S+\n", printed.stdout)
    assert re.fullmatch(r"It works once, until \d{4}-\d\d-\d\dT[\d:.]+Z\n", printed.stderr)
