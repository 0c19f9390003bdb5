import hashlib
import re
import sqlite3
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from payres.payments.idempotency import KeyedRequest, find_response
from payres.store import incoming, migrations
from payres.store.connections import connect_writer
from payres.store.copies import copied
from payres.store.database import Database
from payres.store.migrations import UnusableDatabase, execute_script, first_difference, migrate
from payres.store.movements import page_of_movements
from payres.store.pages import PageQuery
from tests.helpers import TIMEOUT
from tests.works import work_at

SCHEMA_FILE = Path(__file__).parents[2] / "schema.sql"
NEWEST = max(migrations.migrations())
OPEN_WHEN_TOLD = """
import sys
from payres.store.connections import connect_writer
print("ready", flush=True)
sys.stdin.readline()
connection = connect_writer(sys.argv[1])
print(connection.execute("PRAGMA user_version").fetchone()[0])
connection.close()
"""


@contextmanager
def plain(path: str) -> Iterator[sqlite3.Connection]:
    """A connection that payres did not prepare, without transactions of its own accord."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


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


def at_version(connection: sqlite3.Connection, number: int) -> None:
    """Makes an empty database into one that the payres of that version wrote."""
    for step in range(1, number + 1):
        execute_script(connection, migrations.migrations()[step])
    connection.execute(f"PRAGMA user_version = {number}")


@pytest.fixture
def expected() -> list[tuple[str, str, str, str]]:
    with plain(":memory:") as connection:
        connection.executescript(SCHEMA_FILE.read_text())
        return objects(connection)


def test_versions_count_up_from_one() -> None:
    assert sorted(migrations.migrations()) == list(range(1, NEWEST + 1))


def test_schema_is_the_file_at_the_top_of_the_tree() -> None:
    assert migrations.schema() == SCHEMA_FILE.read_text()


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


@pytest.mark.parametrize("start", range(1, NEWEST + 1))
def test_every_old_version_migrates_to_the_schema(path: str, start: int, expected: object) -> None:
    """And none differs from itself before or after that, whatever other programs have added."""
    with plain(path) as connection:
        at_version(connection, start)
        assert first_difference(connection) is None
    with closing(connect_writer(path)) as connection:
        assert version(connection) == NEWEST
        assert objects(connection) == expected
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        connection.execute("CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER)")
        connection.execute("CREATE TABLE _litestream_lock (id INTEGER)")
        connection.execute("ANALYZE")
        assert first_difference(connection) is None


def test_database_of_this_version_is_not_written_to(path: str) -> None:
    connect_writer(path).close()
    before = Path(path).read_bytes()
    connect_writer(path).close()
    assert Path(path).read_bytes() == before


def test_only_the_missing_steps_are_run_and_the_rows_stay(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(connect_writer(path)) as connection:
        connection.execute("INSERT INTO secret (name, value) VALUES ('kept', x'01')")
    steps = migrations.migrations() | {
        NEWEST + 1: "alter table secret add column note text;",
        NEWEST + 2: "-- a comment; with a semicolon\nupdate secret set note = 'one; two';\n",
    }
    monkeypatch.setattr(migrations, "migrations", lambda: steps)
    with closing(connect_writer(path)) as connection:
        assert version(connection) == NEWEST + 2
        assert connection.execute("SELECT * FROM secret").fetchall() == [("kept", b"\x01", "one; two")]


@pytest.fixture
def one_more(monkeypatch: pytest.MonkeyPatch) -> int:
    """As if this program knew one more version; its number."""
    steps = migrations.migrations() | {NEWEST + 1: "alter table secret add column note text;"}
    monkeypatch.setattr(migrations, "migrations", lambda: steps)
    return NEWEST + 1


def with_a_secret(path: str) -> None:
    with closing(connect_writer(path)) as connection:
        connection.execute("INSERT INTO secret (name, value) VALUES ('kept', x'01')")


def names(path: str) -> set[str]:
    return {file.name for file in Path(path).parent.iterdir()}


@pytest.mark.usefixtures("one_more")
def test_new_database_is_not_copied(path: str) -> None:
    connect_writer(path).close()
    assert names(path) == {"payres.db"}


def test_older_database_is_copied_before_it_is_migrated(path: str, request: pytest.FixtureRequest) -> None:
    with_a_secret(path)
    with closing(connect_writer(path)) as unclosed:  # so that the newest commit is in the log alone
        unclosed.execute("INSERT INTO secret (name, value) VALUES ('newest', x'02')")
        newest = request.getfixturevalue("one_more")
        connect_writer(path).close()
    kept = Path(f"{path}.before-version-{newest}")
    assert kept.stat().st_mode & 0o777 == 0o600
    assert kept.read_bytes()[18:20] == b"\x01\x01", "one file, which needs no log"
    with plain(str(kept)) as connection:
        assert version(connection) == NEWEST
        assert connection.execute("SELECT * FROM secret ORDER BY name").fetchall() == [
            ("kept", b"\x01"),
            ("newest", b"\x02"),
        ]
    assert names(path) == {"payres.db", "payres.db.lock", kept.name}


def test_copies_that_were_killed_half_made_are_removed_and_no_others(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = str(tmp_path / "[a-z]*.db")
    with_a_secret(path)
    for version in (NEWEST, NEWEST + 1):  # of this upgrade, and of the one before
        with copied(Path(path), beside=Path(f"{path}.before-version-{version}")) as partial:
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
    newest = request.getfixturevalue("one_more")
    connect_writer(path).close()
    assert names(path) == others | {f"[a-z]*.db{suffix}" for suffix in ("", ".lock", f".before-version-{newest}")}


def test_failed_migration_names_the_copy_and_makes_no_more_of_them(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_a_secret(path)
    before = Path(path).read_bytes()
    steps = migrations.migrations() | {NEWEST + 1: "delete from secret;\nnonsense;"}
    monkeypatch.setattr(migrations, "migrations", lambda: steps)
    for _ in range(2):  # as by a service manager that starts the server again and again
        with pytest.raises(sqlite3.OperationalError) as failure:
            connect_writer(path)
    kept = f"{path}.before-version-{NEWEST + 1}"
    assert str(failure.value).startswith(
        f"the migration to version {NEWEST + 1} failed and nothing was changed; {kept} is a copy: "
    )
    assert "nonsense" in str(failure.value)
    assert Path(path).read_bytes() == before
    assert names(path) == {"payres.db", "payres.db.lock", Path(kept).name}


def test_damaged_database_is_not_migrated(path: str, request: pytest.FixtureRequest) -> None:
    with_a_secret(path)
    with plain(path) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("INSERT INTO account (asset_id, kind) VALUES (77, 'wallet')")
    before = Path(path).read_bytes()
    request.getfixturevalue("one_more")
    with pytest.raises(
        UnusableDatabase, match="damaged and was not migrated: a row of account refers to a missing asset"
    ):
        connect_writer(path)
    assert Path(path).read_bytes() == before
    assert names(path) == {"payres.db", "payres.db.lock"}


def test_copy_of_a_database_is_migrated_where_it_is(path: str, one_more: int) -> None:
    with plain(path) as connection:
        at_version(connection, 1)
    migrations.migrate_copy(Path(path))
    with plain(path) as connection:
        assert version(connection) == one_more
    assert names(path) == {"payres.db"}


def test_row_that_no_constraint_allows_is_found_before_the_migration(path: str, request: pytest.FixtureRequest) -> None:
    with_a_secret(path)
    with plain(path) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute("INSERT INTO asset (code, scale) VALUES ('USD', -1)")
    request.getfixturevalue("one_more")
    with pytest.raises(UnusableDatabase, match="CHECK constraint failed in asset"):
        connect_writer(path)
    assert names(path) == {"payres.db", "payres.db.lock"}


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


@pytest.mark.parametrize(("statement", "sentence"), ALTERATIONS)
def test_first_difference_names_what_was_altered(path: str, statement: str, sentence: str) -> None:
    connect_writer(path).close()
    with plain(path) as connection:
        assert first_difference(connection) is None
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute(statement)
        assert sentence in str(first_difference(connection))


async def test_server_does_not_open_what_was_altered_and_migrates_no_such_file(path: str, tmp_path: Path) -> None:
    old = str(tmp_path / "old.db")
    with plain(path) as connection, plain(old) as earlier:
        at_version(connection, NEWEST)
        connection.execute("DROP INDEX wallet_key_in_force")
        at_version(earlier, 1)
        earlier.execute("CREATE TABLE extra (x)")
    for altered, name in ((path, "wallet_key_in_force"), (old, "extra")):
        with pytest.raises(UnusableDatabase, match=f"not as payres made it: the .* '{name}' .* restore a backup"):
            await Database.open(altered)
    with plain(old) as earlier:
        assert version(earlier) == 1


@pytest.mark.parametrize("number", [-1, -(2**31)])
def test_version_below_zero_is_refused(path: str, number: int) -> None:
    with plain(path) as connection:
        at_version(connection, 1)
        connection.execute(f"PRAGMA user_version = {number}")
    with pytest.raises(UnusableDatabase, match=f"has version {number}, which no payres writes"):
        connect_writer(path)


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_newer_database_is_refused_and_untouched(path: str, mode: str) -> None:
    with plain(path) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}").fetchone()
        connection.execute("CREATE TABLE of_the_future (x)")
        connection.execute(f"PRAGMA user_version = {NEWEST + 7}")
    before = Path(path).read_bytes()
    with pytest.raises(UnusableDatabase, match=rf"\b{NEWEST + 7}\b.*\b{NEWEST}\b"):
        connect_writer(path)
    assert Path(path).read_bytes() == before
    assert list(Path(path).parent.iterdir()) == [Path(path)]


async def test_open_refuses_a_newer_database(path: str) -> None:
    with plain(path) as connection:
        connection.execute(f"PRAGMA user_version = {NEWEST + 1}")
    with pytest.raises(UnusableDatabase, match=f"version {NEWEST + 1}, this payres knows versions up to {NEWEST}"):
        await Database.open(path)


def test_migrate_refuses_a_newer_database_and_leaves_no_transaction(path: str) -> None:
    with plain(path) as connection:
        connection.execute(f"PRAGMA user_version = {NEWEST + 1}")
        with pytest.raises(UnusableDatabase, match=f"has version {NEWEST + 1}"):
            migrate(connection)
        assert not connection.in_transaction
        assert version(connection) == NEWEST + 1


def test_failing_step_leaves_the_file_as_it_was(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(connect_writer(path)) as connection:
        connection.execute("INSERT INTO secret (name, value) VALUES ('kept', x'01')")
    before = Path(path).read_bytes()
    steps = migrations.migrations() | {
        NEWEST + 1: "create table extra (x integer) strict; \ndelete from secret;",
        NEWEST + 2: "create table another (x integer) strict;\ncreate table secret (x integer) strict;",
    }
    monkeypatch.setattr(migrations, "migrations", lambda: steps)
    with pytest.raises(sqlite3.OperationalError, match="secret already exists"):
        connect_writer(path)
    assert Path(path).read_bytes() == before
    monkeypatch.undo()
    with closing(connect_writer(path)) as connection:
        assert version(connection) == NEWEST
        assert connection.execute("SELECT * FROM secret").fetchall() == [("kept", b"\x01")]


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
    """The same, often enough to meet the moments in which SQLite answers that the file is locked."""
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


DAY = 86_400_000_000
CLIENTS_OF_VERSION_3 = {"maker": 1, "quoter": 2, "payer": 3, "asker": 4, "idle": 5}
GRANTS_OF_VERSION_3 = {  # with the client, the state, the end, and when the interaction was decided, if there was one
    "free": ("asker", "issued", None, None),
    "free, revoked": ("asker", "revoked", 3, None),
    "free, of a maker": ("maker", "issued", None, None),
    "free, of a quoter": ("quoter", "revoked", 3, None),
    "free, of a payer": ("payer", "issued", None, None),
    "undecided": ("maker", "pending", None, (700, None)),
    "cancelled": ("asker", "revoked", 3, (800, None)),
    "denied": ("asker", "denied", 4, (900, 4)),
    "approved": ("asker", "approved", None, (900, 4)),
    "consented": ("asker", "issued", None, (900, 4)),
    "consented, revoked": ("asker", "revoked", 5, (900, 4)),
}


def test_what_nobody_used_so_far_is_forgotten_after_the_migration(path: str) -> None:
    """Of the grants of version 3 it is not known which were used: all of a client that has made something stay."""
    with plain(path) as connection:
        at_version(connection, 3)
        insert_clients_of_version_3(connection)
        for name in GRANTS_OF_VERSION_3:
            insert_grant_of_version_3(connection, name)
        insert_payments_of_version_3(connection)
    with closing(connect_writer(path)) as connection:
        due = dict(connection.execute('SELECT id, purge_at FROM "grant" WHERE purge_at IS NOT NULL').fetchall())
        looks = dict(connection.execute("SELECT identity, purge_at FROM client").fetchall())
        quotes = dict(connection.execute("SELECT id, purge_at FROM quote").fetchall())
    assert due == {
        "free": 600 + DAY,
        "free, revoked": 600 + DAY,
        "undecided": 700 + DAY,
        "cancelled": 800 + DAY,
        "denied": 4 + 30 * DAY,
        "approved": 4 + 30 * DAY,
    }
    assert looks == {name: number + DAY for name, number in CLIENTS_OF_VERSION_3.items()}
    assert quotes == {"q": 2 + DAY, "used": None}


def insert_clients_of_version_3(connection: sqlite3.Connection) -> None:
    """The clients, and a wallet for what they make."""
    connection.execute("INSERT INTO asset (id, code, scale) VALUES (1, 'EUR', 2)")
    connection.execute("INSERT INTO account (id, kind, asset_id) VALUES (1, 'wallet', 1)")
    connection.execute(
        "INSERT INTO wallet_address (id, path, asset_id, account_id, created_at) VALUES (1, 'alice', 1, 1, 1)"
    )
    for name, number in CLIENTS_OF_VERSION_3.items():
        connection.execute(
            "INSERT INTO client (id, identity, wallet_address, created_at) VALUES (?, ?, ?, ?)",
            (number, name, f"https://{name}.example", number),
        )


def insert_grant_of_version_3(connection: sqlite3.Connection, name: str) -> None:
    """A grant with its interaction and its tokens."""
    client, state, ended_at, interaction = GRANTS_OF_VERSION_3[name]
    connection.execute(
        'INSERT INTO "grant" (id, client_id, state, access, continue_hash, waits_from, created_at, ended_at)'
        " VALUES (?, ?, ?, '[]', x'', 1, 1, ?)",
        (name, CLIENTS_OF_VERSION_3[client], state, ended_at),
    )
    if interaction is not None:
        connection.execute(
            "INSERT INTO interaction (id, grant_id, nonce, server_nonce, expires_at, decided_at)"
            " VALUES (?, ?, '', '', ?, ?)",
            (name, name, *interaction),
        )
    if state == "issued" or interaction is None:
        connection.executemany(
            "INSERT INTO access_token (id, grant_id, value_hash, created_at, expires_at) VALUES (?, ?, ?, 1, ?)",
            [(f"{name} {end}", name, f"{name} {end}".encode(), end) for end in (600, 500)],
        )


def insert_payments_of_version_3(connection: sqlite3.Connection) -> None:
    """What the maker, the quoter and the payer have made."""
    connection.execute(
        "INSERT INTO incoming_payment (id, wallet_address_id, client_id, created_at, expires_at)"
        " VALUES ('i', 1, 1, 1, 2)"
    )
    connection.execute(
        "INSERT INTO quote (id, wallet_address_id, client_id, receiver, debit_value, receive_value, receive_code,"
        " receive_scale, fee_value, created_at, expires_at) VALUES ('q', 1, 2, '', '1', '1', 'EUR', 2, '0', 1, 2),"
        " ('used', 1, 2, '', '1', '1', 'EUR', 2, '0', 1, 2)"
    )
    connection.execute(
        "INSERT INTO outgoing_payment (id, wallet_address_id, client_id, quote_id, receiver, debit, receive,"
        " receive_code, receive_scale, fee, state, created_at)"
        " VALUES ('o', 1, 3, 'used', '', 1, 1, 'EUR', 2, 0, 'sending', 1)"
    )


def test_answers_of_version_4_are_given_again_after_the_migration(path: str) -> None:
    """A client that lost an answer may repeat its request after the upgrade."""
    asked = KeyedRequest(1, "key", "/quotes", b'{"receiver": "https://pay.example/incoming-payments/1"}', "alice")
    body_hash = hashlib.sha256(b"alice\n" + asked.body).digest()
    with plain(path) as connection:
        at_version(connection, 4)
        connection.execute(
            "INSERT INTO client (id, identity, wallet_address, created_at) VALUES (1, '', 'https://shop.example', 1)"
        )
        connection.execute(
            "INSERT INTO idempotency_key (client_id, key, path, body_hash, members, status, answer, created_at)"
            " VALUES (1, 'key', '/quotes', ?, '{}', 201, x'7b7d', 5)",
            (body_hash,),
        )
    with closing(connect_writer(path)) as connection:
        assert find_response(work_at(connection, 6), asked) == b"{}"


def test_movements_of_version_9_are_listed_after_the_migration(path: str) -> None:
    """Deposits and withdrawals of before have no references, and come in the order of their times."""
    second = 1_000_000
    with plain(path) as connection:
        at_version(connection, 9)
        connection.execute("INSERT INTO asset (id, code, scale) VALUES (1, 'EUR', 2)")
        connection.execute(
            "INSERT INTO account (id, kind, asset_id, balance, floor) VALUES"
            " (1, 'external', 1, -7, NULL), (2, 'wallet', 1, 7, 0)"
        )
        connection.execute(
            "INSERT INTO transfer (debit_account_id, credit_account_id, amount, kind, created_at) VALUES"
            " (1, 2, 10, 'deposit', ?), (2, 1, 3, 'withdrawal', ?), (1, 2, 5, 'payment', ?)",
            (1_700_000_000 * second, 1_700_000_001 * second, 1_700_000_002 * second),
        )
    with closing(connect_writer(path)) as connection:
        records, bounds = page_of_movements(connection, 2, PageQuery(5))
    found = [(one.kind, one.amount, one.reference, one.transfer_id) for one in records]
    assert found == [("withdrawal", 3, None, 2), ("deposit", 10, None, 1)]
    assert uuid.UUID(records[0].id).version == 7
    assert int(records[0].id.replace("-", "")[:12], 16) == 1_700_000_001_000
    assert not bounds.has_older


def test_what_had_expired_before_the_migration_has_no_event(path: str) -> None:
    """Nor is what was low before; but both are watched from then on."""
    with plain(path) as connection:
        at_version(connection, 10)
        connection.execute("INSERT INTO asset (id, code, scale) VALUES (1, 'USD', 2)")
        connection.execute("INSERT INTO account (id, kind, asset_id) VALUES (1, 'wallet', 1)")
        connection.execute(
            "INSERT INTO account (id, kind, asset_id, balance, floor) VALUES (2, 'liquidity', 1, 500, 0),"
            " (3, 'peer', 1, 0, -90), (4, 'external', 1, -500, NULL)"
        )
        connection.execute("INSERT INTO wallet_address VALUES (1, 'alice', NULL, 1, 1, NULL, 'active', 1, NULL)")
        connection.execute("INSERT INTO client VALUES (1, 'shop', 'https://shop.example', NULL, 1, NULL)")
        for name, expires_at in (("old", 2), ("open", 2**60)):
            connection.execute(
                "INSERT INTO incoming_payment VALUES (?, 1, 1, NULL, 0, NULL, 1, ?, NULL)", (name, expires_at)
            )
    with closing(connect_writer(path)) as connection:
        assert [one.id for one in incoming.expired_without_event(connection, 2**61, 5)] == ["open"]
        watched = connection.execute("SELECT warn_below, warned FROM account ORDER BY id").fetchall()
        assert watched == [(None, 0), (50, 0), (9, 0), (None, 0)]
