"""`python -m benchmarks`: measures and prints the tables."""

import os
import platform
import sqlite3
import tempfile
from pathlib import Path
from time import perf_counter

import click
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks import CannotMeasure
from benchmarks.measures import FULL, QUICK, measure
from benchmarks.replay import require_wrk
from benchmarks.report import Report

# Unlike /tmp, which may lie in memory, this directory lies on a disk: durable commits shall cost what they cost.
DIRECTORY = "/var/tmp"


@click.command()
@click.option("--quick", is_flag=True, help="One short round: shows that everything runs, and judges nothing.")
@click.option("--directory", default=DIRECTORY, show_default=True, help="Where the databases are made, for the time.")
def main(quick: bool, directory: str) -> None:
    """Measure payres against a bare application and against its own growth. Takes about seven minutes."""
    extent = QUICK if quick else FULL
    try:
        require_wrk()
        with tempfile.TemporaryDirectory(prefix="payres-benchmarks-", dir=directory) as temporary:
            click.echo(_machine(Path(temporary)), err=True)
            figures = measure(Path(temporary), extent, lambda progress: click.echo(progress, err=True))
    except (CannotMeasure, OSError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(Report(figures, extent, judged=not quick).text())


def _machine(directory: Path) -> str:
    """What bounds the figures here: the processor's Ed25519 and the disk's durable write, in microseconds."""
    key = Ed25519PrivateKey.generate()
    message = bytes(400)
    signature, public_key = key.sign(message), key.public_key()
    began = perf_counter()
    for _ in range(1000):
        public_key.verify(signature, message)
    verification = (perf_counter() - began) * 1e3
    with (directory / "durable").open("wb") as file:
        began = perf_counter()
        for _ in range(100):
            file.write(bytes(4096))
            file.flush()
            os.fdatasync(file.fileno())
        durable_write = (perf_counter() - began) * 1e4
    return (
        f"{os.cpu_count()} cores, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version};"
        f" one Ed25519 verification takes {verification:.0f} µs, one durable write of 4 KiB {durable_write:.0f} µs"
    )


if __name__ == "__main__":
    main()
