"""`payres export`: payments, the ledger and statements, as CSV or as lines of JSON."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps

import click

from payres.cli.commands import Group
from payres.cli.options import Time
from payres.cli.session import Session, with_session
from payres.clock import LATEST
from payres.operator import exports
from payres.operator.exports import Export, Format
from payres.operator.wallets import named_wallet


def _export_command(make: Callable[..., Export]) -> Callable[..., None]:
    """Makes a command of what makes an export of a wallet or of all, from one time until just before another."""

    @click.option("--from", "since", type=Time(), metavar="TIME", default=0, help="From a day or a time on (UTC).")
    @click.option("--to", "until", type=Time(), metavar="TIME", default=LATEST, help="Until just before it (UTC).")
    @click.option("--format", "form", type=click.Choice(["csv", "jsonl"]), default="csv", show_default=True)
    @with_session
    @wraps(make)
    def command(session: Session, wallet: str | None, since: int, until: int, form: Format) -> None:
        if since >= until:
            raise click.UsageError("--from must be before --to")
        path = None if wallet is None else named_wallet(session.environment, wallet)
        _write(session, make(path, since, until), form)

    return command


@click.group(cls=Group)
def export() -> None:
    """The rows go to standard output, in constant memory."""


@export.command(example="payres export payments --from 2026-01-01 --to 2026-02-01 > january.csv")
@click.option("--wallet", metavar="PATH", help="Of this wallet only.")
@_export_command
def payments(wallet: str | None, since: int, until: int) -> Export:
    """Export incoming and outgoing payments, oldest first."""
    return exports.Payments(since, until, wallet)


@export.command(example="payres export ledger --format jsonl > ledger.jsonl")
@click.option("--wallet", metavar="PATH", help="Of the account of this wallet only.")
@_export_command
def ledger(wallet: str | None, since: int, until: int) -> Export:
    """Export every transfer of the ledger, oldest first."""
    return exports.Ledger(since, until, wallet)


@export.command(example="payres export statement --wallet alice --from 2026-01-01 --to 2026-02-01")
@click.option("--wallet", metavar="PATH", required=True, help="The wallet.")
@_export_command
def statement(wallet: str, since: int, until: int) -> Export:
    """Export what went into a wallet and out of it.

    Each line has the balance after it. The first is the opening balance, the last the closing one.
    """
    return exports.Statement(wallet, since, until)


def _write(session: Session, export: Export, form: Format) -> None:
    if session.as_json:
        raise click.UsageError("An export is a table and no single object: use --format jsonl")
    if sys.stdout is None:
        raise click.ClickException("There is no standard output to write to")
    rows = session.read(export.step)  # before the heading, so that an unknown wallet leaves no half file
    with _progress(export) as show:
        _print(exports.heading(export, form) + exports.lines(export, rows, form))
        while not export.done:
            _print(exports.lines(export, session.read(export.step), form))
            show()


def _print(text: str) -> None:
    """Prints it all now: when the program ends, a full disk would be no error in a sentence any more."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        error.filename = "Standard output"
        raise


@contextmanager
def _progress(export: Export) -> Iterator[Callable[[], None]]:
    """A progress bar on standard error, if that is a terminal and standard output is not."""
    if sys.stdout.isatty() or sys.stderr is None or not sys.stderr.isatty():
        yield lambda: None
        return
    with click.progressbar(length=1000, label="Exporting", file=sys.stderr) as bar:
        yield lambda: bar.update(round(export.part * 1000) - bar.pos)
