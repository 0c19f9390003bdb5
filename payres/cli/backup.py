"""`payres backup` and `payres restore`: verified copies of the database."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from payres.cli.commands import Command
from payres.cli.session import Session, explain_database_denial, warn, with_session
from payres.operator import backups
from payres.operator.shapes import format_size
from payres.store.connections import DatabaseServed
from payres.store.work import Work


@click.command(cls=Command, example="payres backup /mnt/backups")
@click.argument("destination", metavar="DEST", type=click.Path())
@click.option("--force", is_flag=True, help="Replace DEST when it exists.")
@with_session
def backup(session: Session, destination: str, force: bool) -> None:
    """The copy is one file with mode 0600. It gets its name when it is complete, synced to the disk and verified as by
    `payres ledger check`. If DEST is a directory, the file is named by the time. The copy contains secrets: protect it
    like the database."""
    database = Path(session.database())
    if destination.endswith(os.sep) and not Path(destination).is_dir():
        raise click.ClickException(f"There is no directory {destination}; make it first")
    with _sentences(f"{database} cannot be copied", str(database)):
        made = backups.make_backup(database, Path(destination), force, session.environment.clock.now())
        if not session.is_standby:
            _record(session, made)
    session.show(
        backups.shown(str(database), made),
        f"{made.path}: a verified copy of {database}, {format_size(made.size)}",
    )


def _record(session: Session, made: backups.Backup) -> None:
    try:
        session.write(lambda work: backups.record_backup(work, made), if_replaced=True)
    except DatabaseServed:  # made by an older version, as before an upgrade
        warn("The audit log does not have this backup: the running server is of an older version")


@click.command(cls=Command, example="payres restore /mnt/backups/payres-20260131T093000Z.db")
@click.argument("source", metavar="SOURCE", type=click.Path(path_type=Path))
@with_session
def restore(session: Session, source: Path) -> None:
    """Stop the server and every other program that has the database open first. SOURCE is not changed: a copy of it is
    verified, migrated if an older payres made it, and put in place of the database. The old database is kept beside
    it."""
    database = Path(session.settings.database)

    def record(tx: sqlite3.Connection) -> None:
        backups.record_restore(Work(tx, session.environment), source)

    with _sentences(f"{database} cannot be replaced", str(database)):
        restored = backups.restore_backup(source, database, session.environment.clock.now(), record)
    resource = {
        "database": str(database),
        "source": str(source),
        "version": restored.version,
        "replaced": str(restored.replaced) if restored.replaced else None,
    }
    lines = [f"{database}: restored from {source} and verified"]
    if restored.replaced:
        lines.append(f"{restored.replaced}: the old database")
    session.show(resource, "\n".join(lines))


@contextmanager
def _sentences(failed: str, database: str) -> Iterator[None]:
    try:
        yield
    except backups.BackupError as error:
        raise click.ClickException(str(error)) from error
    except sqlite3.Error as error:
        raise click.ClickException(f"{failed}: {explain_database_denial(error, database) or error}") from error
