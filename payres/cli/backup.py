"""`payres backup` and `payres restore`: verified copies of the database."""

import os
import shlex
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from payres.cli.commands import Command
from payres.cli.session import Session, explain_database_denial, warn, with_session
from payres.core.protocol.clock import format_time
from payres.core.store.connections import DatabaseServed
from payres.core.store.work import Work
from payres.operator.declared.shapes import format_size
from payres.operator.store.restored_rights import EndedRight
from payres.operator.upkeep import backup_and_restore, restored_rights

UNKNOWN = (
    "grants, tokens, keys, passwords and standing orders that were ended after the backup was made are valid again, and"
    " what was set up to guard an account since is gone. docs/how-to/backup.md#after-a-loss says what to do"
)


@click.command(cls=Command, example="payres backup /mnt/backups")
@click.argument("destination", metavar="DEST", type=click.Path())
@click.option("--force", is_flag=True, help="Replace DEST when it exists.")
@click.option("--keep", type=click.IntRange(1), metavar="N", help="Then remove old ones in directory DEST but for N.")
@with_session
def backup(session: Session, destination: str, force: bool, keep: int | None) -> None:
    """The copy is one file with mode 0600. It gets its name when it is complete, synced to the disk and verified as by
    `payres ledger check`. If DEST is a directory, the file is named by the time. The copy contains secrets: protect it
    like the database."""
    database = Path(session.database())
    if destination.endswith(os.sep) and not Path(destination).is_dir():
        raise click.ClickException(f"There is no directory {destination}; make it first")
    if keep is not None and not Path(destination).is_dir():
        raise click.UsageError(f"--keep is for a directory, which {destination} is not")
    with _sentences(f"{database} cannot be copied", str(database)):
        made = backup_and_restore.make_backup(database, Path(destination), force, session.environment.clock.now())
        if not session.is_standby:
            _record(session, made)
        if keep is not None:
            backup_and_restore.remove_older(made.path, database, keep)
    session.show(
        backup_and_restore.shown(str(database), made),
        f"{made.path}: a verified copy of {database}, {format_size(made.size)}",
    )


def _record(session: Session, made: backup_and_restore.Backup) -> None:
    try:
        session.write(lambda work: backup_and_restore.record_backup(work, made), if_replaced=True)
    except DatabaseServed:  # made by an older version, as before an upgrade
        warn("The audit log does not have this backup: the running server is of an older version")


@click.command(cls=Command, example="payres restore /mnt/backups/payres-20260131T093000Z.db")
@click.argument("source", metavar="SOURCE", type=click.Path(path_type=Path))
@click.option(
    "--compare",
    "other",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="Find out what has changed since SOURCE was made in this database, and not in the one that is replaced.",
)
@click.option("--carry-over", is_flag=True, help="Take that over: what has ended, and what guards accounts.")
@with_session
def restore(session: Session, source: Path, other: Path | None, carry_over: bool) -> None:
    """Stop the server and every other program that has the database open first. SOURCE is not changed: a copy of it is
    verified, migrated if an older payres made it, and put in place of the database. The old database is kept beside it.

    Everybody is signed out. What was ended since SOURCE was made, such as grants, keys and standing orders, is valid
    again, and what guards accounts since, such as codes, is gone: it is listed, if the old database can be read, and
    taken over with --carry-over. SOURCE may be the database itself after its write-ahead log was lost."""
    database, left = Path(session.settings.database), list[str]()

    def finish(tx: sqlite3.Connection, comparison: backup_and_restore.Comparison) -> None:
        work = Work(tx, session.environment)
        backup_and_restore.record_restore(work, source)
        if carry_over and comparison.unknown is not None:
            raise click.ClickException(f"{comparison.unknown}, so nothing can be carried over. Nothing was replaced")
        if carry_over and comparison.was_restored and other is None:
            raise click.ClickException(f"{_about_earlier(database, database)}. Nothing was replaced")
        if carry_over:
            left.extend(restored_rights.end_again(work, comparison.ended))

    with _sentences(f"{database} cannot be replaced", str(database)):
        restored = backup_and_restore.restore_backup(source, database, session.environment.clock.now(), finish, other)
    ended = restored.comparison.ended
    resource = {
        "database": str(database),
        "source": str(source),
        "version": restored.version,
        "replaced": str(restored.replaced) if restored.replaced else None,
        "compared": restored.comparison.unknown is None,
        "ended": restored_rights.resources(ended),
        "carriedOver": carry_over,
        "lostTransfers": restored.comparison.lost[0],
        "lostWallets": restored.comparison.lost_wallets,
    }
    lines = [f"{database}: restored from {source} and verified; everybody is signed out"]
    if restored.replaced:
        old = f"`payres audit list --database {shlex.quote(str(restored.replaced))}`"
        more = f"; {old} has what is not compared: changes of fees, rates, routes and names"
        lines.append(f"{restored.replaced}: the old database{'' if restored.comparison.unknown else more}")
    compared = other or restored.replaced
    if compared and restored.comparison.unknown is None:
        lines += _about_lost(restored.comparison, compared) + _about_ended(ended, carry_over, source, compared)
    session.show(resource, "\n".join(lines))
    for sentence in left:
        warn(sentence)
    if restored.comparison.was_restored and compared:
        warn(f"{_about_earlier(database, compared)}")
    if restored.comparison.unknown is not None:
        warn(f"{restored.comparison.unknown}: {UNKNOWN}")


def _about_earlier(database: Path, compared: Path) -> str:
    """What was compared was restored itself: where what was before may be."""
    kept = ", ".join(str(one) for one in backup_and_restore.replaced_by_restores(database) if one != compared.resolve())
    found = f", of these the first since the backup: {kept}" if kept else ""
    said = f"{compared} was itself restored since the backup was made, and does not know what was ended before"
    return f"{said}: name with --compare the one that was replaced then{found}"


def _about_lost(found: backup_and_restore.Comparison, other: Path) -> list[str]:
    (count, begun), wallets = found.lost, ", ".join(found.lost_wallets)
    export = f"payres export ledger --from {format_time(begun or 0)} --database {shlex.quote(str(other))}"
    lines = [f"LOST, transfers of money since the backup was made: {count}. `{export}` has them"] * bool(count)
    return lines + [f"LOST, wallets that were opened since: {wallets}"] * bool(wallets)


def _about_ended(ended: Sequence[EndedRight], carry_over: bool, source: Path, other: Path) -> list[str]:
    """What was ended since the backup was made, and how to end it again."""
    if not ended:
        return [f"By comparison with {other}, nothing was ended or set up since the backup was made"]
    listed = restored_rights.lines(ended)
    if carry_over:
        return [f"Ended or set up since the backup was made, by comparison with {other}, and taken over:", *listed]
    again = f"payres restore {shlex.quote(str(source))} --compare {shlex.quote(str(other))} --carry-over"
    heading = "VALID AGAIN, though ended since the backup was made, or GONE, though set up since:"
    return [heading, *listed, f"To take this over before you start: {again}"]


@contextmanager
def _sentences(failed: str, database: str) -> Iterator[None]:
    try:
        yield
    except backup_and_restore.BackupError as error:
        raise click.ClickException(str(error)) from error
    except sqlite3.Error as error:
        raise click.ClickException(f"{failed}: {explain_database_denial(error, database) or error}") from error
