"""`make dist`: a release in dist/. A wheel, the sources, payres.pyz, a bill of materials, and the SHA-256 sums of all.

The same commit makes the same bytes, with the same minor version of Python.
"""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from deploy import pyz
from payres import __version__

DIST: Final = pyz.OUTPUT.parent
SUMS: Final = "SHA256SUMS"


def main() -> None:
    DIST.mkdir(exist_ok=True)
    for old in DIST.iterdir():
        old.unlink()
    build(DIST)
    list_materials(DIST / f"payres-{__version__}.cdx.json")
    pyz.main()
    files = sorted(DIST.iterdir())
    (DIST / SUMS).write_text("".join(f"{sha256(file)}  {file.name}\n" for file in files))
    print((DIST / SUMS).read_text(), end="")


def build(folder: Path) -> None:
    """The wheel and the sources, all of whose files have the time of the commit."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    environment = os.environ | {"SOURCE_DATE_EPOCH": commit_time()}
    subprocess.run(command, cwd=pyz.ROOT, env=environment, check=True, capture_output=True)


def list_materials(file: Path) -> None:
    """What the lock file names, in CycloneDX; tests/test_dist.py holds it to the schema."""
    tool = [sys.executable, "-W", "ignore", "-m", "cyclonedx_py", "requirements", "--pyproject", "pyproject.toml"]
    form = ["--no-validate", "--output-reproducible", "--short-PURLs", "--of", "JSON", "-o", str(file)]
    subprocess.run([*tool, *form, "requirements.lock"], cwd=pyz.ROOT, check=True, capture_output=True)
    content = json.loads(file.read_text())
    content["metadata"]["component"]["version"] = __version__  # which pyproject.toml does not have
    for component in content["components"]:
        del component["description"]  # the line of the lock file
    file.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


def commit_time() -> str:
    """In seconds since 1970; where there is no commit, that of the oldest entry that a zip file can have."""
    asked = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=pyz.ROOT, capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() or "315532800"


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
