"""`payres export`: how an export is written to standard output, in constant memory."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from payres.cli.session import Session
from payres.operator.exports import Export


def write(session: Session, export: Export) -> None:
    """Writes it all, a batch in each transaction."""
    if session.as_json:
        raise click.UsageError("An export is a table and no single object: use --format jsonl")
    if sys.stdout is None:
        raise click.ClickException("There is no standard output to write to")
    with _progress(export) as show:
        while not export.done:
            _print(session.read(export.text))
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
