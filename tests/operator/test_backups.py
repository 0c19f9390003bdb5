import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from payres.clock import SECOND
from payres.operator.backups import BackupRefused, make_backup, restore_backup, stamp
from payres.operator.wallets import create_wallet, deposit
from payres.store import copies, migrations
from payres.store.connections import connect_writer
from payres.store.copies import examine
from payres.store.ledger_proofs import LEDGER_PROOFS
from payres.store.migrations import UnusableDatabase, execute_script, is_newest, version_of
from payres.store.server_lock import DatabaseServed, server_lock

NOW = 1_767_225_600 * SECOND  # 2026-01-01T00:00:00Z
NEWEST = max(migrations.migrations())


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A database whose wallet `alice` has 10.00 USD."""
    path = tmp_path / "payres.db"
    with closing(connect_writer(str(path))) as connection:
        connection.execute("BEGIN")
        create_wallet(connection, "alice", "USD", 2, None, None, NOW)
        deposit(connection, "alice", "10.00", NOW)
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
    def unit(tx: sqlite3.Connection) -> int:
        return int(tx.execute("SELECT balance FROM account WHERE kind = 'wallet'").fetchone()[0])

    return examine(path, unit)


def deposit_more(database: Path) -> None:
    with closing(connect_writer(str(database))) as connection:
        deposit(connection, "alice", "5.00", NOW)


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def make_old(path: Path) -> None:
    """A database of the first version."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        execute_script(connection, migrations.migrations()[1])
        connection.execute("PRAGMA user_version = 1")


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
    with pytest.raises(BackupRefused, match="exists already"):
        make_backup(database, folder, False, NOW)
    assert stamp(NOW + SECOND - 1) == "20260101T000000Z"


def test_backup_replaces_only_when_told_to(database: Path, backup: Path) -> None:
    before = backup.read_bytes()
    deposit_more(database)
    with pytest.raises(BackupRefused, match="exists already; choose another name, or replace it with --force"):
        make_backup(database, backup, False, NOW)
    assert backup.read_bytes() == before
    make_backup(database, backup, True, NOW)
    assert balance(backup) == 1500


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal", ".lock"])
def test_backup_never_replaces_what_the_database_is_made_of(database: Path, suffix: str, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(f"{database}{suffix}")
    for target in (Path(f"{database}{suffix}"), link):
        with pytest.raises(BackupRefused, match="belongs to the database itself"):
            make_backup(database, target, True, NOW)


def test_backup_does_not_go_where_a_log_would_be_taken_for_its_own(database: Path, backup: Path) -> None:
    Path(f"{backup}-wal").write_bytes(b"")
    with pytest.raises(BackupRefused, match=r"backup\.db-wal says that .* is in use"):
        make_backup(database, backup, True, NOW)


def test_backup_needs_a_directory(database: Path, tmp_path: Path) -> None:
    with pytest.raises(BackupRefused, match=r"There is no directory .*missing"):
        make_backup(database, tmp_path / "missing" / "backup.db", False, NOW)


def test_backup_of_broken_books_is_kept_under_another_name(database: Path, backup: Path, tmp_path: Path) -> None:
    before = backup.read_bytes()
    change(database, "UPDATE account SET balance = balance + 1 WHERE kind = 'wallet'")
    with pytest.raises(BackupRefused, match=rf"`{LEDGER_PROOFS[0].name}` is broken: .*There is no backup"):
        make_backup(database, backup, True, NOW)
    assert backup.read_bytes() == before
    assert balance(tmp_path / "backup.db.broken") == 1001
    assert names(tmp_path) == {"payres.db", "backup.db", "backup.db.broken"}


def test_backup_of_an_older_version_stays_one(tmp_path: Path) -> None:
    make_old(tmp_path / "payres.db")
    assert make_backup(tmp_path / "payres.db", tmp_path / "backup.db", False, NOW).version == 1
    assert examine(tmp_path / "backup.db", version_of) == 1


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


def test_restore_of_an_older_version_is_migrated_and_the_source_is_not(database: Path, tmp_path: Path) -> None:
    make_old(tmp_path / "old.db")
    assert restore_backup(tmp_path / "old.db", database, NOW).version == 1
    assert examine(database, is_newest)
    assert examine(tmp_path / "old.db", version_of) == 1
    assert not list(tmp_path.glob("*before-version*"))


def newer(backup: Path) -> None:
    change(backup, f"PRAGMA user_version = {NEWEST + 1}")


def unbalanced(backup: Path) -> None:
    change(backup, "UPDATE account SET balance = balance + 1 WHERE kind = 'wallet'")


def dangling(backup: Path) -> None:
    change(backup, "PRAGMA foreign_keys = OFF", "DELETE FROM asset")


def damaged(backup: Path) -> None:
    content = bytearray(backup.read_bytes())
    content[-4096:] = b"x" * 4096
    backup.write_bytes(content)


def foreign(backup: Path) -> None:
    backup.unlink()
    change(backup, "CREATE TABLE note (text)")


def foreign_with_a_version(backup: Path) -> None:
    foreign(backup)
    change(backup, f"PRAGMA user_version = {NEWEST}")


def empty(backup: Path) -> None:
    backup.write_bytes(b"")


def garbage(backup: Path) -> None:
    backup.write_bytes(b"garbage" * 1000)


def gone(backup: Path) -> None:
    backup.unlink()


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (newer, f"has version {NEWEST + 1}, this payres knows"),
        (unbalanced, "is not sound: the invariant `zero_sum` is broken"),
        (dangling, "is not sound: a row of .* refers to a missing asset"),
        (damaged, "is not sound|malformed"),
        (foreign, "a database of another program"),
        (foreign_with_a_version, "not a database of payres"),
        (empty, "not a database of payres"),
        (garbage, "file is not a database"),
        (gone, "There is no file"),
    ],
)
def test_restore_of_what_is_no_sound_backup_changes_nothing(
    database: Path, backup: Path, tmp_path: Path, spoil: Callable[[Path], None], sentence: str
) -> None:
    spoil(backup)
    before = database.read_bytes()
    with pytest.raises(BackupRefused, match=sentence):
        restore_backup(backup, database, NOW)
    assert database.read_bytes() == before
    assert names(tmp_path) <= {"payres.db", "payres.db.lock", "backup.db"}


def test_restore_of_the_database_itself_is_refused(database: Path) -> None:
    with pytest.raises(BackupRefused, match="is the database itself"):
        restore_backup(database, database, NOW)


def test_restore_does_not_overwrite_what_it_kept_before(database: Path, backup: Path) -> None:
    restore_backup(backup, database, NOW)
    with pytest.raises(BackupRefused, match="exists already; try again in a second"):
        restore_backup(backup, database, NOW)


def test_restore_is_refused_while_a_server_has_the_database(database: Path, backup: Path) -> None:
    with server_lock(str(database)), pytest.raises(DatabaseServed, match="stop that one first"):
        restore_backup(backup, database, NOW)


def test_restore_is_refused_while_another_program_has_the_database(
    database: Path, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "HOLD_SECONDS", 0.01)
    with closing(connect_writer(str(database))), pytest.raises(BackupRefused, match="open; end what uses it"):
        restore_backup(backup, database, NOW)
    assert balance(database) == 1000


def test_restore_replaces_a_database_that_cannot_be_read(database: Path, backup: Path) -> None:
    database.write_bytes(b"scrambled" * 1000)
    replaced = restore_backup(backup, database, NOW).replaced
    assert balance(database) == 1000
    assert replaced is not None
    assert replaced.read_bytes() == b"scrambled" * 1000
