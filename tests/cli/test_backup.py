import json
import os
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from payres.core.store.connections import server_lock
from tests.cli.conftest import CREATE, AsJson, Command, one_sentence, rows_of
from tests.versions import NEWEST, make_newest


@pytest.fixture(autouse=True)
def books(payres: Command) -> None:
    payres(*CREATE)
    payres("wallet", "deposit", "alice", "10.00")


def test_backup_and_restore_say_what_they_did(payres: Command) -> None:
    result = payres("backup", "backup.db")
    assert result.exit_code == 0
    assert "in order at 2" in payres("status").stdout, "a backup is checked like the ledger"
    assert result.stdout.startswith("backup.db: a verified copy of payres.db, 0.")
    payres("wallet", "deposit", "alice", "5.00")
    result = payres("restore", "backup.db")
    assert result.exit_code == 0
    first, second, lost, third = result.stdout.splitlines()
    assert lost.startswith("LOST, transfers of money since the backup was made: 1. ")
    export = payres(*shlex.split(lost.split("`")[1])[1:])
    assert len(export.stdout.splitlines()) == 2, "the heading and the deposit"
    assert first == "payres.db: restored from backup.db and verified; everybody is signed out"
    kept, _, meaning = second.partition(": ")
    assert meaning.startswith(
        f"the old database; `payres audit list --database {kept}` has what is not compared: changes"
    )
    assert payres("audit", "list", "--database", kept).exit_code == 0
    assert third == f"By comparison with {kept}, nothing was ended or set up since the backup was made"
    assert rows_of(payres("wallet", "list"))[1][:2] == ["alice", "10.00"]
    assert rows_of(payres("wallet", "list", "--database", kept))[1][:2] == ["alice", "15.00"]


def test_json_has_the_files(as_json: AsJson) -> None:
    size = as_json("backup", "backup.db").pop("bytes")
    assert size == Path("backup.db").stat().st_size
    shown = as_json("backup", "backup.db", "--force")
    assert shown == {"database": "payres.db", "backup": "backup.db", "version": NEWEST, "bytes": size}
    shown = as_json("restore", "backup.db", "--database", "other.db")
    same = {"database": "other.db", "source": "backup.db", "version": NEWEST, "replaced": None}
    nothing = {"ended": [], "carriedOver": False, "lostTransfers": 0, "lostWallets": []}
    assert shown == same | {"compared": False} | nothing


def test_restore_names_the_wallets_that_the_backup_lacks(payres: Command, as_json: AsJson) -> None:
    payres("backup", "backup.db")
    for path in ("bob", "carol"):
        payres(*(path if part == "alice" else part for part in CREATE))
    line = payres("restore", "backup.db").stdout.splitlines()[2]
    assert line == "LOST, wallets that were opened since: bob, carol"
    assert as_json("restore", "backup.db")["lostWallets"] == []


def test_folder_keeps_a_number_of_backups_however_the_clock_was_set(payres: Command) -> None:
    Path("kept").mkdir()
    for name in ("payres-20010101T000000Z.db", "payres-20010102T000000Z.db", "payres-29990101T000000Z.db", "payres.db"):
        Path("kept", name).touch()
    assert payres("backup", "--keep", "2", "kept").exit_code == 0
    first, second, third = sorted(one.name for one in Path("kept").iterdir())
    assert (first, second > first, third) == ("payres-20010102T000000Z.db", True, "payres.db")
    assert "--keep is for a directory" in payres("backup", "--keep", "2", "kept/other.db").stderr


def test_restore_lists_what_was_ended_and_says_how_to_end_it_again(payres: Command, as_json: AsJson) -> None:
    made = as_json("api-key", "create", "reader", "--scope", "wallets:read")
    payres("backup", "backup.db")
    payres("api-key", "revoke", made["id"])
    lines = payres("restore", "backup.db").stdout.splitlines()
    replaced = lines[1].partition(": ")[0]
    again = f"payres restore backup.db --compare {replaced} --carry-over"
    assert lines[2:] == [
        "VALID AGAIN, though ended since the backup was made, or GONE, though set up since:",
        "  API keys: 1",
        f"    {made['id']}  reader",
        f"To take this over before you start: {again}",
    ]
    assert [key["state"] for key in as_json("api-key", "list")["apiKeys"]] == ["valid"]
    first = f"{replaced[:-16]}20010101T000000Z"
    os.rename(replaced, first)  # a name would be used again in the same second
    error = one_sentence(payres("restore", "backup.db", "--carry-over"))
    assert error.startswith(
        "Error: payres.db was itself restored since the backup was made, and does not know what was"
    )
    assert error.endswith(f"the first since the backup: {first}. Nothing was replaced")
    result = payres("restore", "backup.db")
    replaced = result.stdout.splitlines()[1].partition(": ")[0]
    assert result.stderr.startswith(f"Warning: {replaced} was itself restored since the backup was made, and does not")
    assert result.stderr.endswith(f"the first since the backup: {first}\n")
    os.remove(replaced)
    os.rename(first, "kept.db")
    lines = payres("restore", "backup.db", "--compare", "kept.db", "--carry-over").stdout.splitlines()
    assert lines[2] == "Ended or set up since the backup was made, by comparison with kept.db, and taken over:"
    assert [key["state"] for key in as_json("api-key", "list")["apiKeys"]] == ["revoked"]
    assert as_json("restore", "backup.db", "--compare", "kept.db", "--database", "new.db")["ended"] == [
        {"kind": "apiKey", "name": made["id"], "about": "reader"}
    ]


def test_restore_without_another_database_says_what_is_not_known(payres: Command) -> None:
    payres("backup", "backup.db")
    result = payres("restore", "backup.db", "--database", "new.db")
    assert result.exit_code == 0
    assert result.stderr.startswith("Warning: There is no other database to compare the backup with: grants, tokens")
    error = one_sentence(payres("restore", "backup.db", "--database", "newer.db", "--carry-over"))
    assert error.endswith("so nothing can be carried over. Nothing was replaced")
    assert not Path("newer.db").exists()


@pytest.mark.usefixtures("second_version")
def test_backup_before_an_upgrade_beside_the_older_server(payres: Command) -> None:
    make_newest("old.db")
    with server_lock("old.db"):
        result = payres("backup", "backup.db", "--database", "old.db")
    assert result.exit_code == 0
    assert result.stdout.startswith("backup.db: a verified copy of old.db, 0.")
    assert result.stderr.startswith("Warning: The audit log does not have this backup: ")


def test_refusals_are_one_sentence(payres: Command) -> None:
    payres("backup", "backup.db")
    assert one_sentence(payres("backup", "backup.db")).startswith("Error: backup.db exists already")
    assert one_sentence(payres("backup", "x.db", "--database", "none.db")).startswith(
        f"Error: There is no database at {Path.cwd()}/none.db"
    )
    assert one_sentence(payres("restore", "none.db")) == "Error: There is no file none.db"
    assert one_sentence(payres("restore", "payres.db")) == "Error: payres.db is the database itself"
    Path("backups").mkdir()
    path = Path(json.loads(payres("backup", "backups", "--json").stdout)["backup"])
    assert [*Path("backups").iterdir()] == [path]
    for name in ("backups", "backups/"):
        assert one_sentence(payres("restore", name)) == "Error: backups is a directory; name one of the backups in it"
    assert one_sentence(payres("backup", "missing/")) == "Error: There is no directory missing/; make it first"
    assert not Path("missing").exists()
    assert payres("backup").exit_code == payres("restore").exit_code == 2
    Path("payres.db").write_text("not a database, but long enough to be taken for one" * 10)
    assert one_sentence(payres("backup", "x.db")) == "Error: payres.db cannot be copied: file is not a database"


def test_refusals_of_what_is_no_database_of_payres_are_one_sentence(payres: Command) -> None:
    payres("backup", "backup.db")
    with closing(sqlite3.connect("payres.db")) as connection:
        connection.execute("PRAGMA user_version = -1")
    for command in (("wallet", "list"), ("serve", "--port", "0"), ("backup", "x.db"), ("ledger", "check")):
        assert one_sentence(payres(*command)).startswith("Error: The database has version -1, which no payres writes")
    restored = payres("restore", "backup.db")
    assert (restored.exit_code, restored.stdout.endswith(": the old database\n")) == (0, True), "no command reads it"
    os.link("payres.db", "other.db")
    for command in (("wallet", "list"), ("serve", "--port", "0"), ("backup", "x.db"), ("restore", "backup.db")):
        assert "payres.db has 2 names, which are hard links" in one_sentence(payres(*command))
