import os
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from payres.core.protocol.clock import SECOND
from payres.core.store import copies
from payres.core.store.connections import DatabaseServed, connect_writer, server_lock
from payres.core.store.copies import examine
from payres.core.store.migrations import FIRST, UnusableDatabase, is_outdated, version_of
from payres.operator.store.invariants import LEDGER_INVARIANTS
from payres.operator.upkeep.backup_and_restore import BackupError, make_backup, restore_backup, stamp
from payres.operator.wallets import create_wallet, deposit
from payres.people.store.standing_orders import ORDERS, RUNS, RunRecord
from tests.versions import NEWEST, make_newest
from tests.works import standing_order, work_at

NOW = 1_767_225_600 * SECOND  # 2026-01-01T00:00:00Z


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A database whose wallet `alice` has 10.00 USD."""
    path = tmp_path / "payres.db"
    with closing(connect_writer(str(path))) as connection:
        connection.execute("BEGIN")
        work = work_at(connection, NOW)
        create_wallet(work, "alice", "USD", 2, None, None)
        deposit(work, "alice", "10.00")
        connection.execute("COMMIT")
    return path


@pytest.fixture
def backup(database: Path, tmp_path: Path) -> Path:
    return make_backup(database, tmp_path / "backup.db", False, NOW).path


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def balance(path: Path) -> int:
    sql = "SELECT balance FROM account WHERE kind = 'wallet'"
    return examine(path, lambda tx: int(tx.execute(sql).fetchone()[0]))


def deposit_more(database: Path) -> None:
    with closing(connect_writer(str(database))) as connection:
        deposit(work_at(connection, NOW), "alice", "5.00")


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def test_backup_is_one_private_file_with_what_it_is(database: Path, tmp_path: Path) -> None:
    made = make_backup(database, tmp_path / "backup.db", False, NOW)
    assert (made.path, made.version, made.size) == (tmp_path / "backup.db", NEWEST, made.path.stat().st_size)
    assert made.path.stat().st_mode & 0o777 == 0o600
    assert balance(made.path) == 1000
    assert names(tmp_path) == {"payres.db", "backup.db"}


def test_backup_into_a_directory_is_named_by_the_time(database: Path, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    assert make_backup(database, folder, False, NOW).path == folder / "payres-20260101T000000Z.db"
    with pytest.raises(BackupError, match="exists already"):
        make_backup(database, folder, False, NOW)
    assert stamp(NOW + SECOND - 1) == "20260101T000000Z"


def test_backup_replaces_only_when_asked_to(database: Path, backup: Path) -> None:
    before = backup.read_bytes()
    deposit_more(database)
    with pytest.raises(BackupError, match="exists already; choose another name, or replace it with --force"):
        make_backup(database, backup, False, NOW)
    assert backup.read_bytes() == before
    make_backup(database, backup, True, NOW)
    assert balance(backup) == 1500


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal", ".lock"])
def test_backup_never_replaces_what_the_database_is_made_of(database: Path, suffix: str, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(f"{database}{suffix}")
    for target in (Path(f"{database}{suffix}"), link):
        with pytest.raises(BackupError, match="belongs to the database itself"):
            make_backup(database, target, True, NOW)


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path.name)  # because the path of a socket must be short


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    "make", [os.mkfifo, bind, lambda path: path.symlink_to("backup.db"), lambda path: path.symlink_to("nothing")]
)
@pytest.mark.usefixtures("backup")
def test_backup_replaces_nothing_but_a_file(
    database: Path, make: Callable[[Path], object], overwrite: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = database.with_name("target")
    monkeypatch.chdir(database.parent)
    make(target)
    before = target.lstat()
    with pytest.raises(BackupError, match="is not a regular file and is not replaced"):
        make_backup(database, target, overwrite, NOW)
    after = target.lstat()
    assert (after.st_ino, after.st_mode, after.st_mtime_ns) == (before.st_ino, before.st_mode, before.st_mtime_ns)


def test_backup_goes_only_into_a_directory_and_not_beside_a_log_of_another(database: Path, backup: Path) -> None:
    with pytest.raises(BackupError, match=r"There is no directory .*missing"):
        make_backup(database, backup.with_name("missing") / "backup.db", False, NOW)
    Path(f"{backup}-wal").write_bytes(b"")
    with pytest.raises(BackupError, match=r"backup\.db-wal says that .* is in use"):
        make_backup(database, backup, True, NOW)


def test_backup_of_broken_books_is_kept_under_another_name(database: Path, backup: Path, tmp_path: Path) -> None:
    before = backup.read_bytes()
    change(database, "UPDATE account SET balance = balance + 1 WHERE kind = 'wallet'")
    with pytest.raises(BackupError, match=rf"`{LEDGER_INVARIANTS[0].name}` is broken: .*There is no backup"):
        make_backup(database, backup, True, NOW)
    assert backup.read_bytes() == before
    assert balance(tmp_path / "backup.db.broken") == 1001
    assert names(tmp_path) == {"payres.db", "backup.db", "backup.db.broken"}


def test_backup_of_an_older_version_stays_one(tmp_path: Path, second_version: int) -> None:
    make_newest(tmp_path / "payres.db")
    assert make_backup(tmp_path / "payres.db", tmp_path / "backup.db", False, NOW).version == second_version - 1
    assert examine(tmp_path / "backup.db", version_of) == second_version - 1


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [("PRAGMA user_version = 9999", "version 9999, this payres knows"), ("DROP TABLE account", "not a database of")],
)
def test_backup_of_what_this_payres_does_not_know_is_refused(
    database: Path, tmp_path: Path, statement: str, sentence: str
) -> None:
    change(database, "PRAGMA foreign_keys = OFF", statement)
    with pytest.raises(UnusableDatabase, match=sentence):
        make_backup(database, tmp_path / "backup.db", False, NOW)
    assert names(tmp_path) == {"payres.db"}


@pytest.mark.parametrize("is_older", [False, True])
def test_backup_of_an_altered_database_is_kept_under_another_name(
    tmp_path: Path, is_older: bool, request: pytest.FixtureRequest
) -> None:
    path = tmp_path / "payres.db"
    make_newest(path, "DROP INDEX account_of_operator")
    if is_older:
        request.getfixturevalue("second_version")
    with pytest.raises(BackupError, match=r"not sound: the index 'account_of_operator' is missing.*There is no backup"):
        make_backup(path, tmp_path / "backup.db", False, NOW)
    assert names(tmp_path) == {"payres.db", "backup.db.broken"}


def test_restore_puts_the_backup_in_place_and_keeps_what_was_there(
    database: Path, backup: Path, tmp_path: Path
) -> None:
    deposit_more(database)
    before = backup.read_bytes()
    restored = restore_backup(backup, database, NOW)
    kept = tmp_path / "payres.db.replaced-20260101T000000Z"
    assert (restored.version, restored.replaced) == (NEWEST, kept)
    assert (balance(database), balance(kept)) == (1000, 1500)
    assert database.stat().st_mode & 0o777 == 0o600
    assert backup.read_bytes() == before
    assert names(tmp_path) == {"payres.db", "payres.db.lock", "backup.db", kept.name}


def test_restore_pays_no_date_of_a_standing_order_that_the_backup_lacks(database: Path, tmp_path: Path) -> None:
    """What was paid of them after the backup may have left for another server."""
    with closing(connect_writer(str(database))) as connection:
        for name, state, next_at in (("waits", "active", NOW + 1), ("last", "active", None), ("over", "ended", None)):
            ended_at = NOW if state == "ended" else None
            order = standing_order(
                1, "https://b.example/bob", id=name, state=state, next_window=1, next_at=next_at, ended_at=ended_at
            )
            ORDERS.insert(connection, order)
            if state == "active":
                RUNS.insert(connection, RunRecord(name, 0, NOW, "waiting", retry_at=NOW))
    restore_backup(make_backup(database, tmp_path / "backup.db", False, NOW).path, database, NOW + SECOND)
    states = "SELECT id, state, not_before FROM standing_order ORDER BY id"
    found = examine(database, lambda tx: tx.execute(states).fetchall())
    assert found == [("last", "ended", NOW + SECOND), ("over", "ended", 0), ("waits", "active", NOW + SECOND)]
    runs = "SELECT DISTINCT state, problem, retry_at FROM standing_order_run"
    assert examine(database, lambda tx: tx.execute(runs).fetchall()) == [("missed", "restored", None)]


def test_restore_where_there_is_nothing(backup: Path, tmp_path: Path) -> None:
    restored = restore_backup(backup, tmp_path / "new" / "other.db", NOW)
    assert restored.replaced is None
    assert balance(tmp_path / "new" / "other.db") == 1000


def test_restore_follows_a_link_to_the_database(database: Path, backup: Path, tmp_path: Path) -> None:
    deposit_more(database)
    link = tmp_path / "link.db"
    link.symlink_to(database)
    restore_backup(backup, link, NOW)
    assert link.is_symlink()
    assert balance(database) == 1000


def test_restore_of_an_older_version_is_migrated_and_the_source_is_not(
    database: Path, tmp_path: Path, second_version: int
) -> None:
    make_newest(tmp_path / "old.db")
    assert restore_backup(tmp_path / "old.db", database, NOW).version == second_version - 1
    assert not examine(database, is_outdated)
    assert examine(tmp_path / "old.db", version_of) == second_version - 1
    assert not list(tmp_path.glob("*before-version*"))


def sql(*statements: str) -> Callable[[Path], None]:
    return lambda backup: change(
        backup, "PRAGMA foreign_keys = OFF", "PRAGMA ignore_check_constraints = ON", *statements
    )


def damaged(backup: Path) -> None:
    content = bytearray(backup.read_bytes())
    content[-4096:] = b"x" * 4096
    backup.write_bytes(content)


def foreign(*statements: str) -> Callable[[Path], None]:
    """A database of another program."""

    def spoil(backup: Path) -> None:
        backup.unlink()
        change(backup, "CREATE TABLE note (text)", *statements)

    return spoil


MINTING = "CREATE TRIGGER mint AFTER INSERT ON transfer BEGIN UPDATE account SET balance = balance + 1; END"


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (sql(f"PRAGMA user_version = {NEWEST + 1}"), f"has version {NEWEST + 1}, this payres knows"),
        (
            sql("UPDATE account SET balance = balance + 1 WHERE kind = 'wallet'"),
            "is not sound: the invariant `zero_sum` is broken",
        ),
        (sql("PRAGMA user_version = -1"), "has version -1, which no payres writes"),
        (
            sql("UPDATE wallet_address SET state = 'unheard of'"),
            "is not sound: CHECK constraint failed in wallet_address",
        ),
        (sql("DROP TABLE session"), "is not sound: the table 'session' is missing"),
        (sql("DROP INDEX wallet_key_in_force"), "is not sound: the index 'wallet_key_in_force' is missing"),
        (
            sql("ALTER TABLE wallet_address DROP COLUMN public_name"),
            "is not sound: the table 'wallet_address' is not the one that payres made",
        ),
        (sql(MINTING), "is not sound: the trigger 'mint' is not one of payres"),
        (
            sql(f"PRAGMA user_version = {FIRST - 1}"),
            f"has version {FIRST - 1}, and this payres knows versions from {FIRST} on",
        ),
        (sql("DELETE FROM asset"), "is not sound: a row of .* refers to a missing asset"),
        (damaged, "is not sound|malformed"),
        (foreign(), "a database of another program"),
        (foreign(f"PRAGMA user_version = {NEWEST}"), "not a database of payres"),
        (lambda backup: backup.write_bytes(b""), "not a database of payres"),
        (lambda backup: backup.write_bytes(b"garbage" * 1000), "file is not a database"),
    ],
)
def test_restore_of_what_is_no_sound_backup_changes_nothing(
    database: Path, backup: Path, tmp_path: Path, spoil: Callable[[Path], object], sentence: str
) -> None:
    spoil(backup)
    before = database.read_bytes()
    with pytest.raises(BackupError, match=sentence):
        restore_backup(backup, database, NOW)
    assert database.read_bytes() == before
    assert names(tmp_path) <= {"payres.db", "payres.db.lock", "backup.db"}


@pytest.mark.usefixtures("second_version")
def test_restore_of_an_older_version_that_was_altered_changes_nothing(database: Path, tmp_path: Path) -> None:
    before = database.read_bytes()
    make_newest(tmp_path / "old.db", "DROP INDEX account_of_operator")
    with pytest.raises(BackupError, match="is not sound: the index 'account_of_operator' is missing"):
        restore_backup(tmp_path / "old.db", database, NOW)
    assert database.read_bytes() == before


@pytest.mark.parametrize("suffix", ["", "-wal", "-journal", "-shm"])
def test_restore_does_not_overwrite_what_it_kept_before_nor_keep_beside_a_log_of_another(
    database: Path, backup: Path, tmp_path: Path, suffix: str
) -> None:
    left = tmp_path / f"payres.db.replaced-20260101T000000Z{suffix}"
    left.write_bytes(b"left by one that was killed")
    with pytest.raises(BackupError, match=rf"Z{suffix} exists already; try again in a second"):
        restore_backup(backup, database, NOW)
    assert restore_backup(backup, database, NOW + SECOND).replaced is not None


def test_restore_of_a_file_with_its_log_leaves_nothing_beside_it(database: Path, backup: Path, tmp_path: Path) -> None:
    folder = tmp_path / "crashed"
    folder.mkdir()
    with closing(connect_writer(str(database))) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        deposit(work_at(connection, NOW), "alice", "5.00")
        for suffix in ("", "-wal"):
            Path(f"{folder / 'payres.db'}{suffix}").write_bytes(Path(f"{database}{suffix}").read_bytes())
    restore_backup(folder / "payres.db", tmp_path / "new.db", NOW)
    assert balance(tmp_path / "new.db") == 1500
    assert names(folder) == {"payres.db", "payres.db-wal"}


@pytest.mark.parametrize(
    ("name", "answer", "sentence"),
    [
        ("access", lambda path, right: right != os.W_OK, "is read-only for this user; make it writable"),
        ("geteuid", lambda: os.getuid() + 1, "belongs to another user; run this as that user"),
    ],
)
def test_restore_over_a_database_that_is_not_this_users_is_refused(
    database: Path, backup: Path, monkeypatch: pytest.MonkeyPatch, name: str, answer: object, sentence: str
) -> None:
    before = names(database.parent)
    monkeypatch.setattr(os, name, answer)  # root may do everything
    with pytest.raises(BackupError, match=rf"payres\.db {sentence}"):
        restore_backup(backup, database, NOW)
    assert names(database.parent) == before


def test_restored_database_is_private_whatever_the_one_before_was(database: Path, backup: Path, tmp_path: Path) -> None:
    database.chmod(0o644)
    restore_backup(backup, database, NOW)
    files = (database, tmp_path / "payres.db.lock", tmp_path / "payres.db.replaced-20260101T000000Z")
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


def test_restore_is_refused_while_a_server_or_another_program_has_the_database(
    database: Path, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server_lock(str(database)), pytest.raises(DatabaseServed, match="stop that one first"):
        restore_backup(backup, database, NOW)
    monkeypatch.setattr(copies, "LOCK_TIMEOUT_SECONDS", 0.01)
    with closing(connect_writer(str(database))), pytest.raises(BackupError, match="open; stop what uses it"):
        restore_backup(backup, database, NOW)
    assert balance(database) == 1000


def test_restore_replaces_a_database_that_cannot_be_read(database: Path, backup: Path) -> None:
    database.write_bytes(b"scrambled" * 1000)
    replaced = restore_backup(backup, database, NOW).replaced
    assert balance(database) == 1000
    assert replaced is not None
    assert replaced.read_bytes() == b"scrambled" * 1000
