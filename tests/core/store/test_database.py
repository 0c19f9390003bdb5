import asyncio
import os
import sqlite3
import stat
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.core.protocol.errors import DomainError, NotFound, Unavailable
from payres.core.protocol.limits import MAX_UNITS_PER_COMMIT
from payres.core.store import connections
from payres.core.store.connections import connect_writer
from payres.core.store.database import EXAMINERS, READS_PER_TURN, Database
from payres.core.store.work import Transaction
from tests.helpers import TIMEOUT, examples
from tests.traces import Gate, break_commit, commit_held, trace

Unit = Callable[[Transaction], object]


@asynccontextmanager
async def writer_held(database: Database) -> AsyncIterator[None]:
    """Inside the block another program has the lock, so that all that is submitted there runs together afterwards, on
    the writer's thread."""
    with closing(take_lock(database.path)):
        holder = asyncio.create_task(database.write(answer_with(0)))
        for _ in range(5):  # it finds the lock taken, and is handed to the thread
            await asyncio.sleep(0)
        yield
    await holder


async def in_flight(database: Database, units: list[Unit]) -> list[object]:
    """The outcomes, results or exceptions, of units that are submitted in one turn of the event loop."""
    tasks = [asyncio.create_task(database.write(unit)) for unit in units]
    return await asyncio.gather(*tasks, return_exceptions=True)


async def behind_a_lock(database: Database, units: list[Unit]) -> list[object]:
    """The outcomes of units that all wait while another program has the lock."""
    async with writer_held(database):
        tasks = [asyncio.create_task(database.write(unit)) for unit in units]
        await asyncio.sleep(0)  # every task has now queued its unit
    return await asyncio.gather(*tasks, return_exceptions=True)


Crowd = Callable[[Database, list[Unit]], Awaitable[list[object]]]
crowds = pytest.mark.parametrize("together", [in_flight, behind_a_lock])


def keep(name: str, size: int = 1) -> Callable[[Transaction], str]:
    """A unit that stores a row and returns its name."""

    def unit(tx: Transaction) -> str:
        tx.execute("INSERT INTO secret (name, value) VALUES (?, zeroblob(?))", (name, size))
        return name

    return unit


def answer_with(number: int) -> Unit:
    def unit(tx: Transaction) -> object:
        return tx.execute("SELECT ?", (number,)).fetchone()[0]

    return unit


def kept(tx: Transaction) -> set[str]:
    return {row[0] for row in tx.execute("SELECT name FROM secret")}


def kept_in_file(path: str) -> set[str]:
    """What another program finds in the file."""
    with closing(sqlite3.connect(path)) as connection:
        return kept(connection)


def is_unavailable(outcome: object) -> bool:
    return isinstance(outcome, Unavailable)


# Units of work


@crowds
async def test_exit_inside_a_unit_is_the_units_own_affair(database: Database, together: Crowd) -> None:
    class Leave(BaseException):
        pass

    def unit(tx: Transaction) -> None:
        keep("lost")(tx)
        raise Leave

    outcomes = await together(database, [keep("a"), unit, keep("b")])
    assert isinstance(outcomes[1], Leave)
    with pytest.raises(Leave):
        await database.read(unit_raising(Leave()))
    assert await database.read(kept) == {"a", "b"}


def unit_raising(error: BaseException) -> Unit:
    def unit(tx: Transaction) -> object:
        raise error

    return unit


@pytest.mark.parametrize(
    "read_later", [lambda rows: rows, lambda rows: map(tuple, rows), lambda rows: (r for r in rows)]
)
async def test_unit_may_not_return_what_reads_from_its_transaction(
    database: Database, read_later: Callable[[sqlite3.Cursor], object]
) -> None:
    def unit(tx: Transaction) -> object:
        if tx.execute("PRAGMA query_only").fetchone() == (0,):
            keep("lost")(tx)
        return read_later(tx.execute("SELECT name FROM secret"))

    for submit in (database.write, database.read):
        with pytest.raises(TypeError, match="after its transaction"):
            await submit(unit)
    assert await database.read(kept) == set()


# Commits


@asynccontextmanager
async def traced(database: Database) -> AsyncIterator[list[str]]:
    """What SQLite runs in the block on the writer's connection and on the reader's."""
    statements: list[str] = []
    for submit in (database.write, database.read):
        await submit(lambda work: trace(work, statements.append))
    statements.clear()
    yield statements
    for submit in (database.write, database.read):
        await submit(lambda work: trace(work, None))


@pytest.mark.parametrize(("together", "in_front"), [(in_flight, []), (behind_a_lock, [0])])
async def test_no_commit_holds_more_units_than_allowed(
    database: Database, together: Crowd, in_front: list[int]
) -> None:
    async with traced(database) as statements:
        await together(database, [keep(str(n)) for n in range(2 * MAX_UNITS_PER_COMMIT + 1)])
    batches = " ".join(statement.split(" ")[0] for statement in statements).split("COMMIT")
    counts = [batch.count("INSERT") for batch in batches[:-1]]
    assert counts == [*in_front, MAX_UNITS_PER_COMMIT, MAX_UNITS_PER_COMMIT, 1]


async def test_nobody_is_answered_before_the_commit(database: Database, path: str) -> None:
    async with commit_held(database) as gate:
        first = asyncio.create_task(database.write(keep("a")))
        await gate.wait()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not first.done()
        assert kept_in_file(path) == set()
        assert await database.read(kept) == set()
    assert await first == "a"
    assert kept_in_file(path) == {"a"}


async def test_lock_of_another_program_holds_up_neither_the_loop_nor_readers(database: Database, path: str) -> None:
    await database.write(keep("before"))
    async with writer_held(database):
        waiting = asyncio.create_task(database.write(keep("a")))
        for _ in range(50):
            assert await database.read(kept) == {"before"}
        assert not waiting.done()
    assert await waiting == "a"


@crowds
async def test_failed_commit_answers_everyone_in_it_and_keeps_nothing(
    database: Database, path: str, together: Crowd
) -> None:
    await database.write(keep("before"))
    units: list[Unit] = [keep(str(n)) for n in range(49)]
    outcomes = await together(database, [*units[:30], break_commit, *units[30:]])
    assert len(outcomes) == 50
    assert all(is_unavailable(outcome) for outcome in outcomes)
    assert len({id(outcome) for outcome in outcomes}) == 50, "each caller raises an exception of its own"
    assert kept_in_file(path) == {"before"}
    outcomes = await together(database, units)
    assert outcomes == [str(n) for n in range(49)]
    assert kept_in_file(path) == {"before", *(str(n) for n in range(49))}


@crowds
async def test_units_whose_transaction_is_lost_are_all_answered(database: Database, path: str, together: Crowd) -> None:
    await database.write(keep("before"))

    def lose(tx: Transaction) -> None:
        tx.execute("INSERT OR ROLLBACK INTO secret (name, value) VALUES ('before', x'00')")

    outcomes = await together(database, [keep("a"), lose, keep("b")])
    assert all(is_unavailable(outcome) for outcome in outcomes)
    assert kept_in_file(path) == {"before"}
    assert await database.write(keep("after")) == "after"


@crowds
async def test_full_disk_keeps_exactly_what_was_acknowledged(database: Database, path: str, together: Crowd) -> None:
    def fill(tx: Transaction) -> None:
        pages = tx.execute("PRAGMA page_count").fetchone()[0]
        tx.execute(f"PRAGMA max_page_count = {pages + 20}")

    await database.write(fill)
    outcomes = await together(database, [keep(str(n), size=10_000) for n in range(50)])
    acknowledged = {outcome for outcome in outcomes if isinstance(outcome, str)}
    refused = [outcome for outcome in outcomes if is_unavailable(outcome)]
    assert refused
    assert len(acknowledged) + len(refused) == 50
    assert kept_in_file(path) == acknowledged
    assert await database.write(keep("small")) == "small"
    assert kept_in_file(path) == acknowledged | {"small"}
    await database.write(lambda tx: tx.execute("PRAGMA max_page_count = 1000000").fetchone())
    assert await database.write(keep("after", size=100_000)) == "after"


async def test_those_behind_a_lock_wait_no_longer_than_the_first(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BUSY_TIMEOUT_SECONDS", 0.05)
    async with traced(database) as statements:
        with closing(take_lock(database.path)):
            first = asyncio.create_task(database.write(keep("first")))
            await asyncio.sleep(0)  # it is waited for now, and the others come behind
            behind = [database.write(keep(str(n))) for n in range(3 * MAX_UNITS_PER_COMMIT)]
            outcomes = await asyncio.gather(first, *behind, return_exceptions=True)
        assert all(is_unavailable(outcome) for outcome in outcomes)
        assert statements.count("BEGIN IMMEDIATE") <= 4, "each of them waits as long as a lock is waited for"
    assert await database.write(keep("after")) == "after"


def take_lock(path: str) -> sqlite3.Connection:
    """Another program's connection, in the middle of a transaction that writes."""
    connection = sqlite3.connect(path, timeout=TIMEOUT, isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN IMMEDIATE")
    return connection


Doing = tuple[str, int]


@examples(25)
@given(
    st.lists(
        st.tuples(st.sampled_from(["keep", "raise first", "raise last", "collide"]), st.integers(0, 4)), max_size=25
    )
)
def test_any_interleaving_leaves_exactly_the_survivors(doings: list[Doing]) -> None:
    def unit(tx: Transaction, n: int, what: str) -> int:
        if what == "raise first":
            raise NotFound(str(n))
        keep(f"{n} first")(tx)
        if what == "collide":
            keep(f"{n} first")(tx)
        keep(f"{n} last")(tx)
        if what == "raise last":
            raise NotFound(str(n))
        return n

    async def caller(database: Database, n: int, what: str, pauses: int) -> int | None:
        for _ in range(pauses):
            await asyncio.sleep(0)
        try:
            done = await database.write(lambda tx: unit(tx, n, what))
        except (DomainError, sqlite3.IntegrityError):
            return None
        assert {f"{n} first", f"{n} last"} <= await database.read(kept), "a read sees what was acknowledged"
        return done

    async def run(path: str) -> tuple[list[int | None], set[str]]:
        database = await Database.open(path)
        callers = [caller(database, n, what, pauses) for n, (what, pauses) in enumerate(doings)]
        answers = await asyncio.gather(*callers)
        await database.close()
        return answers, kept_in_file(path)

    with tempfile.TemporaryDirectory() as directory:
        answers, survivors = asyncio.run(run(f"{directory}/payres.db"))
    assert answers == [n if what == "keep" else None for n, (what, _) in enumerate(doings)]
    assert survivors == {f"{n} {part}" for n in answers if n is not None for part in ("first", "last")}


# Readers


@pytest.mark.parametrize("chained", [False, True])
async def test_exception_with_a_half_read_cursor_does_not_hold_the_snapshot(
    database: Database, path: str, chained: bool
) -> None:
    for n in range(3):
        await database.write(keep(str(n)))

    def stop_in_the_middle(tx: Transaction) -> None:
        rows = tx.execute("SELECT name FROM secret")
        raise KeyError(next(rows))

    def unit(tx: Transaction) -> None:
        if not chained:
            stop_in_the_middle(tx)
        try:
            stop_in_the_middle(tx)
        except KeyError as error:
            raise NotFound("nothing more to read") from error

    submits = [*(database.read for _ in range(4)), database.write]
    errors = await asyncio.gather(*(submit(unit) for submit in submits), return_exceptions=True)
    assert {type(error) for error in errors} == {NotFound if chained else KeyError}
    with closing(sqlite3.connect(path)) as other, other:
        keep("of another program")(other)
    assert await database.write(keep("new")) == "new"
    for names in await asyncio.gather(*(database.read(kept) for _ in range(4))):
        assert names == {"0", "1", "2", "of another program", "new"}


async def test_long_read_holds_up_neither_writer_nor_reader_nor_other_long_reads(database: Database) -> None:
    gate = Gate()
    examining = asyncio.create_task(database.examine(gate.unit))
    await gate.wait()
    assert await asyncio.wait_for(database.write(keep("a")), TIMEOUT) == "a"
    assert await asyncio.wait_for(database.read(kept), TIMEOUT) == {"a"}
    others = asyncio.gather(*(database.examine(kept) for _ in range(EXAMINERS - 1)))
    assert await asyncio.wait_for(others, TIMEOUT) == [{"a"}] * (EXAMINERS - 1)
    gate.opened.set()
    await examining


async def test_long_read_of_a_database_that_was_moved_away_creates_none(database: Database) -> None:
    path, moved = database.path, f"{database.path}.moved"
    os.rename(path, moved)
    with pytest.raises(Unavailable, match="could not read its database"):
        await database.examine(kept)
    assert os.path.basename(path) not in os.listdir(os.path.dirname(path))
    os.rename(moved, path)
    assert await database.examine(kept) == set()


async def test_reads_of_one_turn_share_a_snapshot_and_answer_each_for_itself(database: Database) -> None:
    units = [unit_raising(NotFound(str(n))) if n % 3 == 0 else answer_with(n) for n in range(5 * READS_PER_TURN)]
    async with traced(database) as statements:
        outcomes = await asyncio.gather(*(database.read(unit) for unit in units), return_exceptions=True)
        assert statements.count("BEGIN") == 5
    for n, outcome in enumerate(outcomes):
        assert outcome == n if n % 3 else isinstance(outcome, DomainError) and str(outcome) == str(n)


@pytest.mark.parametrize("unit", [keep("forbidden"), lambda tx: tx.execute("ROLLBACK").fetchone()])
async def test_read_that_writes_or_loses_its_transaction_is_refused_and_the_reader_recovers(
    database: Database, unit: Unit
) -> None:
    for _ in range(4):
        with pytest.raises(Unavailable):
            await database.read(unit)
    await database.write(keep("a"))
    seen = await asyncio.gather(*(database.read(kept) for _ in range(4)))
    assert all(names == {"a"} for names in seen)


# Callers that go away, and the end


async def test_cancelled_caller_does_not_disturb_the_others(database: Database, path: str) -> None:
    async with writer_held(database):
        tasks = [asyncio.create_task(database.write(keep(str(n)))) for n in range(10)]
        await asyncio.sleep(0)
        tasks[4].cancel()
        await asyncio.gather(tasks[4], return_exceptions=True)
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(outcomes[4], asyncio.CancelledError)
    assert [outcome for n, outcome in enumerate(outcomes) if n != 4] == [str(n) for n in range(10) if n != 4]
    assert kept_in_file(path) == {str(n) for n in range(10)}, "work that was handed in stands"


async def test_close_lets_the_queue_run_dry(path: str) -> None:
    database = await Database.open(path)
    async with writer_held(database):
        tasks = [asyncio.create_task(database.write(keep(str(n)))) for n in range(MAX_UNITS_PER_COMMIT + 10)]
        await asyncio.sleep(0)
        ends = [asyncio.create_task(database.close()) for _ in range(3)]
        await asyncio.sleep(0)
        assert not any(end.done() for end in ends)
    await asyncio.wait_for(asyncio.gather(*ends), TIMEOUT)
    assert await asyncio.gather(*tasks) == [str(n) for n in range(MAX_UNITS_PER_COMMIT + 10)]
    assert len(kept_in_file(path)) == MAX_UNITS_PER_COMMIT + 10


async def test_work_after_close_is_refused(path: str) -> None:
    database = await Database.open(path)
    await database.close()
    for submit in (database.write, database.read):
        with pytest.raises(DomainError) as caught:
            await submit(kept)
        assert is_unavailable(caught.value)
        assert caught.value.headers == {"Retry-After": "5"}


# The file and its connections


@pytest.mark.parametrize("mask", [0o000, 0o022])
async def test_new_file_is_for_its_owner_only(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        database = await Database.open(str(tmp_path / "deep" / "down" / "payres.db"))
        await database.write(keep("a"))
    finally:
        os.umask(before)
    files = sorted((tmp_path / "deep" / "down").iterdir())
    assert [file.name for file in files] == ["payres.db", "payres.db-shm", "payres.db-wal"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    await database.close()


async def test_writer_is_durable_and_strict(database: Database) -> None:
    def pragmas(tx: Transaction) -> dict[str, object]:
        names = ("journal_mode", "synchronous", "foreign_keys", "query_only", "busy_timeout")
        return {name: tx.execute(f"PRAGMA {name}").fetchone()[0] for name in names}

    assert await database.write(pragmas) == {
        "journal_mode": "wal",
        "synchronous": 2,  # FULL
        "foreign_keys": 1,
        "query_only": 0,
        "busy_timeout": 0,  # on the event loop's thread nothing waits
    }
    read = await database.read(pragmas)
    assert (read["journal_mode"], read["query_only"]) == ("wal", 1)


@pytest.mark.parametrize("hold", ["BEGIN IMMEDIATE", "BEGIN; SELECT count(*) FROM of_another"])
def test_first_change_to_write_ahead_logging_waits_no_longer_than_allowed(
    path: str, hold: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BUSY_TIMEOUT_SECONDS", 0.05)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.executescript("CREATE TABLE of_another (x); PRAGMA user_version = 19")
        for statement in hold.split("; "):
            other.execute(statement).fetchall()
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            connect_writer(path)
