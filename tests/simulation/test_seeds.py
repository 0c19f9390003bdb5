"""Seeds of the simulation: nothing is violated, and a second run of the first is the same to the last byte."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

TOP: Final = Path(__file__).parents[2]
FIRST: Final = os.environ.get("SIMULATION_SEED", "1")
SEEDS: Final = os.environ.get("SIMULATED_SEEDS", "20")
DAYS: Final = os.environ.get("SIMULATED_DAYS", "1")


def test_payres_imported_before_the_switches_is_refused() -> None:
    early = "import payres.core.protocol.clock, tests.simulation.switches"
    done = subprocess.run([sys.executable, "-c", early], cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "payres was imported before tests.simulation.switches" in done.stderr


def test_new_databases_are_the_same_in_every_process() -> None:
    of_one = "from tests.simulation import switches\nfrom tests.simulation.server import new_database as made\n"
    command = [sys.executable, "-c", f"{of_one}print(made.__wrapped__() == made.__wrapped__())"]
    assert subprocess.run(command, cwd=TOP, stdout=subprocess.PIPE, text=True, check=True).stdout == "True\n"


def test_nothing_is_violated_whatever_happens() -> None:
    """In an interpreter of its own, whose time and chance are switched before it imports payres."""
    command = [sys.executable, "-m", "tests.simulation", "--seed", FIRST, "--seeds", SEEDS, "--days", DAYS]
    done = subprocess.run(command, cwd=TOP, stdout=subprocess.PIPE, text=True, check=False)
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, done.stdout
    assert f"{int(SEEDS):,} seeds" in done.stdout
    assert " 0 due work: " not in done.stdout, "no seed has work of this kind: let people cause it"
