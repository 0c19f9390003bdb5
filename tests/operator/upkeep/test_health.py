"""Health: what the database and others say, together, and since when."""

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Event, Semaphore, Thread, current_thread

import httpx2
import pytest

from payres.core.process.worker import cancel_all
from payres.core.protocol.clock import SECOND
from payres.operator.declared.long_work import LongWork
from payres.operator.services import operator_of
from payres.operator.upkeep import doctor, health
from payres.operator.upkeep.backup_and_restore import Backup, record_backup
from payres.operator.upkeep.doctor import Diagnosis, OtherFindings, combined
from tests.helpers import TIMEOUT, Json
from tests.instance import Instance, run_instance
from tests.operator.programs import Program
from tests.works import add_usd_peer

BAD: Json = {"fix": "do"}
OK: Json = {}
WARN: Json = BAD | {"warning": True}


@pytest.fixture
def payres(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Instance]:
    """The server of a test has another port than its settings say, and the clock of this machine is not tested."""
    for name in ("_server", "_clock"):
        monkeypatch.setattr(doctor, name, lambda *_: iter(()))
    with run_instance(tmp_path_factory.mktemp("health") / "payres.db") as instance:
        yield instance


@pytest.fixture
def program(payres: Instance) -> Iterator[Program]:
    with httpx2.Client(timeout=TIMEOUT) as http:
        yield Program(payres, http)


@pytest.mark.parametrize(
    ("said", "others", "shown"),
    [
        (OK, OK, "others"),
        (OK, BAD, "others"),
        (WARN, BAD, "others"),
        (BAD, BAD, "others"),
        (BAD, OK, "said"),
        (BAD, WARN, "said"),
    ],
)
def test_a_subject_is_shown_once_as_it_is_at_worst(said: Json, others: Json, shown: str) -> None:
    found = combined([Diagnosis("mail", "said", **said, since=1)], [Diagnosis("mail", "others", **others, since=2)])
    assert [(one.seen, one.since) for one in found] == [(shown, 1)]


def test_what_is_wrong_is_so_since_it_was_found_first() -> None:
    others, down, well = OtherFindings(), Diagnosis("peer tide", "down", "ask"), Diagnosis("peer tide", "answers")
    times = []
    for now, found in enumerate([down, down, well, down], 1):
        others.note([found], now, {})
        times.append((others.looked_at, others.found[0].since))
    assert times == [(1, 1), (2, 1), (3, None), (4, 4)]


def test_what_is_wrong_is_so_since_before_the_server_was_started_again(
    payres: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    payres.clock.freeze(True)
    others, began = operator_of(payres.context).others, payres.clock.now()
    times = list[int | None]()
    for seconds, is_down in ((0, True), (60, True), (60, False), (60, True), (-120, True)):
        others.found = list[Diagnosis]()  # as after a start
        monkeypatch.setattr(doctor, "others", lambda _, is_down=is_down: [lambda: [("peer tide", "?", is_down, "ask")]])
        payres.clock.advance(seconds)
        payres._server.call(health.ask_others(payres.context))
        since = others.found[0].since
        times.append(None if since is None else (since - began) // SECOND)
    assert times == [0, 0, None, 180, 60]


def test_programs_read_it_and_have_others_asked(payres: Instance, program: Program) -> None:
    payres.write(lambda work: add_usd_peer(work, "tide", "10.00", url="http://127.0.0.1:1/ilp"))
    assert program.get("/health")["lookedAt"] is None
    first = program.post("/health/looks", {})
    [peer] = [one for one in first["findings"] if one["subject"] == "peer tide"]
    assert (first["ok"], peer["state"], peer["since"]) == (False, "wrong", first["lookedAt"])
    payres.clock.advance(60)
    assert payres._server.call(health.ask_others(payres.context)) == health.LOOK_SECONDS
    later = program.get("/health")
    assert later["lookedAt"] > first["lookedAt"]
    assert [one["since"] for one in later["findings"] if one["subject"] == "peer tide"] == [peer["since"]]


def test_others_are_asked_again_and_again(payres: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Semaphore(0)
    for name in ("FIRST_SECONDS", "LOOK_SECONDS"):
        monkeypatch.setattr(health, name, 0)

    def answers() -> Iterator[doctor.Look]:
        asked.release()
        yield "peer tide", "it answers", False, ""

    async def look_twice() -> bool:
        looking = asyncio.create_task(health.keep_looking(payres.context))
        both = [await asyncio.to_thread(asked.acquire, timeout=TIMEOUT) for _ in range(2)]
        await cancel_all([looking])
        return all(both)

    monkeypatch.setattr(doctor, "others", lambda _: [answers])
    assert payres._server.call(look_twice())


def test_server_that_stops_waits_for_nobody_who_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, stopped, threads = Event(), Event(), list[Thread]()

    def silent() -> Iterator[doctor.Look]:
        threads.append(current_thread())
        asked.set()
        yield "peer tide", "it answered late", not stopped.wait(TIMEOUT), ""

    monkeypatch.setattr(doctor, "others", lambda _: [silent])
    with run_instance(tmp_path / "payres.db") as instance:
        context = instance.context

        async def begin() -> None:
            operator_of(context).long_works.begin("look", "page:ann", partial(health.ask_others, context))

        instance._server.call(begin())
        assert asked.wait(TIMEOUT)
    assert (threads[0].is_alive(), threads[0].daemon) == (True, True), "the server has stopped meanwhile"
    stopped.set()
    threads[0].join(TIMEOUT)


def test_backup_that_failed_counts_until_a_later_one_is_good(payres: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong() -> set[str]:
        found = payres.read(lambda work: health.examine_all(work, payres.context))
        return {one.subject for one in found if one.fix}

    now = payres.clock.now()
    failed = LongWork("server", now, ended_at=now, problem="The backup could not be made: no space left")
    monkeypatch.setitem(operator_of(payres.context).long_works.latest, "backup", failed)
    assert "failed backup" in wrong()
    payres.clock.advance(1)
    payres.write(lambda work: record_backup(work, Backup(Path("/backups/1.db"), 1, 1)))
    assert "failed backup" not in wrong()
