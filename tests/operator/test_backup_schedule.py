from collections.abc import Iterator
from pathlib import Path

import pytest

from payres.core.process.settings import SettingsError, load_settings
from payres.core.protocol.errors import WrongState
from payres.operator.backups import restore_backup
from payres.operator.kept_backups import make_if_due
from payres.operator.store.status import last_backup
from tests.helpers import wait_until
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


def test_nothing_is_removed_if_there_is_no_new_backup(instance: Instance, folder: Path, tmp_path: Path) -> None:
    make(instance, 3600)
    kept = tmp_path / "elsewhere"
    folder.rename(kept)
    with pytest.raises(WrongState, match="which is not a directory"):
        make(instance, 3600)
    kept.rename(folder)
    assert len(made(folder)) == 2


def test_backup_of_a_clock_that_was_ahead_neither_delays_nor_replaces(instance: Instance, folder: Path) -> None:
    (folder / "payres-29990101T000000Z.db").touch()
    make(instance, 3600)
    found = made(folder)
    assert len(found) == 2
    make(instance, 0)
    assert made(folder) == found


def test_schedule_needs_a_folder() -> None:
    with pytest.raises(SettingsError, match=r"^backup_every is set, so backup_directory must name the folder"):
        load_settings(environment={"PAYRES_BACKUP_EVERY": "3600", "PAYRES_CONFIG": "/dev/null"})
