"""`make pythons`: the tests of what depends most on the version of Python, under each other version that pyproject.toml
names and this machine has."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
VERSIONS: Final[Sequence[str]] = re.findall(
    r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text()
)
# Bodies, grants and sign-in, SQL, the client, and servers for the tests of apps.
ROOMS: Final = ("core/protocol/test_wire.py", "core/grants", "core/store", "client", "testing")
LOCKS: Final = ("requirements-dev.lock", "requirements-build.lock")
ORDER: Final = ("--dist", "loadfile", "--no-loadscope-reorder", "-p", "randomly", "--randomly-seed=1")


def main() -> None:
    here = "{}.{}".format(*sys.version_info)
    for version in VERSIONS:
        program = find(version)
        if version == here:
            print(f"Python {version} runs the whole suite: make test", flush=True)
        elif program is None:
            print(f"Python {version}: not on this machine, not tested", flush=True)
        else:
            print(f"Python {version}: {program}", flush=True)
            check(program, ROOT / ".venv/pythons" / version)


def find(version: str) -> str | None:
    """A Python of this version, of pyenv or on the path, that can make virtual environments."""
    of_pyenv = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python"))
    for program in (*map(str, of_pyenv), f"python{version}"):
        try:
            subprocess.run([program, "-c", "import ensurepip, venv"], capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError):  # not there, or a shim for nothing
            continue
        return program
    return None


def check(program: str, folder: Path) -> None:
    """Installs what is locked and runs the tests. Exits if one fails."""
    run(program, "-m", "venv", str(folder))
    python = str(folder / "bin/python")
    # Nothing is compiled in advance: that takes a third of the time, and most is never imported.
    install = (python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-compile")
    run(*install, "--require-hashes", *(f"--requirement={name}" for name in LOCKS))
    run(*install, "--no-deps", "--no-build-isolation", "--editable", ".")
    workers = os.environ.get("PYTEST_WORKERS", "3")
    run(python, "-m", "pytest", "-q", "-n", workers, *ORDER, *(f"tests/{name}" for name in ROOMS))


def run(*command: str) -> None:
    finished = subprocess.run(command, cwd=ROOT, check=False)
    if finished.returncode:
        sys.exit(f"This failed: {' '.join(command)}")


if __name__ == "__main__":
    main()
