import asyncio
import re
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from payres.store import migrations
from payres.store.connections import connect_writer
from payres.store.copies import copied
from payres.store.database import Database
from payres.store.migrations import FIRST, UnusableDatabase, execute_script, first_difference, migrate
from tests.helpers import ROOT, TIMEOUT
from tests.versions import NEWEST, make_newest, make_up, plain

KEPT = "INSERT INTO secret (name, value) VALUES ('kept', x'01')"
OPEN_WHEN_TOLD = """
import sys
from payres.store.connections import connect_writer
print("ready", flush=True)
sys.stdin.readline()
connection = connect_writer(sys.argv[1])
print(connection.execute("PRAGMA user_version").fetchone()[0])
connection.close()
"""


def objects(connection: sqlite3.Connection) -> list[tuple[str, str, str, str]]:
    """Every table and index with its definition, free of comments and of how it is laid out."""
    rows = connection.execute("SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master ORDER BY type, name")
    return [(kind, name, table, laid_out(sql)) for kind, name, table, sql in rows]


def laid_out(sql: str) -> str:
    """One line without comments and quotes; a column that was added later has no line break before what follows it."""
    return re.sub(r"\s*([(),])\s*", r"\1 ", " ".join(re.sub('--.*|"', "", sql).split()))


def version(connection: sqlite3.Connection) -> int:
    number: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return number


@pytest.fixture
def expected() -> list[tuple[str, str, str, str]]:
    with plain(":memory:") as connection:
        connection.executescript((ROOT / "schema.sql").read_text())
        return objects(connection)


def names(path: str) -> set[str]:
    return {file.name for file in Path(path).parent.iterdir()}


def test_versions_count_up_and_all_files_together_give_the_schema(expected: object) -> None:
    steps = migrations.migrations()
    assert list(steps) == list(range(FIRST, NEWEST + 1))
    with plain(":memory:") as connection:
        for number in sorted(steps):
            execute_script(connection, steps[number])
        assert objects(connection) == expected


def test_fresh_database_has_the_newest_version_and_the_schema(path: str, expected: object) -> None:
    with closing(connect_writer(path)) as connection:
        assert version(connection) == NEWEST
        assert objects(connection) == expected
        assert not connection.in_transaction


def test_every_table_is_strict(path: str) -> None:
    with closing(connect_writer(path)) as connection:
        tables = connection.execute(
            "SELECT name, strict FROM pragma_table_list WHERE name NOT LIKE 'sqlite%'"
        ).fetchall()
    assert len(tables) > 10
    assert {name for name, strict in tables if not strict} == set()


def test_database_of_this_version_is_not_written_to(path: str) -> None:
    connect_writer(path).close()
    before = Path(path).read_bytes()
    connect_writer(path).close()
    assert Path(path).read_bytes() == before


def test_only_the_missing_steps_are_run_and_the_rows_stay(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_newest(path, KEPT)
    steps = (
        "alter table secret add column note text;",
        "-- a comment; with a semicolon\nupdate secret set note = 'one; two';\n",
    )
    assert make_up(monkeypatch, tmp_path / "migrations", *steps) == NEWEST + 2
    with closing(connect_writer(path)) as connection:
        assert version(connection) == NEWEST + 2
        assert connection.execute("SELECT * FROM secret").fetchall() == [("kept", b"\x01", "one; two")]
        assert first_difference(connection) is None


@pytest.mark.parametrize("number", [1, FIRST - 1])
def test_database_from_before_the_first_version_is_refused_and_untouched(path: str, number: int) -> None:
    make_newest(path, f"PRAGMA user_version = {number}")
    before = Path(path).read_bytes()
    with pytest.raises(
        UnusableDatabase,
        match=f"has version {number}, and this payres knows versions from {FIRST} on: open it once with the last",
    ):
        connect_writer(path)
    assert Path(path).read_bytes() == before
    assert names(path) == {"payres.db"}


def test_new_database_is_not_copied(path: str, second_version: int) -> None:
    with closing(connect_writer(path)) as connection:
        assert version(connection) == second_version
        assert first_difference(connection) is None
    assert names(path) == {"payres.db"}


def test_older_database_is_copied_before_it_is_migrated(path: str, second_version: int) -> None:
    make_newest(path, "PRAGMA journal_mode = WAL", KEPT)
    with plain(path) as unclosed:  # so that the newest commit is in the log alone
        unclosed.execute("INSERT INTO secret (name, value) VALUES ('newest', x'02')")
        connect_writer(path).close()
    kept = Path(f"{path}.before-version-{second_version}")
    assert kept.stat().st_mode & 0o777 == 0o600
    assert kept.read_bytes()[18:20] == b"\x01\x01", "one file, which needs no log"
    with plain(kept) as connection:
        assert version(connection) == NEWEST
        assert connection.execute("SELECT * FROM secret ORDER BY name").fetchall() == [
            ("kept", b"\x01"),
            ("newest", b"\x02"),
        ]
    assert names(path) == {"payres.db", "payres.db.lock", kept.name}


def test_copies_that_were_killed_half_made_are_removed_and_no_others(tmp_path: Path, second_version: int) -> None:
    path = str(tmp_path / "[a-z]*.db")
    make_newest(path)
    for number in (NEWEST, second_version):  # of this upgrade, and of the one before
        with copied(Path(path), beside=Path(f"{path}.before-version-{number}")) as partial:
            pass
        partial.touch()
        Path(f"{partial}-journal").touch()
    others = {
        f"b-z.db.before-version-{NEWEST}.abcdefgh.partial",
        f"[a-z]*.db.before-version-{NEWEST}",
        "[a-z]*.db.abcdefgh.partial",  # of a restore
    }
    for name in others:
        (tmp_path / name).touch()
    connect_writer(path).close()
    assert names(path) == others | {
        f"[a-z]*.db{suffix}" for suffix in ("", ".lock", f".before-version-{second_version}")
    }


def test_failed_migration_names_the_copy_and_makes_no_more_of_them(
    path: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_newest(path, "PRAGMA journal_mode = WAL", KEPT)
    before = Path(path).read_bytes()
    folder = tmp_path_factory.mktemp("versions") / "migrations"
    newest = make_up(monkeypatch, folder, "create table extra (x integer) strict; \ndelete from secret;", "nonsense;")
    for _ in range(2):  # as by a service manager that starts the server again and again
        with pytest.raises(sqlite3.OperationalError) as failure:
            connect_writer(path)
    kept = f"{path}.before-version-{newest}"
    sentence = f"the migration to version {newest} failed and nothing was changed; {kept} is a copy: "
    assert str(failure.value).startswith(sentence)
    assert "nonsense" in str(failure.value)
    assert Path(path).read_bytes() == before
    assert names(path) == {"payres.db", "payres.db.lock", Path(kept).name}
    monkeypatch.undo()
    with closing(connect_writer(path)) as connection:
        assert version(connection) == NEWEST
        assert connection.execute("SELECT * FROM secret").fetchall() == [("kept", b"\x01")]


@pytest.mark.parametrize(
    ("statements", "sentence"),
    [
        (
            ("PRAGMA foreign_keys = OFF", "INSERT INTO account (asset_id, kind) VALUES (77, 'wallet')"),
            "The database is damaged and was not migrated: a row of account refers to a missing asset. Restore a",
        ),
        (
            ("PRAGMA ignore_check_constraints = ON", "INSERT INTO asset (code, scale) VALUES ('USD', -1)"),
            "The database is damaged and was not migrated: CHECK constraint failed in asset. Restore a",
        ),
        (
            ("CREATE TABLE extra (x)",),
            "The database is not as payres made it: the table 'extra' is not one of payres. Undo that, or restore a",
        ),
    ],
)
@pytest.mark.usefixtures("second_version")
def test_damaged_or_altered_database_is_not_migrated(path: str, statements: tuple[str, ...], sentence: str) -> None:
    make_newest(path, "PRAGMA journal_mode = WAL", *statements)
    before = Path(path).read_bytes()
    with pytest.raises(UnusableDatabase, match=f"^{sentence} backup"):
        connect_writer(path)
    assert Path(path).read_bytes() == before
    assert names(path) == {"payres.db", "payres.db.lock"}


def test_copy_of_a_database_is_migrated_where_it_is(path: str, second_version: int) -> None:
    make_newest(path)
    migrations.migrate_copy(Path(path))
    with plain(path) as connection:
        assert version(connection) == second_version
    assert names(path) == {"payres.db"}


ALTERATIONS = [
    ("DROP TABLE session", "the table 'session' is missing"),
    ("DROP INDEX wallet_key_in_force", "the index 'wallet_key_in_force' is missing"),
    (
        "ALTER TABLE wallet_address DROP COLUMN public_name",
        "the table 'wallet_address' is not the one that payres made",
    ),
    ("ALTER TABLE secret ADD COLUMN more text", "the table 'secret' is not the one that payres made"),
    ("CREATE TABLE extra (x)", "the table 'extra' is not one of payres"),
    ("CREATE UNIQUE INDEX one ON account (asset_id)", "the index 'one' is not one of payres"),
    (
        "CREATE TRIGGER mint AFTER INSERT ON transfer BEGIN UPDATE account SET balance = balance + 1; END",
        "the trigger 'mint' is not one of payres",
    ),
    (
        "CREATE TRIGGER _litestream_seq AFTER INSERT ON secret BEGIN DELETE FROM secret; END",
        "trigger '_litestream_seq'",
    ),
    ("CREATE VIEW sessions AS SELECT * FROM session", "the view 'sessions' is not one of payres"),
]
NO_ALTERATIONS = [
    "CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER)",
    "CREATE TABLE _litestream_lock (id INTEGER)",
    "ANALYZE",
]


@pytest.mark.parametrize(("statement", "sentence"), ALTERATIONS)
async def test_altered_database_is_not_served_and_the_alteration_is_named(
    path: str, statement: str, sentence: str
) -> None:
    make_newest(path, *NO_ALTERATIONS)
    with plain(path) as connection:
        assert first_difference(connection) is None
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute(statement)
        assert sentence in str(first_difference(connection))
    with pytest.raises(UnusableDatabase, match=f"not as payres made it: .*{sentence}.* restore a backup"):
        await Database.open(path)


@pytest.mark.parametrize("number", [-1, -(2**31)])
def test_version_below_zero_is_refused(path: str, number: int) -> None:
    make_newest(path, f"PRAGMA user_version = {number}")
    with pytest.raises(UnusableDatabase, match=f"has version {number}, which no payres writes"):
        connect_writer(path)


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_newer_database_is_refused_and_untouched(path: str, mode: str) -> None:
    with plain(path) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}").fetchone()
        connection.execute("CREATE TABLE of_the_future (x)")
        connection.execute(f"PRAGMA user_version = {NEWEST + 7}")
        with pytest.raises(UnusableDatabase, match=f"has version {NEWEST + 7}"):
            migrate(connection)
        assert not connection.in_transaction
    before = Path(path).read_bytes()
    sentence = f"has version {NEWEST + 7}, this payres knows versions up to {NEWEST}: install the payres that wrote it"
    with pytest.raises(UnusableDatabase, match=sentence):
        connect_writer(path)
    with pytest.raises(UnusableDatabase, match=sentence):
        asyncio.run(Database.open(path))
    assert Path(path).read_bytes() == before
    assert names(path) == {"payres.db"}


def test_failing_schema_leaves_an_empty_file_that_can_be_opened_later(
    path: str, monkeypatch: pytest.MonkeyPatch, expected: object
) -> None:
    monkeypatch.setattr(migrations, "schema", lambda: "create table secret (x integer) strict;\nnonsense;")
    with pytest.raises(sqlite3.OperationalError, match="nonsense"):
        connect_writer(path)
    with plain(path) as connection:
        assert (version(connection), objects(connection)) == (0, [])
    monkeypatch.undo()
    with closing(connect_writer(path)) as connection:
        assert (version(connection), objects(connection)) == (NEWEST, expected)


def test_programs_that_open_a_fresh_file_at_once_all_succeed(path: str, expected: object) -> None:
    command = [sys.executable, "-c", OPEN_WHEN_TOLD, path]
    programs = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for program in programs:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
    for program in programs:
        assert program.stdin is not None
        program.stdin.write("go\n")
        program.stdin.flush()
    ends = [program.communicate(timeout=TIMEOUT) for program in programs]
    assert ends == [(f"{NEWEST}\n", "")] * 2
    with closing(connect_writer(path)) as connection:
        assert objects(connection) == expected


def test_connections_that_open_a_fresh_file_at_once_all_succeed(tmp_path: Path) -> None:
    """Often enough to meet the moments in which SQLite answers that the file is locked."""
    rounds, together = 15, 4
    barrier = threading.Barrier(together)
    found: list[int] = []

    def open_each() -> None:
        for turn in range(rounds):
            barrier.wait(timeout=TIMEOUT)
            with closing(connect_writer(str(tmp_path / f"{turn}.db"))) as connection:
                found.append(version(connection))

    threads = [threading.Thread(target=open_each) for _ in range(together)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [NEWEST] * rounds * together


@pytest.mark.parametrize(
    ("script", "tables"),
    [
        ("create table a (x integer);", {"a"}),
        ("create table a (x integer)", {"a"}),
        (
            "create table a (x integer); -- with a remark\ncreate table b (x text default ';\n');\n-- the end",
            {"a", "b"},
        ),
        ("create table a (x integer);\ncreate trigger t after insert on a begin\n  delete from a;\nend;\n", {"a"}),
        ("-- nothing; at all\n\n", set()),
        ("", set()),
    ],
)
def test_script_runs_statement_by_statement_inside_the_transaction(script: str, tables: set[str]) -> None:
    with plain(":memory:") as connection:
        connection.execute("BEGIN")
        execute_script(connection, script)
        assert connection.in_transaction
        assert {name for kind, name, *_ in objects(connection) if kind == "table"} == tables
        connection.execute("ROLLBACK")
        assert objects(connection) == []


@pytest.mark.parametrize("script", ["create table a (x integer);\ncreate table b (", "nonsense", "select 'open;\n"])
def test_script_that_breaks_off_is_refused(script: str) -> None:
    with plain(":memory:") as connection:
        connection.execute("BEGIN")
        with pytest.raises(sqlite3.OperationalError):
            execute_script(connection, script)


def test_another_programs_file_is_refused_and_untouched(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    with closing(sqlite3.connect(path)) as theirs:
        theirs.execute("CREATE TABLE note (text)")
    before = path.read_bytes()
    with pytest.raises(UnusableDatabase, match="another program"):
        connect_writer(str(path))
    assert path.read_bytes() == before
