"""Seeds of the simulation: nothing is violated, and a second run of the first is the same to the last byte."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

TOP: Final = Path(__file__).parents[2]
FIRST: Final = os.environ.get("SIMULATION_SEED", "1")
SEEDS: Final = os.environ.get("SIMULATED_SEEDS", "20")
DAYS: Final = os.environ.get("SIMULATED_DAYS", "1")
# Seeds that found something once: the seed, its days, and the faults that mattered.
KEPT: Final[dict[str, tuple[str, str, str]]] = {}


def simulate(*arguments: str) -> str:
    """What the simulation prints, in an interpreter of its own. Fails with that if something was violated."""
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    done = subprocess.run(command, cwd=TOP, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_nothing_is_violated_whatever_happens() -> None:
    found = simulate("--seed", FIRST, "--seeds", SEEDS, "--days", DAYS)
    sys.stdout.write(found)
    assert f"{int(SEEDS):,} seeds" in found


@pytest.mark.parametrize("name", KEPT)
def test_what_was_found_once_stays_right(name: str) -> None:
    seed, days, only = KEPT[name]
    simulate("--seed", seed, "--days", days, "--only", only)
