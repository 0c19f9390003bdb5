"""Twenty seeds of the simulation, each run twice: nothing is violated, and both runs are the same to the last byte."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

TOP: Final = Path(__file__).parents[2]
SEEDS: Final = 20


def simulated(*arguments: str) -> str:
    """What `python -m tests.simulation` prints, in an interpreter of its own. Fails with that if it fails."""
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def hashes() -> str:
    return simulated("--seed", "1", "--seeds", str(SEEDS), "--hashes")


def test_nothing_is_violated(hashes: str) -> None:
    assert len(hashes.splitlines()) == SEEDS
