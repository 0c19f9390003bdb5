"""Commands without permission for a file: they name its owner, and the user who runs them."""

import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest

from payres.cli.session import explain_denial
from tests.cli.conftest import CREATE, Command
from tests.helpers import set_system_config

NOBODY = 65534


@contextmanager
def powerless() -> Iterator[str]:
    """Runs the block as a user without rights, and returns the user; root drops its rights meanwhile."""
    before = os.geteuid()
    os.seteuid(before or NOBODY)
    try:
        yield pwd.getpwuid(os.geteuid()).pw_name
    finally:
        os.seteuid(before)


def run(payres: Command, *arguments: str) -> tuple[str, str]:
    """The one sentence that a command fails with, and the user who ran it."""
    with powerless() as user:
        result = payres(*arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    [line] = result.stderr.splitlines()
    return line, user


def check(line: str, path: Path, user: str) -> None:
    owner, mode = path.owner(), path.stat().st_mode & 0o7777
    assert f"{path} belongs to {owner} and has mode {mode:04o}, and this command runs as {user}: " in line
    if owner == user:
        assert line.endswith("change the mode with chmod")
    else:
        assert line.endswith(
            f"run it as {owner}, for example with `sudo -u {owner}`, or give the file to {user} with chown"
        )


@pytest.fixture
def made(payres: Command, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A database in its own directory, which everyone may use: that of pytest is closed to other users."""
    with TemporaryDirectory() as name:
        directory = Path(name).resolve()
        directory.chmod(0o777)
        monkeypatch.chdir(directory)
        payres(*CREATE)
        yield directory / "payres.db"
        monkeypatch.undo()


@pytest.mark.parametrize(
    "arguments",
    [
        ("wallet", "list"),
        ("wallet", "create", "bob", "--asset", "USD", "--scale", "2"),
        ("ledger", "check"),
        ("backup", "copy.db"),
    ],
    ids=" ".join,
)
def test_database_of_another_user_is_named_with_its_owner(
    payres: Command, made: Path, arguments: tuple[str, ...]
) -> None:
    made.chmod(0)
    line, user = run(payres, *arguments)
    check(line, made, user)


@pytest.mark.parametrize("arguments", [("wallet", "list"), ("init",), ("restore", "backup.db")], ids=" ".join)
def test_directory_that_cannot_be_entered_is_named(payres: Command, made: Path, arguments: tuple[str, ...]) -> None:
    payres("backup", "backup.db")
    Path("backup.db").chmod(0o644)
    (made.parent / "closed").mkdir(mode=0)
    line, user = run(payres, *arguments, "--database", "closed/payres.db")
    check(line, made.parent / "closed", user)


def test_settings_of_the_service_count_in_a_folder_that_cannot_be_entered(
    payres: Command, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with `sudo -u payres` in the home directory of root."""
    made.chmod(0o666)
    closed = made.parent / "closed"
    closed.mkdir()
    monkeypatch.chdir(closed)
    closed.chmod(0)
    line, _ = run(payres, "wallet", "list")
    assert line.startswith(f"Error: There is no database at {closed}/payres.db (nothing names one: ")
    line, user = run(payres, "wallet", "list", "--database", "other.db")
    assert line.endswith(f": change to a folder that {user} may use, or name the file with its whole path")
    config = made.parent / "service.toml"
    config.write_text(f'database = "{made}"')
    monkeypatch.setattr("payres.core.process.settings.SYSTEM_CONFIG", config)
    with powerless():
        assert payres("wallet", "list").exit_code == 0


def test_settings_of_a_service_that_may_not_be_read_are_left_to_it(
    payres: Command, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, folder = made.parent / "service.toml", made.parent / "folder"
    config.write_text(f'database = "{made}"')
    config.chmod(0)
    set_system_config(monkeypatch, config)
    folder.mkdir()
    folder.chmod(0o777)
    monkeypatch.chdir(folder)
    line, user = run(payres, "wallet", "list")
    assert f" may be read: {config} belongs to " in line
    assert f"and this command runs as {user}" in line
    with powerless():
        assert payres("init").exit_code == 0
    assert (folder / "payres.toml").exists()


@pytest.mark.parametrize(
    ("name", "says"),
    [("payres.db-wal", "Error: "), ("payres.toml", "Error: payres.toml cannot be read: Permission denied; ")],
)
def test_file_of_another_user_beside_the_database_is_named(payres: Command, made: Path, name: str, says: str) -> None:
    """A command that root ran has left a log behind."""
    made.chmod(0o666)
    file = made.with_name(name)
    file.touch()
    file.chmod(0)
    line, user = run(payres, "wallet", "list")
    assert line.startswith(says)
    check(line, file, user)


def test_output_that_may_not_be_written_is_named(payres: Command, made: Path) -> None:
    made.chmod(0o666)
    (made.parent / "closed").mkdir(mode=0o500)
    line, user = run(payres, "key", "generate", "alice", "--out", "closed/private.pem")
    check(line, made.parent / "closed", user)


def test_owner_without_a_name_is_given_to_sudo_as_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = tmp_path.stat().st_uid
    user = owner + 1
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    advice = f"run it as {owner}, for example with `sudo -u '#{owner}'`, or give the file to {user} with chown"
    assert explain_denial(tmp_path).endswith(advice)


def test_file_system_that_is_mounted_read_only_is_named_where_reading_is_not_what_is_denied(
    payres: Command, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_RDONLY))
    made.chmod(0o444)
    line, _ = run(payres, "wallet", "create", "bob", "--asset", "USD", "--scale", "2")
    assert line.endswith(f"{made} is on a file system that is mounted read-only: remount it for writing")
    made.chmod(0)
    line, user = run(payres, "wallet", "list")
    check(line, made, user)
