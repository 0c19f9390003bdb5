from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from payres.core.process.settings import SettingsError
from payres.core.protocol.errors import WrongState
from payres.core.store.copies import copies_into
from payres.operator.store.backups import last_backup
from payres.operator.upkeep import doctor
from payres.operator.upkeep.backup_and_restore import restore_backup
from payres.operator.upkeep.backup_schedule import make_if_due, schedule
from payres.operator.upkeep.doctor import Diagnosis
from payres.settings import load_settings
from tests.helpers import TIMEOUT, wait_until
from tests.instance import Instance, run_instance


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "back ups"


@pytest.fixture
def instance(tmp_path: Path, folder: Path) -> Iterator[Instance]:
    """A server that makes a backup an hour, and keeps two; it has made the first."""
    folder.mkdir()
    (folder / "payres-notes.db").touch()
    settings = {"backup_directory": str(folder), "backup_every": 3600, "backup_keep": 2}
    with run_instance(tmp_path / "payres.db", **settings) as running:
        wait_until(lambda: running.read(lambda work: last_backup(work, work.now)), "there is no first backup")
        yield running


def made(folder: Path) -> list[Path]:
    return sorted(folder.glob("payres-*Z.db"))


def make(instance: Instance, seconds: int) -> None:
    instance.clock.advance(seconds)
    assert instance._server.call(make_if_due(instance.context)) == 60


def test_backups_are_made_when_they_are_due_verified_and_recorded(instance: Instance, folder: Path) -> None:
    [first] = made(folder)
    make(instance, 1800)
    assert made(folder) == [first]
    make(instance, 1800)
    [_, second] = made(folder)
    make(instance, 3600)
    assert (made(folder)[0], len(made(folder))) == (second, 2), "the oldest is removed"
    assert (folder / "payres-notes.db").exists()
    newest = instance.read(lambda work: work.execute("SELECT actor, object FROM audit ORDER BY id DESC").fetchone())
    assert newest == ("server", str(made(folder)[-1]))
    restore_backup(made(folder)[-1], folder / "other.db", instance.clock.now())


def test_nothing_is_removed_if_there_is_no_new_backup(
    instance: Instance, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make(instance, 3600)
    kept = tmp_path / "elsewhere"
    folder.rename(kept)
    with pytest.raises(WrongState, match="which is not a directory"):
        make(instance, 3600)
    caplog.clear()
    assert instance._server.call(schedule(instance.context, 60)()) == 60
    [said] = caplog.records
    assert said.message.endswith("which is not a directory; next try in 60 s")
    assert said.exc_info is None
    kept.rename(folder)
    assert len(made(folder)) == 2


def test_backup_of_a_clock_that_was_ahead_neither_delays_nor_replaces(instance: Instance, folder: Path) -> None:
    ahead = [folder / f"payres-2999010{day}T000000Z.db" for day in range(1, 4)]
    for one in ahead:
        one.touch()
    [first] = set(made(folder)).difference(ahead)
    make(instance, 3600)
    found = made(folder)
    assert (len(found), found[0]) == (2, first), "those of the future go first"
    make(instance, 0)
    assert made(folder) == found


def test_what_cannot_be_removed_keeps_nothing_else(
    instance: Instance, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "payres-20010101T000000Z.db").mkdir()
    for day in (2, 3):
        (folder / f"payres-2001010{day}T000000Z.db").touch()
    real = Path.unlink

    def unlink(path: Path, missing_ok: bool = False) -> None:
        if path.name == "payres-20010102T000000Z.db":
            raise PermissionError("Operation not permitted")
        real(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink)
    make(instance, 3600)
    assert [one.name[7:15] for one in made(folder)][:2] == ["20010101", "20010102"]
    assert len(made(folder)) == 4
    assert "payres-20010102T000000Z.db cannot be removed: Operation not permitted" in caplog.text


def test_broken_copies_are_made_more_and_more_rarely_and_one_is_kept(instance: Instance, folder: Path) -> None:
    def attempts(index: str, seconds: int) -> list[float]:
        instance.write(lambda work: work.execute(f"DROP INDEX {index}").fetchall())
        step, pauses = schedule(instance.context, 3600), list[float]()
        while not pauses or sum(pauses) < seconds:
            instance.clock.advance(pauses[-1] if pauses else 3600)
            pauses.append(instance._server.call(step()))
        return pauses

    def ready() -> Any:
        answer = httpx2.get(f"{instance.base_url}/readyz", timeout=TIMEOUT)
        return answer.status_code, answer.json()["details"].get("backup")

    def broken() -> Mapping[str, Diagnosis]:
        return {one.subject: one for one in instance.read(doctor.examine) if one.fix is not None}

    assert (ready(), "broken backup" in broken()) == ((200, None), False)
    good = made(folder)
    assert attempts("account_of_asset", 0) == [3600]
    [first] = folder.glob("*.broken")
    assert attempts("wallet_of_owner", 86400 * 4) == [3600, 7200, 14400, 28800, 57600, 86400, 86400, 86400]
    [last] = folder.glob("*.broken")
    assert (last > first, made(folder)) == (True, good)
    assert ready() == (200, "failed")
    assert broken()["broken backup"].seen == f"1 backup is broken: the newest copy is {last.name}"


@pytest.mark.parametrize("is_made_now", [False, True])
def test_partial_copies_of_killed_processes_go_unless_one_is_being_made(
    instance: Instance, folder: Path, is_made_now: bool
) -> None:
    left = folder / "payres-20010101T000000Z.db.12345678.partial-journal"
    others = (folder / "payres-20010101T000000Z.db", folder / "other-20010101T000000Z.db.12345678.partial")
    for one in (left, *others):
        one.touch()
    with ExitStack() as going_on:
        if is_made_now:  # by two processes, of which the first has ended
            with copies_into(folder, folder / "payres", "-*.none"):
                going_on.enter_context(copies_into(folder, folder / "payres", "-*.none"))
        make(instance, 3600)
    assert (left.exists(), others[1].exists()) == (is_made_now, True)


def test_schedule_needs_a_folder() -> None:
    with pytest.raises(SettingsError, match=r"^backup_every is set, so backup_directory must name the folder"):
        load_settings(environment={"PAYRES_BACKUP_EVERY": "3600", "PAYRES_CONFIG": "/dev/null"})
