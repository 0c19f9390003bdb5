import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from payres.core.store import copies
from payres.core.store.copies import DatabaseOpen, copied, examine, rename, swap_files
from payres.core.store.migrations import first_fault


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "source.db"


@pytest.fixture
def live(path: Path) -> Iterator[sqlite3.Connection]:
    """A database in WAL mode with some pages, open and with what was committed last still in its log."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("CREATE TABLE item (number INTEGER PRIMARY KEY, filler BLOB)")
        connection.executemany("INSERT INTO item VALUES (?, zeroblob(3000))", [(number,) for number in range(1, 51)])
        yield connection


def numbers(connection: sqlite3.Connection) -> list[int]:
    return [number for (number,) in connection.execute("SELECT number FROM item ORDER BY number")]


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_commits_during_the_copy_are_neither_delayed_nor_copied(
    live: sqlite3.Connection, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[float] = []

    def commit(seconds: float) -> None:
        live.execute("INSERT INTO item (number) VALUES (?)", (1000 + len(steps),))
        steps.append(seconds)

    monkeypatch.setattr(copies, "PAGES_PER_STEP", 4)
    monkeypatch.setattr(copies, "sleep", commit)
    with copied(path, beside=tmp_path / "copy.db", pause=7) as partial:
        assert examine(partial, numbers) == list(range(1, 51))
    assert len(steps) > 5
    assert set(steps) == {0.007}
    assert len(numbers(live)) == 50 + len(steps)


def test_copy_that_fails_leaves_nothing(path: Path, tmp_path: Path) -> None:
    path.write_text("not a database, but long enough to be taken for one" * 10)
    with pytest.raises(sqlite3.DatabaseError, match="not a database"), copied(path, beside=tmp_path / "copy.db"):
        pass
    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        copied(tmp_path / "none.db", beside=tmp_path / "copy.db").__enter__()
    assert list(tmp_path.iterdir()) == [path]


def set_aside(path: Path, *suffixes: str) -> Path:
    """The database with these files of it, as a server that was killed leaves them."""
    still = path.with_name("still")
    still.mkdir()
    for suffix in suffixes:
        (still / f"source.db{suffix}").write_bytes(Path(f"{path}{suffix}").read_bytes())
    return still / "source.db"


@pytest.mark.parametrize("suffixes", [("", "-wal", "-shm"), ("", "-wal"), ("",)])
def test_still_source_is_left_as_it_is(
    live: sqlite3.Connection, path: Path, tmp_path: Path, suffixes: Sequence[str]
) -> None:
    if "-wal" not in suffixes:
        live.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    still = set_aside(path, *suffixes)

    def files() -> dict[str, object]:
        """What nothing may change, and beside it the index of the log, which SQLite may."""
        found = {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in still.parent.iterdir()}
        return {name: name.endswith("-shm") or content for name, content in found.items()}

    before = files()
    with copied(still, beside=tmp_path / "copy.db", still=True) as partial:
        assert examine(partial, numbers) == list(range(1, 51))
        assert mode(partial) == 0o600
        assert [file.name for file in tmp_path.glob("copy.db*")] == [partial.name]
    assert files() == before


def test_still_source_whose_change_was_cut_off_is_copied_as_before_it(path: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA cache_size = 1")
        connection.execute("CREATE TABLE item (number INTEGER PRIMARY KEY, filler BLOB)")
        connection.executemany("INSERT INTO item VALUES (?, zeroblob(3000))", [(number,) for number in range(1, 11)])
        connection.execute("BEGIN")
        connection.execute("UPDATE item SET number = number + 100, filler = zeroblob(2000)")
        still = set_aside(path, "", "-journal")
    assert still.with_name("source.db-journal").stat().st_size > 4096
    with copied(still, beside=tmp_path / "copy.db", still=True) as partial:
        assert examine(partial, first_fault) is None
        assert examine(partial, numbers) == list(range(1, 11))
    assert {file.name for file in still.parent.iterdir()} == {"source.db", "source.db-journal"}


def test_source_that_is_not_still_is_refused(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(b"")
    states = iter([["before"], ["after"]])
    monkeypatch.setattr(copies, "_state", lambda source: next(states))
    with pytest.raises(DatabaseOpen, match=r"has .*source\.db open"):
        copied(path, beside=tmp_path / "copy.db", still=True).__enter__()
    assert list(tmp_path.iterdir()) == [path]


def test_examine_cannot_write(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE item (word)")
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        examine(path, lambda connection: connection.execute("DELETE FROM item"))


def test_first_fault_names_what_refers_to_nothing_and_what_is_damaged(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE parent (id INTEGER PRIMARY KEY, word TEXT CHECK (word <> 'bad'))")
        connection.execute("CREATE TABLE child (parent_id INTEGER REFERENCES parent)")
        assert first_fault(connection) is None
        connection.execute("INSERT INTO child VALUES (7)")
        assert first_fault(connection) == "a row of child refers to a missing parent"
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute("INSERT INTO parent VALUES (7, 'bad')")
    assert examine(path, first_fault) == "CHECK constraint failed in parent"


def test_exchange_keeps_what_was_there_with_what_its_log_held(
    live: sqlite3.Connection, path: Path, tmp_path: Path
) -> None:
    database, kept = tmp_path / "database.db", tmp_path / "kept.db"
    for file in tmp_path.glob("source.db*"):
        file.with_name(file.name.replace("source", "database")).write_bytes(file.read_bytes())
    new = tmp_path / "new.db"
    new.write_bytes(b"new")
    assert swap_files(database, new, kept) is True
    assert database.read_bytes() == b"new"
    assert examine(kept, numbers) == list(range(1, 51))
    assert not list(tmp_path.glob("database.db-*"))
    assert not list(tmp_path.glob("kept.db-*"))
    assert database.stat().st_nlink == kept.stat().st_nlink == 1
    assert not new.exists()


def test_who_opened_the_database_just_before_the_exchange_writes_to_neither(path: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE item (number)")
    new, kept = tmp_path / "new.db", tmp_path / "kept.db"
    with copied(path, beside=new) as partial:
        rename(partial, new)
    content = new.read_bytes()
    with closing(sqlite3.connect(path, isolation_level=None)) as early:  # opens the file, and takes no lock yet
        swap_files(path, new, kept)
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            early.execute("PRAGMA journal_mode = WAL")
    assert path.read_bytes() == kept.read_bytes() == content
    assert {file.name for file in tmp_path.iterdir()} == {path.name, kept.name}


@pytest.mark.parametrize("content", [b"damaged", None], ids=["damaged", "gone"])
def test_exchange_lets_nothing_left_over_meet_the_new_file(path: Path, tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        path.write_bytes(content)
    tmp_path.joinpath("source.db-wal").write_bytes(b"log")
    new = tmp_path / "new.db"
    new.write_bytes(b"new")
    assert swap_files(path, new, tmp_path / "kept.db") is (content is not None)
    # What is kept of the old one is all that there was.
    found = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert found == {"source.db": b"new", "kept.db-wal": b"log"} | ({"kept.db": content} if content else {})
