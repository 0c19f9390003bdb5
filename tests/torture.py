"""`make torture`: what `make test` does in seconds, for hours. It names its seed and stops at the first violation.

Each variable can be set to make its series longer or shorter, and TORTURE_SEED to draw everything again. Arguments are
the names of series; without any, all are run.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from random import SystemRandom
from typing import Final, NamedTuple

SEEDS: Final = (
    "CRASH_SEED",
    "REMOTE_SEED",
    "POWER_CUT_SEED",
    "FAULT_SEED",
    "FUZZ_SEED",
    "OPENAPI_SEED",
    "SIMULATION_SEED",
)


class Series(NamedTuple):
    """Tests, and the variables that give them their full length."""

    lengths: Mapping[str, str]
    tests: Sequence[str]


ALL: Final = {
    "simulation": Series({"SIMULATED_SEEDS": "10000", "SIMULATED_DAYS": "2"}, ["tests/simulation/test_seeds.py"]),
    "kills": Series({"CRASH_KILLS": "500"}, ["tests/crash/test_load.py", "tests/crash/test_kill.py"]),
    "power": Series({"POWER_CUTS": "500"}, ["tests/crash/test_power_cut.py"]),
    "faults": Series({"FAULT_ROUNDS": "10", "FAULT_SECONDS": "30"}, ["tests/crash/test_faults.py"]),
    "remote": Series({"REMOTE_KILLS": "10", "REMOTE_PACKETS": "3000"}, ["tests/crash/test_remote_kill.py"]),
    "copies": Series(
        {"CRASH_BACKUPS": "50", "LITESTREAM_LOSSES": "10"},
        ["tests/crash/test_backup.py", "tests/crash/test_litestream.py"],
    ),
    "fuzz": Series(
        {"FUZZ_CASES": "100000", "SLOW_CONNECTIONS": "10000"}, ["tests/attacks", "tests/accounts/test_passkeys.py"]
    ),
    "rights": Series({"ENDED_RIGHTS": "1000"}, ["tests/core/http/test_authorize_ended_rights.py"]),
    "documents": Series({"OPENAPI_CASES": "20000"}, ["tests/openapi"]),
    # Hypothesis marks what it has made.
    "properties": Series({"PROPERTY_EXAMPLES": "5000"}, ["-m", "hypothesis", "tests"]),
}


def main(names: Sequence[str]) -> int:
    """The exit code: that of the first series that fails, or 0."""
    if unknown := set(names) - ALL.keys():
        print(f"There is no series {', '.join(sorted(unknown))}; there are {', '.join(ALL)}")
        return 2
    seed = os.environ.get("TORTURE_SEED") or str(SystemRandom().getrandbits(31))
    print(f"TORTURE_SEED={seed}", flush=True)
    for name in names or ALL:
        lengths, tests = ALL[name]
        variables = dict.fromkeys(SEEDS, seed) | dict(lengths)
        variables |= {variable: os.environ[variable] for variable in variables if variable in os.environ}
        shown = " ".join(f"{variable}={variables[variable]}" for variable in lengths)
        print(f"\n{name}: {shown} {' '.join(tests)}", flush=True)
        seeds = ["-p", "no:randomly", f"--hypothesis-seed={seed}"]
        command = [sys.executable, "-m", "pytest", "-x", "-s", "-q", *seeds, *tests]
        code = subprocess.run(command, env=os.environ | variables, check=False).returncode
        if code:
            print(f"\n{name} has failed: TORTURE_SEED={seed} {shown}")
            return code
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
