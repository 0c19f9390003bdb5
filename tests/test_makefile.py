"""`make run`, as far as it can be tried without an index of packages: on a folder where all is installed."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import ROOT, TIMEOUT, child, free_of_settings


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
