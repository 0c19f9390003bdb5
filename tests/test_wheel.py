"""The wheel of this checkout: what is in it, and that it works away from the checkout. Built offline."""

import subprocess
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

from payres import __version__
from tests.helpers import ROOT, free_of_settings

INFO = f"payres-{__version__}.dist-info"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as hatchling, which pip calls, builds it."""
    directory = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    [built] = directory.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def unpacked(wheel: Path) -> Path:
    """The wheel as an installation would lay it out."""
    directory = wheel.parent / "site-packages"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(directory)
    return directory


def test_wheel_has_every_file_of_the_package_and_the_schema(wheel: Path) -> None:
    package = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "payres").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if not name.startswith(INFO)}
        assert packed == package | {"payres/schema.sql"}
        assert archive.read("payres/schema.sql") == (ROOT / "schema.sql").read_bytes()
        assert archive.read(f"{INFO}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()


def test_wheel_announces_the_command_and_the_pytest_plugin(unpacked: Path) -> None:
    points = (unpacked / INFO / "entry_points.txt").read_text()
    assert "[console_scripts]\npayres = payres.cli:main\n" in points
    assert "[pytest11]\npayres = payres.testing.plugin\n" in points
    metadata = HeaderParser().parsestr((unpacked / INFO / "METADATA").read_text(encoding="utf-8"))
    assert (metadata["Name"], metadata["Version"], metadata["License-Expression"]) == (
        "payres",
        __version__,
        "Apache-2.0",
    )


def test_wheel_works_from_any_folder(unpacked: Path, tmp_path: Path) -> None:
    environment = free_of_settings(PYTHONPATH=str(unpacked))

    def run(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
        return done.stdout

    assert Path(run("-c", "import payres; print(payres.__file__)").strip()).is_relative_to(unpacked)
    run("-m", "payres", "init")
    assert (tmp_path / "payres.toml").read_bytes() == (ROOT / "payres" / "templates" / "payres.toml").read_bytes()
    assert run("-m", "payres", "wallet", "create", "alice", "--asset", "USD", "--scale", "2").endswith("/alice\n")
    assert "BROKEN" not in run("-m", "payres", "ledger", "check")
