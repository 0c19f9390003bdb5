import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx2
import pytest

from payres.core.protocol.clock import SystemClock
from payres.core.protocol.errors import NotFound, Unavailable, WrongState
from payres.core.store.work import Work
from payres.operator.backups import list_backups, require_backup
from payres.operator.declared.long_work import LongWork, LongWorks
from payres.operator.services import operator_of
from payres.operator.upkeep.backup_and_restore import make_backup
from payres.operator.upkeep.invariant_checks import ledger_scans
from tests.helpers import TIMEOUT
from tests.instance import Instance, run_instance
from tests.operator.programs import Program

NAMES = ("payres-20260101T000000Z.db", "payres-20260102T000000Z.db.broken", "payres-20260103T000000Z.db")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of three backups and of what is none."""
    folder = tmp_path / "backups"
    folder.mkdir()
    for name in (*NAMES, "payres.db", "other-20260101T000000Z.db", "payres-20260101T000000Z.db.12345678.partial"):
        (folder / name).write_bytes(b"x" * 10)
    for name in ("payres-20261399T000000Z.db", "payres-00000101T000000Z.db"):  # not at any time
        (folder / name).write_bytes(b"x" * 10)
    (folder / "payres-20260104T000000Z.db").symlink_to("/etc/passwd")
    (folder / "payres-20260105T000000Z.db").mkdir()
    return folder


@pytest.fixture
def instance(tmp_path: Path, folder: Path) -> Iterator[Instance]:
    with run_instance(tmp_path / "payres.db", backup_directory=str(folder)) as running:
        yield running


@pytest.fixture
def program(instance: Instance) -> Iterator[Program]:
    with httpx2.Client(timeout=TIMEOUT) as http:
        yield Program(instance, http, "backup:write")


def test_backups_are_listed_newest_first_and_nothing_else(instance: Instance, folder: Path, program: Program) -> None:
    listed = program.get("/backups")["result"]
    assert [(one["name"], one["state"], one["madeAt"][:10]) for one in listed] == [
        ("payres-20260103T000000Z.db", "checked", "2026-01-03"),
        ("payres-20260102T000000Z.db.broken", "broken", "2026-01-02"),
        ("payres-20260101T000000Z.db", "checked", "2026-01-01"),
    ]
    assert {(one["bytes"], one["actor"]) for one in listed} == {(10, None)}
    assert instance.read(lambda work: require_backup(work, NAMES[0])) == folder / NAMES[0]
    for name in ("payres-20260104T000000Z.db", "payres-20260105T000000Z.db", "payres.db", "../payres.db", ""):
        with pytest.raises(NotFound, match="There is no backup"):
            instance.read(partial(require_backup, name=name))


def test_backup_that_a_program_asked_for_is_listed_with_it(program: Program) -> None:
    program.post("/backups", {})
    assert program.get("/backups")["result"][0]["actor"].startswith("api:")


def test_without_a_folder_there_are_no_backups(tx: Work) -> None:
    assert list_backups(tx) == []


def test_backup_says_how_far_it_is(instance: Instance, tmp_path: Path) -> None:
    said: list[tuple[str, int, int]] = []
    make_backup(tmp_path / "payres.db", tmp_path / "copy.db", False, 0, lambda *step: said.append(step))
    assert {step for step, _, _ in said} == {"Copying", "Checking the file", "Checking the ledger"}
    [copied] = {(done, total) for step, done, total in said if step == "Copying" and done == total}
    assert copied[1] > 0
    count = len(ledger_scans())
    assert [one for one in said if one[0] == "Checking the ledger"] == [
        ("Checking the ledger", done, count) for done in range(count)
    ]


def test_backup_ends_and_leaves_nothing_when_the_server_stops(tmp_path: Path, instance: Instance) -> None:
    work = LongWork("page:ann", 0, is_stopped=True)
    with pytest.raises(Unavailable, match="The server was stopped meanwhile"):
        make_backup(tmp_path / "payres.db", tmp_path / "copy.db", False, 0, work.note)
    assert list(tmp_path.glob("copy*")) == []


def test_work_of_a_kind_runs_once_at_a_time_and_says_why_it_failed() -> None:
    async def scenario() -> None:
        works, may_end = LongWorks(SystemClock()), asyncio.Event()

        async def work(one: LongWork) -> str:
            one.note("Half", 1, 2)
            await may_end.wait()
            return "made"

        async def fail(_: LongWork) -> str:
            raise WrongState("the disk is full")

        works.begin("backup", "page:ann", lambda: works.run("backup", "page:ann", work))
        await asyncio.sleep(0)
        latest = works.latest["backup"]
        assert (latest.actor, latest.step, latest.done, latest.total, latest.ended_at) == (
            "page:ann",
            "Half",
            1,
            2,
            None,
        )
        with pytest.raises(WrongState, match="A backup is under way already"):
            works.begin("backup", "page:ben", lambda: works.run("backup", "page:ben", work))
        may_end.set()
        await asyncio.gather(*works._tasks)
        assert latest.outcome == "made"
        works.begin("backup", "page:ben", lambda: works.run("backup", "page:ben", fail))
        await asyncio.sleep(0)
        assert works.latest["backup"].problem == "the disk is full"
        may_end.clear()
        works.begin("backup", "page:ben", lambda: works.run("backup", "page:ben", work))
        await asyncio.sleep(0)
        await works.close()
        assert works.latest["backup"].ended_at is not None

    asyncio.run(scenario())


def test_backup_that_fails_says_why(instance: Instance, folder: Path, program: Program) -> None:
    folder.rename(folder.with_name("elsewhere"))
    assert program.ask("POST", "/backups", body={}).status_code == 409
    latest = operator_of(instance.context).long_works.latest["backup"]
    assert latest.ended_at is not None
    assert "which is not a directory" in latest.problem
