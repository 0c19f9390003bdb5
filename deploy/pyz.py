"""`make pyz`: payres and all that it depends on in one file, dist/payres.pyz, which Python runs as it is.

It is for the minor version of the Python that runs this, and for Linux with glibc 2.28 or later on this architecture,
whatever this machine has. The wheels are those of requirements.lock, held against their hashes, and that of this
checkout; the same checkout makes the same bytes wherever it is.
"""

import hashlib
import platform
import subprocess
import sys
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

ROOT: Final = Path(__file__).parents[1]
OUTPUT: Final = ROOT / "dist" / "payres.pyz"
PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
GLIBC: Final = (2, 28)
OLDEST_GLIBC: Final = 17  # the oldest minor version for which wheels are still built
# What pyz_start.py compares with the Python and the machine that it finds.
BUILT_FOR: Final = {
    "PYTHON": PYTHON,
    "MACHINE": platform.machine(),
    "GLIBC": GLIBC,
    "EXTENSION": EXTENSION_SUFFIXES[0],
}
ZIP_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


def main() -> None:
    with TemporaryDirectory(prefix="payres-pyz-") as directory:
        wheels, packages = Path(directory, "wheels"), Path(directory, "packages")
        fetch_wheels(wheels)
        build_wheel(wheels)
        unpack(wheels, packages)
        OUTPUT.parent.mkdir(exist_ok=True)
        pack(packages, OUTPUT)
    content = OUTPUT.read_bytes()
    print(f"{OUTPUT.relative_to(ROOT)}: {len(content) / 1e6:.1f} MB, sha256 {hashlib.sha256(content).hexdigest()}")
    print(f"It runs with CPython {PYTHON} on Linux {platform.machine()} with glibc {GLIBC[0]}.{GLIBC[1]} or later.")


def fetch_wheels(directory: Path) -> None:
    """Downloads what is locked, and no wheel that asks for a newer libc than the oldest that is served."""
    tags = [f"manylinux_{GLIBC[0]}_{minor}" for minor in range(GLIBC[1], OLDEST_GLIBC - 1, -1)]
    platforms = [f"--platform={tag}_{platform.machine()}" for tag in [*tags, "manylinux2014"]]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--only-binary=:all:", "--no-deps"]
    locked = ["-qq", "--require-hashes", "-r", str(ROOT / "requirements.lock")]
    subprocess.run([*pip, *platforms, *locked, "-d", str(directory)], check=True)


def build_wheel(directory: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)


def unpack(wheels: Path, packages: Path) -> None:
    """Lays the wheels out as an installation would, without what pip adds that differs from one folder to the next."""
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            names = [
                name for name in archive.namelist() if ".data/data/share/" not in name
            ]  # manual pages and the like
            if any(name.partition("/")[0].endswith(".data") for name in names):
                raise SystemExit(f"{wheel.name} has files for other places than site-packages: lay them out here")
            archive.extractall(packages, names)


def pack(packages: Path, output: Path, built_for: dict[str, object] | None = None) -> None:
    """Makes one file of a folder of packages. `built_for` is what pyz_start.py is told, BUILT_FOR when left out."""
    with TemporaryDirectory(prefix="payres-pyz-") as directory:
        packed = Path(directory, "packed")
        options = ["--entry-point", "payres.cli:main", "--reproducible", "--uncompressed", "-o", str(packed)]
        shiv = [sys.executable, "-W", "ignore", "-m", "shiv", "--site-packages", str(packages), *options]
        subprocess.run(shiv, check=True)
        with zipfile.ZipFile(packed) as archive:
            entries = {entry: archive.read(entry) for entry in archive.namelist()}
    constants = (built_for or BUILT_FOR).items()
    entries["built_for.py"] = "".join(f"{name} = {value!r}\n" for name, value in constants).encode()
    entries["__main__.py"] = Path(__file__).with_name("pyz_start.py").read_bytes()
    write(entries, output)


def write(entries: dict[str, bytes], output: Path) -> None:
    """Writes the archive anew: shiv keeps the order and the modes that it finds on the disk."""
    with output.open("wb") as file:
        file.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(file, "w") as archive:
            for name in sorted(entries):
                entry = zipfile.ZipInfo(name, ZIP_EPOCH)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = 0o100644 << 16
                archive.writestr(entry, entries[name])
    output.chmod(0o755)


if __name__ == "__main__":
    main()
