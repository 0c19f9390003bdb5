"""What is required, the wheel that is built of it, and `make run`, as far as it can be tried offline."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
import zipfile
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from payres import __version__
from tests.helpers import ROOT, TIMEOUT, child, free_of_settings

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
GROUPS = PROJECT["dependency-groups"]
DEPENDENCIES = [Requirement(line) for line in PROJECT["project"]["dependencies"]]
# payres subclasses or implements what these do not promise to keep.
INTERNALS_USED = {"aiosqlite", "uvicorn"}


def locked(name: str) -> dict[str, Version]:
    """The version of each package in a lock file."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return {canonicalize_name(name): Version(version) for name, version in re.findall(r"^([\w.-]+)==(\S+)", text, re.M)}


def test_one_minor_is_allowed_of_each_library_whose_internals_are_used() -> None:
    bounded = {}
    for requirement in DEPENDENCIES:
        bounds = {bound.operator: Version(bound.version) for bound in requirement.specifier}
        least, end = bounds[">="], bounds.get("<")
        if end is not None and end.release == (least.major, least.minor + 1):
            bounded[requirement.name] = least
    assert bounded.keys() >= INTERNALS_USED


@pytest.mark.parametrize(
    ("lock", "required"),
    [
        ("requirements.lock", DEPENDENCIES),
        ("requirements-build.lock", [Requirement(line) for line in GROUPS["build"]]),
        ("requirements-dev.lock", [*DEPENDENCIES, *(Requirement(line) for group in GROUPS.values() for line in group)]),
    ],
)
def test_lock_has_what_is_required(lock: str, required: list[Requirement]) -> None:
    versions = locked(lock)
    unmet = [str(one) for one in required if versions[canonicalize_name(one.name)] not in one.specifier]
    assert unmet == []


def test_locks_agree() -> None:
    everything = locked("requirements-dev.lock")
    for name in ("requirements.lock", "requirements-build.lock"):
        versions = locked(name)
        assert {package: everything.get(package) for package in versions} == versions


def test_what_only_builds_or_tests_is_not_in_the_lock_of_the_program() -> None:
    tools = {canonicalize_name(Requirement(line).name) for group in GROUPS.values() for line in group}
    assert tools.isdisjoint(locked("requirements.lock"))
    assert locked("requirements.lock").keys().isdisjoint(locked("requirements-build.lock"))


def test_this_python_is_among_those_announced() -> None:
    prefix = "Programming Language :: Python :: "
    announced = [line.removeprefix(prefix) for line in PROJECT["project"]["classifiers"] if line.startswith(prefix)]
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in announced
    assert f">={announced[0]}" == PROJECT["project"]["requires-python"]


# The wheel of this checkout: what is in it, and that it works away from the checkout


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
    assert (tmp_path / "payres.toml").read_bytes() == (ROOT / "payres" / "cli" / "payres.toml").read_bytes()
    assert run("-m", "payres", "wallet", "create", "alice", "--asset", "USD", "--scale", "2").endswith("/alice\n")
    assert "BROKEN" not in run("-m", "payres", "ledger", "check")


# `make run`, on a folder where all is installed


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the Makefile, in which the environment of these tests counts as the one that `make` has made."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("requirements.lock", "requirements-build.lock", "pyproject.toml"):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, 0))
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    (tmp_path / ".venv" / ".runtime").touch()
    return tmp_path


def at_a_terminal(**variables: str) -> dict[str, str]:
    """The environment that make has when it is not run by another make, as the one that runs these tests may be."""
    inherited = free_of_settings(**variables)
    return {name: value for name, value in inherited.items() if not name.startswith(("MAKE", "MFLAGS"))}


def test_run_ends_on_ctrl_c_without_an_error(checkout: Path) -> None:
    options: dict[str, Any] = {"cwd": checkout, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with child(["make", "run"], env=at_a_terminal(PAYRES_PORT="0"), **options) as process:
        assert process.stdout is not None
        shown: list[str] = []
        while not any(line.startswith("Try next: ") for line in shown):
            shown.append(process.stdout.readline())
            assert shown[-1], process.communicate()
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: make, its shell and the server
        output, errors = process.communicate(timeout=TIMEOUT)
    assert output == ""
    assert all(" INFO payres.http: stop" in line for line in errors.splitlines()), errors
    assert shown[0].startswith("payres ")
    assert (checkout / "var" / "payres.db").exists()


PIP = """#!/bin/sh
echo "$*" >> pip.log
case " $* " in *" -qq "*) ;; *) echo "WARNING: one of hundreds of lines" ;; esac
"""


def test_set_up_says_one_line_for_each_step(checkout: Path) -> None:
    programs = checkout / ".venv" / "bin"
    programs.unlink()
    programs.mkdir()
    (programs / "python").symlink_to(sys.executable)
    (programs / "pip").write_text(PIP)
    (programs / "pip").chmod(0o755)
    (checkout / ".venv" / ".runtime").unlink()
    (checkout / "requirements-dev.lock").touch()
    done = subprocess.run(
        ["make", ".venv/.dev", f"PYTHON={sys.executable}"],
        cwd=checkout,
        env=at_a_terminal(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=True,
    )
    steps = ["Making .venv.", "Installing what requirements.lock", "Installing payres.", "Installing the tools"]
    assert [line.startswith(step) for line, step in zip(done.stdout.splitlines(), steps, strict=True)] == [True] * 4
    assert done.stderr == ""
    assert len((checkout / "pip.log").read_text().splitlines()) == 3


def test_what_packs_the_program_is_installed_without_the_tools_of_the_tests(checkout: Path) -> None:
    shutil.copy(ROOT / "requirements-dev.lock", checkout)
    done = ["make", ".venv/.pack", f"PYTHON={sys.executable}", "PIP=true"]
    subprocess.run(done, cwd=checkout, env=at_a_terminal(), timeout=TIMEOUT, check=True)
    named = (checkout / ".venv" / "pack.lock").read_text()
    assert re.findall(r"^([\w.-]+)==", named, re.M) == ["shiv"]
    assert "--hash=sha256:" in named
