"""`python -m benchmarks`: measures and prints the tables."""

import os
import platform
import shutil
import signal
import sqlite3
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

import click
import msgspec
from nacl.bindings import crypto_sign, crypto_sign_keypair, crypto_sign_open

from benchmarks import CannotMeasure
from benchmarks.figures import Figures, beside_rafiki, last_before, load, put_into, report, store
from benchmarks.load import require_wrk
from benchmarks.measures import FULL, QUICK, Measurement
from benchmarks.population import FEW_PAYMENTS

ROOT = Path(__file__).parents[1]
CACHE = ROOT / ".benchmarks"
FILE, EXISTING = click.Path(path_type=Path), click.Path(path_type=Path, exists=True)
BYTES_OF_A_PAYMENT = 400  # with its indexes, in the database that is kept and in the run's copy


@click.command()
@click.option("--quick", is_flag=True, help="Three short rounds, which judge nothing.")
@click.option("--payments", type=click.IntRange(min=FEW_PAYMENTS), help="Incoming payments in the large database.")
@click.option("--cache", type=FILE, default=CACHE, help="Where databases and figures are, on a disk.")
@click.option("--compare", type=EXISTING, help="A file of figures, instead of the last run's.")
@click.option("--write-page", is_flag=True, help="Puts the tables into benchmarks/figures.md and README.md.")
def main(quick: bool, payments: int | None, cache: Path, compare: Path | None, write_page: bool) -> None:
    """Measure payres against a bare application and against its own growth."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and not at once: the servers must be stopped
    extent = QUICK if quick else FULL
    if payments is not None:
        extent = msgspec.structs.replace(extent, payments=payments)
    try:
        require_wrk()
        cache.mkdir(parents=True, exist_ok=True)
        needed = extent.payments * BYTES_OF_A_PAYMENT
        if shutil.disk_usage(cache).free < needed:
            raise CannotMeasure(
                f"{cache} has not the {needed / 1e9:.1f} GB free that this takes; --payments takes less"
            )
        before = load(compare) if compare is not None else None
        with tempfile.TemporaryDirectory(prefix="run-", dir=cache) as temporary:
            taken, machine = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}", _machine(Path(temporary))
            figures = Figures(taken, platform.node(), machine, quick, extent.payments)
            Measurement(Path(temporary), cache, extent, figures, lambda progress: click.echo(progress, err=True)).run()
    except (CannotMeasure, OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    file = store(cache, figures)
    before = before or last_before(cache, figures)
    click.echo(report(figures, before))
    if before is not None:
        click.echo(f"\nThe changes are those since the run of {before.taken}.")
    click.echo(f"\nThe figures are in {file}.")
    if write_page:
        put_into(ROOT / "benchmarks" / "figures.md", report(figures))
        put_into(ROOT / "README.md", beside_rafiki(figures))


def _machine(directory: Path) -> str:
    """What bounds the figures here: the processor's Ed25519 and the disk's durable write, in microseconds."""
    public_key, private_key = crypto_sign_keypair()
    signed = crypto_sign(bytes(400), private_key)
    began = perf_counter()
    for _ in range(1000):
        crypto_sign_open(signed, public_key)
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
