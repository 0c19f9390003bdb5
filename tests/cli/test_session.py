import sqlite3
from pathlib import Path

import click
import pytest

from payres.cli import main
from payres.cli.options import decimal_of
from payres.cli.session import Session
from payres.core.process.settings import Settings
from payres.core.protocol.errors import InvalidAmount
from payres.core.store import connections as store
from payres.core.store.work import Transaction, Work
from tests.cli.conftest import CREATE, AsJson, Command, one_sentence, rows_of


@pytest.mark.parametrize(
    "arguments",
    [
        ("wallet", "list", "--database", "other/shop.db"),
        ("--database", "other/shop.db", "wallet", "list"),
        ("--database", "wrong.db", "wallet", "list", "--database", "other/shop.db"),
    ],
)
def test_database_is_taken_before_and_after_the_subcommand(payres: Command, arguments: tuple[str, ...]) -> None:
    payres(*CREATE, "--database", "other/shop.db")
    result = payres(*arguments)
    assert rows_of(result)[1][:2] == ["alice", "0.00"]


def test_flag_counts_before_environment_before_file(
    payres: Command, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("payres.toml").write_text('database = "file.db"')
    payres(*CREATE)
    assert Path("file.db").exists()
    monkeypatch.setenv("PAYRES_DATABASE", "environment.db")
    payres(*CREATE)
    assert Path("environment.db").exists()
    payres(*CREATE, "--database", "flag.db")
    assert Path("flag.db").exists()
    assert not database.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        CREATE[:-1],
        ("wallet", "list"),
        ("wallet", "deposit", "alice", "1.00"),
        ("key", "generate", "alice", "--out", "key.pem"),
        ("liquidity", "deposit", "EUR", "2", "1.00"),
        ("status",),
        ("ledger", "check"),
        ("backup", "copy.db"),
        ("export", "ledger"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("empty", [False, True])
def test_only_commands_that_should_create_a_database(
    payres: Command, database: Path, arguments: tuple[str, ...], empty: bool
) -> None:
    """A mistyped path, or a command in the wrong directory, must not look like a server without wallets."""
    if empty:
        database.touch()
    sentence = one_sentence(payres(*arguments))
    assert sentence.startswith(f"Error: There is no database at {database} (nothing names one: ")
    assert ". Make one with `payres init`, " in sentence
    assert ("--create" in sentence) == (arguments[:2] == ("wallet", "create"))
    assert [file.name for file in database.parent.iterdir()] == (["payres.db"] if empty else [])
    assert not empty or database.stat().st_size == 0


@pytest.mark.parametrize(
    ("files", "variables", "arguments", "why"),
    [
        ({}, {}, (), "{here}/payres.db (nothing names one: no payres.toml is in {here} or in {here}/etc)"),
        ({"payres.toml": ""}, {}, (), "{here}/payres.db (payres.toml names none, so it is looked for in the working"),
        (
            {"payres.toml": 'database = "a.db"'},
            {},
            (),
            "{here}/a.db (payres.toml names it). Make one with `payres init`, run this in the folder of",
        ),
        (
            {},
            {"PAYRES_DATABASE": "/no/b.db"},
            (),
            "/no/b.db (PAYRES_DATABASE names it). Make one with `payres init`, or",
        ),
        (
            {"payres.toml": "", "etc/payres.toml": 'database = "a.db"'},
            {},
            (),
            "{here}/payres.db (payres.toml names none",
        ),
        ({"etc/payres.toml": 'database = "a.db"'}, {}, (), "{here}/a.db ({here}/etc/payres.toml names it)"),
        (
            {"etc/payres.toml": 'database = "a.db"'},
            {"PAYRES_DATABASE": "b.db"},
            (),
            "{here}/b.db (PAYRES_DATABASE names",
        ),
        ({}, {"PAYRES_DATABASE": "b.db"}, ("--database", "c.db"), "{here}/c.db (--database names it)"),
    ],
)
def test_why_a_database_that_is_not_there_was_looked_for(
    payres: Command,
    etc: Path,
    files: dict[str, str],
    variables: dict[str, str],
    arguments: tuple[str, ...],
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, text in files.items():
        Path(name).write_text(text)
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    sentence = one_sentence(payres("wallet", "list", *arguments))
    assert sentence.startswith(f"Error: There is no database at {why.format(here=etc.parent)}")


def test_commands_in_any_folder_use_the_settings_of_the_service(payres: Command, as_json: AsJson, etc: Path) -> None:
    database = str(etc / "service.db")
    (etc / "payres.toml").write_text(f'database = "{database}"\n')
    assert payres(*CREATE).exit_code == 0
    assert len(as_json("wallet", "list")["wallets"]) == 1
    made = as_json("init")
    assert (made["config"], made["configWritten"], made["databaseCreated"]) == (str(etc / "payres.toml"), False, False)
    assert payres("init", "--database", "own.db").stderr == ""
    assert (Path("payres.toml").exists(), as_json("init")["database"]) == (True, "own.db")


def test_wallet_create_creates_a_database_when_asked_to(payres: Command, database: Path) -> None:
    for path in ("alice", "bob"):
        assert payres("wallet", "create", path, "--asset", "USD", "--scale", "2", "--create").exit_code == 0
    assert len(payres("wallet", "list", "--database", str(database)).stdout.splitlines()) == 3


def test_bad_setting_is_one_sentence(payres: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAYRES_PORT", "many")
    assert "PAYRES_PORT = 'many'" in one_sentence(payres(*CREATE))
    monkeypatch.delenv("PAYRES_PORT")
    monkeypatch.setenv("PAYRES_COLOUR", "blue")
    assert "PAYRES_COLOUR (environment) is not a setting" in one_sentence(payres(*CREATE))


@pytest.mark.parametrize("command", ["grant show", "peer show", "payment list --reason", "backup"])
def test_argument_that_is_not_text_is_one_sentence(payres: Command, command: str) -> None:
    payres("init")
    assert one_sentence(payres(*command.split(), "b\udcff")).endswith("b\\udcff' is not text in UTF-8")


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        (
            "payres.db",
            b"not a database, but long" * 25,
            "The database payres.db cannot be used: file is not a database",
        ),
        ("file/payres.db", b"", "file"),
    ],
)
def test_file_that_cannot_be_the_database_is_one_sentence(
    payres: Command, name: str, content: bytes, sentence: str
) -> None:
    Path(name.partition("/")[0]).write_bytes(content)
    assert one_sentence(payres(*CREATE, "--database", name)).startswith(f"Error: {sentence}")


@pytest.mark.parametrize("command", ["wallet list", "init", "backup copy.db", "restore copy.db", "serve --port 0"])
@pytest.mark.parametrize("directory", [".", "/"])
def test_directory_in_the_place_of_the_database_is_one_sentence(payres: Command, command: str, directory: str) -> None:
    Path("copy.db").touch()
    assert one_sentence(payres(*command.split(), "--database", directory)) == (
        f"Error: database = '{directory}' (flag) is a directory; name the database file in it, such as payres.db"
    )


def test_number_that_is_none_is_one_sentence(payres: Command) -> None:
    payres(*CREATE)
    result = payres("wallet", "create", "bob", "--asset", "USD", "--scale", "two")
    assert one_sentence(result) == "Error: 'two' is not a whole number"


def test_newer_database_is_one_sentence(payres: Command, database: Path) -> None:
    connection = sqlite3.connect(database)
    connection.execute("PRAGMA user_version = 99999")
    connection.close()
    assert "The database has version 99999" in one_sentence(payres("wallet", "list"))


def test_busy_database_is_one_sentence(payres: Command, tx: Transaction, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "BUSY_TIMEOUT_SECONDS", 0.01)
    tx.execute("BEGIN IMMEDIATE")
    assert one_sentence(payres(*CREATE)) == (
        "Error: The database payres.db cannot be used: another program holds it; try again"
    )
    tx.execute("ROLLBACK")


def test_refused_command_changes_nothing(payres: Command, as_json: AsJson) -> None:
    payres(*CREATE)
    one_sentence(payres("wallet", "create", "bob", "--asset", "E R", "--scale", "2"))
    assert [one["path"] for one in as_json("wallet", "list")["wallets"]] == ["alice"]


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("wallet list", "no wallets yet"),
        ("asset list", "no currencies yet"),
        ("rate list", "No rates are set"),
        ("peer list", "There are no peers; `payres peer add`"),
        ("webhook list", "There are no webhooks; `payres webhook add`"),
        ("api-key list", "There are no API keys yet"),
        ("audit list", "Nothing has been changed yet"),
        ("admin list", "Nobody can sign in to the pages yet; `payres admin link` lets the first one in"),
    ],
)
def test_list_of_nothing_says_so(payres: Command, as_json: AsJson, command: str, says: str) -> None:
    payres("init")
    assert says in payres(*command.split()).stdout
    assert [*as_json(*command.split()).values()] == [[]]


@pytest.mark.parametrize(
    "command", ["wallet password alice --password-file -", "key add alice --jwk -", "key add alice --pem - --kid mine"]
)
def test_standard_input_that_is_closed_is_told(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)  # as Python sets it then
    with pytest.raises(click.BadParameter, match="standard input is closed"):
        main(command.split(), standalone_mode=False)


def test_full_disk_is_one_sentence(payres: Command) -> None:
    payres("init")
    session = Session(Settings(), as_json=False)

    def fill(work: Work) -> None:
        (pages,) = work.execute("PRAGMA page_count").fetchone()
        work.execute(f"PRAGMA max_page_count = {pages}")
        work.execute("INSERT INTO secret (name, value) VALUES ('large', zeroblob(1000000))")

    with pytest.raises(
        click.ClickException, match=r"^The database payres.db cannot be used: no space left on the disk$"
    ):
        session.write(fill)


@pytest.mark.parametrize(
    ("variables", "text", "decimal"),
    [
        ({}, "1234.500", "1234.500"),
        ({}, "1.234,50", "1234.50"),
        ({"LANG": "C.UTF-8"}, "25,00", "25.00"),
        ({"LANG": "de_DE.UTF-8"}, "1,234", "1.234"),
        ({"LANG": "en_US.UTF-8", "LC_NUMERIC": "es_ES@euro"}, "1,234", "1.234"),
        ({"LC_ALL": "de_CH", "LC_MONETARY": "de_DE"}, "1.234", "1.234"),
        ({"LC_ALL": "xx'", "LANG": "de_DE"}, "1.234", "1.234"),
    ],
)
def test_amounts_are_read_by_the_locale(
    variables: dict[str, str], text: str, decimal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LC_ALL", "LC_MONETARY", "LC_NUMERIC", "LANG"):
        monkeypatch.setenv(name, variables.get(name, ""))
    assert decimal_of(text) == decimal


def test_amount_that_the_locale_leaves_open_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    with pytest.raises(InvalidAmount, match=r"1\.234 can be read in two ways: write 1234 or 1,234"):
        decimal_of("1.234")
