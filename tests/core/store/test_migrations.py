import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from payres.core.protocol.clock import DAY, HOUR
from payres.core.store import migrations
from payres.core.store.connections import connect_writer
from payres.core.store.copies import copied
from payres.core.store.database import Database
from payres.core.store.migrations import (
    FIRST,
    UnusableDatabase,
    execute_script,
    first_difference,
    migrate,
    migrate_copy,
    version_of,
)
from payres.core.store.wallets import read_like
from tests.helpers import TIMEOUT
from tests.versions import NEWEST, SCHEMA, make_newest, make_up, make_version, plain

pytestmark = pytest.mark.usefixtures("made_anew")
KEPT = "INSERT INTO secret (name, value) VALUES ('kept', x'01')"


def tables_of(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}


def names(path: str) -> set[str]:
    return {file.name for file in Path(path).parent.iterdir()}


def test_versions_count_up_and_all_files_together_give_the_schema() -> None:
    steps = migrations.migrations()
    assert list(steps) == list(range(FIRST + 1, NEWEST + 1))
    with plain(":memory:") as connection:
        make_version(connection, NEWEST)
        assert first_difference(connection) is None


@pytest.mark.parametrize("number", {*range(FIRST, NEWEST, 5), NEWEST - 1})
def test_database_of_an_earlier_version_is_migrated_to_the_schema(path: str, number: int) -> None:
    """Of some: those between them take the same steps."""
    with plain(path) as connection:
        make_version(connection, number)
        connection.execute(KEPT)
        assert first_difference(connection) is None
    with closing(connect_writer(path)) as connection:
        assert (version_of(connection), first_difference(connection)) == (NEWEST, None)
        assert connection.execute("SELECT name FROM secret").fetchall() == [("kept",)]


@pytest.mark.parametrize(
    ("alteration", "sentence"),
    [
        ("DROP INDEX wallet_key_in_force", "the index 'wallet_key_in_force' is missing"),
        ("CREATE TABLE extra (x)", "the table 'extra' is not one of payres"),
        ("DROP TABLE api_key", f"its tables cannot be migrated from version {FIRST}: no such table: api_key"),
    ],
)
def test_database_of_the_first_version_that_was_altered_is_not_migrated(
    path: str, alteration: str, sentence: str
) -> None:
    with plain(path) as connection:
        make_version(connection, FIRST)
        connection.execute(alteration)
    before = Path(path).read_bytes()
    with plain(path) as connection, pytest.raises(UnusableDatabase, match=f"not as payres made it: {sentence}. Undo"):
        migrate(connection)
    assert Path(path).read_bytes() == before
    assert names(path) == {"payres.db"}


def test_steps_that_do_not_give_the_schema_change_nothing(
    path: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_newest(path, KEPT)
    before = Path(path).read_bytes()
    make_up(monkeypatch, tmp_path_factory.mktemp("versions") / "migrations", "alter table secret add column note text;")
    monkeypatch.setattr(migrations, "schema", lambda: SCHEMA)
    with plain(path) as connection, pytest.raises(UnusableDatabase, match="the table 'secret' is not the one that"):
        migrate(connection)
    assert Path(path).read_bytes() == before
    assert names(path) == {"payres.db"}


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
        "-- a comment; with a semicolon\nupdate secret set note = 'one; two';\n"
        "create trigger none_goes before delete on secret begin\n  select raise(abort, 'no');\nend; -- the end",
    )
    assert make_up(monkeypatch, tmp_path / "migrations", *steps) == NEWEST + 2
    with closing(connect_writer(path)) as connection:
        assert version_of(connection) == NEWEST + 2
        assert connection.execute("SELECT * FROM secret").fetchall() == [("kept", b"\x01", "one; two")]
        assert first_difference(connection) is None


@pytest.mark.parametrize(
    ("columns", "purge_at"),
    [
        ("NULL, 0, NULL, 6", 5 + 7 * DAY),
        ("'100', 0, NULL, 6", None),
        ("NULL, 1, NULL, 6", None),
        ("NULL, 0, 4, NULL", None),
        ("NULL, 0, NULL, NULL", None),  # the worker has not seen yet that it has expired
    ],
)
def test_empty_payments_that_expired_before_the_upgrade_are_purged_too(
    path: str, columns: str, purge_at: int | None
) -> None:
    with plain(path) as connection:
        make_version(connection, 23)
        connection.executescript(
            "INSERT INTO asset (id, code, scale) VALUES (1, 'EUR', 2);"
            "INSERT INTO account (id, kind, asset_id) VALUES (1, 'wallet', 1);"
            "INSERT INTO wallet_address (id, path, asset_id, account_id, created_at) VALUES (1, 'alice', 1, 1, 1);"
            "INSERT INTO client (id, identity, wallet_address, created_at) VALUES (1, 'c', 'c', 1);"
            "INSERT INTO incoming_payment (id, wallet_address_id, client_id, created_at, expires_at, incoming_value,"
            f" received, completed_at, expiry_event_at) VALUES ('1', 1, 1, 1, 5, {columns})"
        )
    with closing(connect_writer(path)) as connection:
        assert connection.execute("SELECT purge_at FROM incoming_payment").fetchall() == [(purge_at,)]


@pytest.mark.parametrize("was_restored", [False, True])
def test_addresses_of_wallets_are_good_after_the_upgrade_unless_a_restore_used_their_numbers_again(
    path: str, *, was_restored: bool
) -> None:
    with plain(path) as connection:
        make_version(connection, 41)
        connection.executescript(
            "INSERT INTO asset (id, code, scale) VALUES (1, 'EUR', 2);"
            "INSERT INTO account (id, kind, asset_id) VALUES (1, 'wallet', 1);"
            "INSERT INTO owner (id, created_at) VALUES (1, 1);"
            "INSERT INTO wallet_address (id, path, asset_id, account_id, owner_id, created_at)"
            " VALUES (17, 'alice', 1, 1, 1, 1);"
        )
        if was_restored:
            connection.execute("INSERT INTO audit VALUES ('1', 1, 'shell:root', 'database.restore', 'a.db', '{}')")
    with closing(connect_writer(path)) as connection:
        [(tag,)] = connection.execute("SELECT tag FROM wallet_address").fetchall()
    assert (tag == "17") is not was_restored
    assert len(tag) == 32 or not was_restored


def test_database_of_the_first_version_keeps_its_rows(path: str) -> None:
    key = "INSERT INTO api_key (id, name, secret_hash, scopes, created_at) VALUES ('1', 'Mine', x'01', '[]', 1)"
    with plain(path) as connection:
        make_version(connection, FIRST)
        for statement in (KEPT, key):
            connection.execute(statement)
    with closing(connect_writer(path)) as connection:
        assert (version_of(connection), first_difference(connection)) == (NEWEST, None)
        assert connection.execute("SELECT name, made_by FROM api_key").fetchall() == [("Mine", None)]
        assert connection.execute("SELECT name FROM secret").fetchall() == [("kept",)]


NEWER = (
    f"has version {NEWEST + 7}, this payres knows versions up to {NEWEST}: install the payres that wrote it, or restore"
)


def test_checkouts_of_the_version_before_may_have_paid(path: str) -> None:
    """It did not store whether it had sent the creation of a payment."""
    row = "VALUES (?, '1', x'01', 'https://wallet.example/a', 1, ?, 5, 9, ?, ?)"
    columns = "id_hash, incoming_payment_id, browser_hash, payer, amount, state, changed_at, purge_at, failure, pending"
    states = ("asked", "returned", "made", "paid", "failed")
    with plain(path) as connection:
        make_version(connection, 26)
        for state in states:
            failure = "denied" if state == "failed" else None
            pending = None if state in {"paid", "failed"} else b"x"
            connection.execute(f"INSERT INTO checkout ({columns}) {row}", (state.encode(), state, failure, pending))
        execute_script(connection, migrations.migrations()[27])
        found = connection.execute("SELECT CAST(id_hash AS TEXT), state, due_at, attempts FROM checkout").fetchall()
    after = {"returned": "made"}
    expected = {(one, after.get(one, one), 5 if one in {"returned", "made"} else None, 0) for one in states}
    assert set(found) == expected


def test_sign_ins_browsers_and_links_of_owners_and_operators_survive_the_upgrade(path: str) -> None:
    half_a_day = 12 * HOUR
    with plain(path) as connection:
        make_version(connection, 28)
        connection.executescript(
            "INSERT INTO asset (id, code, scale) VALUES (1, 'EUR', 2);"
            "INSERT INTO account (id, kind, asset_id) VALUES (1, 'wallet', 1);"
            "INSERT INTO wallet_address (id, path, asset_id, account_id, created_at) VALUES (3, 'alice', 1, 1, 1);"
            "INSERT INTO session VALUES (x'01', 3, 5, 6);"
            "INSERT INTO known_browser VALUES (x'02', 3, 7);"
            "INSERT INTO password_link VALUES (3, x'03', 8);"
            "INSERT INTO operator VALUES (4, 'ann', 'full', 'hash', NULL, 9, 10);"
            "INSERT INTO operator VALUES (5, 'ben', 'read-only', NULL, x'04', 11, 12);"
            f"INSERT INTO operator_session VALUES (x'05', 4, {half_a_day + 13});"
            "INSERT INTO operator_browser VALUES (x'06', 4, 14);"
        )
    with closing(connect_writer(path)) as connection:
        found = {
            table: connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()
            for table in ("session", "known_browser", "password_link", "operator")
        }
    assert found == {
        "session": [
            (b"\x01", 3, 3, None, 5, 6, None, None, None),
            (b"\x05", None, None, 4, 13, half_a_day + 13, None, None, None),
        ],
        "known_browser": [(b"\x02", 3, None, 7, None), (b"\x06", None, 4, 14, None)],
        "password_link": [(b"\x03", 3, None, 8), (b"\x04", None, 5, 11)],
        "operator": [(4, "ann", "full", "hash", 10, None, None), (5, "ben", "reads", None, 12, None, None)],
    }


@pytest.mark.parametrize(
    ("statements", "sentence"),
    [
        (("PRAGMA user_version = 1",), f"has version 1, and this payres knows versions from {FIRST} on: open it once"),
        ((f"PRAGMA user_version = {FIRST - 1}",), f"version {FIRST - 1}, and this payres knows versions from {FIRST}"),
        (("PRAGMA user_version = -1",), "has version -1, which no payres writes: restore a backup"),
        ((f"PRAGMA user_version = {-(2**31)}",), f"has version {-(2**31)}, which no payres writes: restore a backup"),
        ((f"PRAGMA user_version = {NEWEST + 7}",), NEWER),
        (("PRAGMA journal_mode = wal", f"PRAGMA user_version = {NEWEST + 7}"), NEWER),
        (("PRAGMA user_version = 0",), "database of another program: name a file of its own for payres"),
    ],
)
def test_database_of_no_version_that_this_program_follows_is_refused_and_untouched(
    path: str, statements: Sequence[str], sentence: str
) -> None:
    make_newest(path, *statements)
    with plain(path) as connection, pytest.raises(UnusableDatabase, match=sentence):
        migrate(connection)
    before = Path(path).read_bytes()
    with pytest.raises(UnusableDatabase, match=sentence):
        connect_writer(path)
    with pytest.raises(UnusableDatabase, match=sentence):
        asyncio.run(Database.open(path))
    assert Path(path).read_bytes() == before
    assert names(path) == {"payres.db"}


def test_older_database_is_copied_before_it_is_migrated_and_that_is_said(
    path: str, second_version: int, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("payres"), "propagate", False)  # no handler, as in a command
    make_newest(path, "PRAGMA journal_mode = WAL", KEPT)
    with plain(path) as unclosed:  # so that the newest commit is in the log alone
        unclosed.execute("INSERT INTO secret (name, value) VALUES ('newest', x'02')")
        connect_writer(path).close()
    kept = Path(f"{path}.before-version-{second_version}")
    told = f"Migrated the database from version {NEWEST} to {second_version}; {kept} is a copy from before\n"
    assert capfd.readouterr().err == told
    assert kept.stat().st_mode & 0o777 == 0o600
    assert kept.read_bytes()[18:20] == b"\x01\x01", "one file, which needs no log"
    with plain(kept) as connection:
        assert version_of(connection) == NEWEST
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
    steps = (
        "create table extra (x integer) strict; \nupdate secret set name = 'x';",
        "update secret set value = null;",
    )
    newest = make_up(monkeypatch, folder, *steps)
    for _ in range(2):  # as by a service manager that starts the server again and again
        with pytest.raises(sqlite3.IntegrityError) as failure:
            connect_writer(path)
    kept = f"{path}.before-version-{newest}"
    sentence = f"the migration to version {newest} failed and nothing was changed; {kept} is a copy: "
    assert str(failure.value).startswith(sentence)
    assert "NOT NULL constraint failed: secret.value" in str(failure.value)
    assert Path(path).read_bytes() == before
    assert names(path) == {"payres.db", "payres.db.lock", Path(kept).name}
    monkeypatch.undo()
    with closing(connect_writer(path)) as connection:
        assert version_of(connection) == NEWEST
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
        assert version_of(connection) == second_version
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


def test_failing_schema_leaves_an_empty_file_that_can_be_opened_later(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "schema", lambda: "create table secret (x integer) strict;\nnonsense;")
    with pytest.raises(sqlite3.OperationalError, match="nonsense"):
        connect_writer(path)
    with plain(path) as connection:
        assert (version_of(connection), tables_of(connection)) == (0, set())
    monkeypatch.undo()
    with closing(connect_writer(path)) as connection:
        assert (version_of(connection), first_difference(connection)) == (NEWEST, None)


def test_connections_that_open_a_fresh_file_at_once_all_succeed(tmp_path: Path) -> None:
    """Often enough to meet the moments in which SQLite answers that the file is locked."""
    rounds, together = 15, 4
    barrier = threading.Barrier(together)
    found: list[int] = []

    def open_each() -> None:
        for turn in range(rounds):
            barrier.wait(timeout=TIMEOUT)
            with closing(connect_writer(str(tmp_path / f"{turn}.db"))) as connection:
                found.append(version_of(connection))

    with ThreadPoolExecutor(together) as threads:
        for thread in [threads.submit(open_each) for _ in range(together)]:
            thread.result()
    assert found == [NEWEST] * rounds * together


def test_webhooks_stay_as_they_were_and_may_be_paused_then(path: str) -> None:
    row = ("hook", "https://a.example", "*", 0, "disabled", b"s", None, None, 7, 1, 2, 410, "Gone")
    columns = (
        "id, url, events, is_private, state, secret, previous_secret, previous_until, cursor, created_at,"
        " last_attempt_at, last_status, last_error"
    )
    with plain(path) as connection:
        make_version(connection, 29)
        connection.execute(f"INSERT INTO webhook ({columns}) VALUES ({', '.join('?' * len(row))})", row)
        connection.execute("INSERT INTO webhook_turn (webhook_id, wallet_address_id, cursor) VALUES ('hook', 0, 9)")
    with closing(connect_writer(path)) as connection:
        assert connection.execute(f"SELECT {columns}, name FROM webhook").fetchall() == [(*row, None)]
        assert connection.execute("SELECT webhook_id FROM webhook_turn").fetchall() == [("hook",)]
        connection.execute("UPDATE webhook SET state = 'paused'")


def test_bills_of_payments_under_way_at_the_upgrade_are_ended_too(path: str) -> None:
    """Those that payres has made there, not those that somebody asked it to pay."""
    wishes = {"send": '{"is_bill":false}', "ended": '{"is_bill":false}', "bill": '{"is_bill":true}', "client": None}
    with plain(path) as connection:
        make_version(connection, 51)
        connection.executescript(
            "INSERT INTO asset (id, code, scale) VALUES (1, 'EUR', 2);"
            "INSERT INTO account (id, kind, asset_id) VALUES (1, 'wallet', 1);"
            "INSERT INTO owner (id, created_at) VALUES (1, 1);"
            "INSERT INTO wallet_address (id, path, asset_id, account_id, owner_id, created_at, tag)"
            " VALUES (1, 'alice', 1, 1, 1, 1, 'a');"
            "INSERT INTO client (id, identity, wallet_address, created_at) VALUES (1, 'c', 'c', 1);"
            "INSERT INTO incoming_payment (id, wallet_address_id, client_id, created_at, expires_at, listed)"
            " VALUES ('paid', 1, 1, 1, 5, 'paid')"
        )
        quote = "INSERT INTO quote VALUES (?, 1, 1, 'r', NULL, '1', '1', 'EUR', 2, '0', 1, 9, NULL, NULL, ?)"
        connection.executemany(quote, wishes.items())
        connection.executemany(
            "INSERT INTO outgoing_payment (id, wallet_address_id, client_id, quote_id, receiver, debit, receive,"
            " receive_code, receive_scale, fee, created_at, state, ended_at)"
            " VALUES (:id, 1, 1, :quote, 'https://b/' || :id, 1, 1, 'EUR', 2, 0, 7,"
            " iif(:end, 'completed', 'sending'), :end)",
            [
                {"id": "refund", "quote": None, "end": None},
                *({"id": id, "quote": id, "end": 8 if id == "ended" else None} for id in wishes),
            ],
        )
        connection.execute(
            "INSERT INTO refund (id, incoming_payment_id, return_payment_id, wallet_address, amount, reference,"
            " created_at) VALUES ('1', 'paid', 'refund', 'https://b/w', 1, 'x', 1)"
        )
    with closing(connect_writer(path)) as connection:
        found = connection.execute("SELECT id, kind, url, noted_at, due_at FROM made_elsewhere ORDER BY id").fetchall()
    assert found == [(id, "incoming-payment", f"https://b/{id}", 7, None) for id in ("refund", "send")]


@pytest.mark.parametrize("migrated", [migrate_copy, lambda path: connect_writer(str(path)).close()])
def test_wallets_of_before_are_found_by_names_as_they_are_read(path: str, migrated: Callable[[Path], None]) -> None:
    """When the database is opened, and when a backup of it is restored."""
    with plain(path) as connection:
        make_version(connection, 55)
        connection.executescript(
            "INSERT INTO asset (id, code, scale) VALUES (1, 'EUR', 2);"
            "INSERT INTO account (id, kind, asset_id) VALUES (1, 'wallet', 1), (2, 'wallet', 1);"
            "INSERT INTO owner (id, created_at) VALUES (1, 1), (2, 1);"
            "INSERT INTO wallet_address (id, path, public_name, asset_id, account_id, owner_id, created_at, tag) VALUES"
            " (1, 'b-o-b', 'Café Аnna', 1, 1, 1, 1, 'a'), (2, 'carl', NULL, 1, 2, 2, 1, 'b');"
        )
    migrated(Path(path))
    names = ["Bob", "CAFE ANNA", "Carl", "Bert"]
    with plain(path) as connection:
        found = {one: [read_like(connection, one, owner) for owner in (1, 2)] for one in names}
    nobody = [None, None]
    assert found == {"Bob": [None, "b-o-b"], "CAFE ANNA": [None, "b-o-b"], "Carl": ["carl", None], "Bert": nobody}
