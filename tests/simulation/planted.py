"""`make simulate PLANTED=1`: which seed finds each planted fault, a small wrong change of the program. Those of which
the patch says that no seed does are for the tests that it names."""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Final

TOP: Final = Path(__file__).parents[2]
PATCHES: Final = Path(__file__).parent / "planted"  # each begins with a line that says what is wrong
NOT_BY_A_SEED: Final = "Not by a seed, but by "
SEEDS: Final = 200


def main(arguments: Sequence[str]) -> int:
    """The exit code: 1 unless all were found."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.planted", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a patch in the folder planted; all if none is given")
    parser.add_argument("--seed", type=int, default=1, help="the first one (SEED)")
    parser.add_argument("--seeds", type=at_least_one, default=SEEDS, help=f"how many at most; {SEEDS} (SEEDS)")
    parser.add_argument("--days", type=at_least_one, default=2, help="how many storms each has (DAYS)")
    options = parser.parse_args(arguments)
    known = sorted(patch.stem for patch in PATCHES.glob("*.patch"))
    names = options.names or known
    if unknown := set(names).difference(known):
        parser.error(f"no such patch: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    seeds = ("--seed", str(options.seed), "--seeds", str(options.seeds), "--days", str(options.days))
    missed, running = 0, list[subprocess.Popen[str]]()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            for looked in as_completed([pool.submit(look_for, name, seeds, running) for name in names]):
                name, about, seed, violation = looked.result()
                print(f"{name:32} {seed or 'NOT FOUND':10} {violation[:140]}\n    {about}", flush=True)
                missed += not seed
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in running:
                process.terminate()
    print(f"{len(names) - missed} of {len(names)} planted faults were found")
    return 1 if missed else 0


def at_least_one(text: str) -> int:
    """A number of an argument. Raises ArgumentTypeError."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def look_for(name: str, seeds: Sequence[str], running: list[subprocess.Popen[str]]) -> tuple[str, str, str, str]:
    """Runs seeds of the program with a planted fault, one after the other, or tests, to the first violation: with what
    the fault does, that seed and the violation, which are empty if there is none. What is `running` may be ended."""
    about, tests = described(name)
    with tempfile.TemporaryDirectory() as folder:
        plant(name, Path(folder))
        looks = (
            ("pytest", "-qx", "--tb=no", tests) if tests else ("tests.simulation", *seeds, "--jobs=1", "--no-shrink")
        )
        process = subprocess.Popen(
            [sys.executable, "-m", *looks],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": folder},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        running.append(process)
        said, _ = process.communicate()
        running.remove(process)
    violation = re.search(r"^(?:SEED|(FAILED)) (.+?)(?:: (.*))?$", said, re.MULTILINE)
    if violation is None and process.returncode:
        raise RuntimeError(f"{name}: {said}")
    if violation is None:
        return name, about, "", ""
    return name, about, *(("tests", violation[2]) if violation[1] else (f"seed {violation[2]}", violation[3]))


def described(name: str) -> tuple[str, str]:
    """What a planted fault does, and the file of the tests that find it; "" if seeds do."""
    about, second, *_ = (PATCHES / f"{name}.patch").read_text(encoding="utf-8").splitlines()
    return about, second.partition(NOT_BY_A_SEED)[2]


def plant(name: str, folder: Path) -> None:
    """Makes a tree of the program with a planted fault. Raises CalledProcessError if the patch fits no longer."""
    shutil.copytree(TOP / "payres", folder / "payres", ignore=shutil.ignore_patterns("__pycache__"))
    for beside in TOP.iterdir():
        if beside.name not in {"payres", ".git"}:
            (folder / beside.name).symlink_to(beside)
    subprocess.run(["git", "apply", str(PATCHES / f"{name}.patch")], cwd=folder, check=True, capture_output=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
