import subprocess
import sys
from pathlib import Path

import pytest

from payres.application import create_app
from payres.settings import Settings
from payres.store.server_lock import DatabaseServed, server_lock

HOLD_UNTIL_KILLED = """
import sys
from payres.store.server_lock import server_lock
with server_lock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_second_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    database = str(tmp_path / "payres.db")
    with server_lock(database):
        with pytest.raises(DatabaseServed, match=r"A payres serves .*payres\.db or restores it: stop that one first"):
            server_lock(database).__enter__()
        with server_lock(str(tmp_path / "other.db")):
            pass
    with server_lock(database):
        pass


def test_lock_ends_with_the_block_that_fails(tmp_path: Path) -> None:
    database = str(tmp_path / "payres.db")
    with pytest.raises(ZeroDivisionError), server_lock(database):
        _ = 1 // 0
    with server_lock(database):
        pass


def test_a_link_to_the_database_is_the_same_database(tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "payres.db")
    with server_lock(str(link)), pytest.raises(DatabaseServed):
        server_lock(str(tmp_path / "payres.db")).__enter__()


def test_killed_process_lets_go(tmp_path: Path) -> None:
    database = str(tmp_path / "payres.db")
    command = [sys.executable, "-c", HOLD_UNTIL_KILLED, database]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(DatabaseServed):
            server_lock(database).__enter__()
        process.kill()
    with server_lock(database):
        pass


def test_file_beside_the_database_is_private_and_stays(tmp_path: Path) -> None:
    with server_lock(str(tmp_path / "new" / "payres.db")):
        pass
    assert (tmp_path / "new" / "payres.db.lock").stat().st_mode & 0o777 == 0o600


def test_databases_in_memory_are_not_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with server_lock(":memory:"), server_lock(":memory:"):
        assert list(tmp_path.iterdir()) == []


async def test_application_that_starts_holds_it_and_one_that_cannot_does_not_open_the_database(tmp_path: Path) -> None:
    settings = Settings(database=str(tmp_path / "payres.db"))
    first, second = create_app(settings), create_app(settings)
    async with first.router.lifespan_context(first):
        with pytest.raises(DatabaseServed):
            await second.router.lifespan_context(second).__aenter__()
    async with second.router.lifespan_context(second):
        pass
