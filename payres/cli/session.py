"""One run of a command: its settings, its work on the database file, and what it prints.

A running server may use the file at the same time; SQLite isolates the two, and what a command commits holds for the
server's next request.
"""

import os
import pwd
import shlex
import sqlite3
import stat
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial, wraps
from pathlib import Path
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec, TypeVar

import click
import msgspec

from payres.core.process.settings import (
    CONFIG,
    SYSTEM_CONFIG,
    Settings,
    SettingsError,
    may_read,
    settings_file,
)
from payres.core.process.slots import Slots
from payres.core.protocol.errors import DomainError, Unavailable
from payres.core.protocol.urls import Urls
from payres.core.protocol.visible import visible_lines
from payres.core.store.base_url import base_url_of_run
from payres.core.store.connections import connect_standby, connect_writer, is_followed
from payres.core.store.migrations import UnusableDatabase
from payres.core.store.runs import LostCommits, note_command
from payres.core.store.work import Environment, FailStop, Units, Work
from payres.settings import load_settings

P = ParamSpec("P")
T = TypeVar("T")
JsonObject = Mapping[str, Any]
Connect = Callable[[str], sqlite3.Connection]

# SQLite's error codes for files without permission, and for directories.
DENIED: Final = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM}
BESIDE: Final = ("", "-wal", "-shm")
SETTING_FLAGS = ("database", "host", "port", "base_url")


class Session:
    """The settings and the database of a command."""

    def __init__(self, settings: Settings, as_json: bool) -> None:
        self.settings = settings
        self.as_json = as_json
        user = os.environ.get("SUDO_USER") or user_name(os.getuid())
        environment = Environment.of(settings, actor=f"shell:{user}", warn=warn)
        self.environment = msgspec.structs.replace(environment, emit_ungranted=_emit_return_payment)

    @property
    def is_standby(self) -> bool:
        """Whether the database is only read, because another program writes it."""
        return self.settings.read_only or is_followed(self.settings.database)

    def write(self, unit: Callable[[Work], T], *, if_replaced: bool = False) -> T:
        """The unit's result, once its work is committed. Unless `if_replaced`, nothing is stored if another server has
        taken over."""
        from payres.operator.upkeep.takeover import require_current

        self.require_writable()

        def current(work: Work) -> T:
            if not if_replaced:
                require_current(work)
            return unit(work)

        return self._run(current, "BEGIN IMMEDIATE", connect_writer)

    def require_writable(self) -> None:
        """Raises ClickException if the database is `read_only`. A file that Litestream writes is refused when it is
        opened."""
        if self.settings.read_only:
            raise click.ClickException("read_only is on, so nothing is stored here: run this on the primary server")

    def create_database(self, first: Callable[[Work], object] | None = None) -> None:
        """Makes the database if there is none yet. `first` is tried in memory before; if that raises, no file is
        made."""
        if first is not None and not Path(self.settings.database).exists():
            with self._connection(":memory:") as connection:
                first(Work(connection, self.environment))
        with self._connection(self.settings.database):
            pass

    def read(self, unit: Callable[[Work], T]) -> T:
        """The unit's result over one snapshot, while the server can write."""
        return self._run(unit, "BEGIN", connect_standby if self.is_standby else partial(connect_writer, may_lack=True))

    def write_if_possible(self, unit: Callable[[Work], object]) -> None:
        """Commits what the unit writes, or does nothing on a standby, while another program writes, or if the database
        fails."""
        if self.is_standby:
            return
        with suppress(click.ClickException, LostCommits), self._connection(self.database()) as connection:
            connection.execute("PRAGMA busy_timeout = 0")
            connection.execute("BEGIN IMMEDIATE")
            unit(Work(connection, self.environment))
            connection.execute("COMMIT")
            note_command(connection, self.settings.database)

    def show(self, resource: JsonObject | msgspec.Struct, text: str) -> None:
        """Prints the resource: as one JSON object with --json, otherwise as text."""
        if self.as_json:
            click.echo(msgspec.json.format(msgspec.json.encode(resource), indent=2))
        else:
            print_text(text)

    def database(self, otherwise: str = "name another with --database PATH") -> str:
        """The path of the database, which must exist; `otherwise` is the user's alternative to `payres init`."""
        path = Path(self.settings.database)
        try:
            found = path.stat().st_size > 0  # SQLite would make a database of an empty file
        except (FileNotFoundError, NotADirectoryError):
            found = False
        except PermissionError:
            if _named_by(self.settings.database) is not None:
                raise
            found = False  # nobody named it, and this user may not enter the working directory
        if found:
            return self.settings.database
        # A relative path names another file in each folder, also in the settings of the service.
        named, to_this = _named_by(self.settings.database), f" --database {shlex.quote(self.settings.database)}"
        folder = "" if named and path.is_absolute() else "run this in the folder of an existing one, "
        init = f"`payres init{to_this if named == '--database' else ''}`"
        said = f"There is no database at {place(self.settings.database)}. Make one with {init}"
        raise click.ClickException(f"{said}, {folder}or {otherwise}")

    def in_steps(self, operation: Callable[[Units], Coroutine[Any, Any, T]], *, changes: bool = True) -> T:
        """The result of an operation of several units of work. One that `changes` nothing takes notes if possible."""
        import asyncio  # an operation of one unit need not load it

        if changes:
            self.database()
            self.require_writable()
        return asyncio.run(operation(_Steps(self, changes)))

    def _run(self, unit: Callable[[Work], T], begin: str, connect: Connect) -> T:
        with self._connection(self.database(), connect) as connection:
            connection.execute(begin)
            if (served := base_url_of_run(connection)) is not None:
                # The settings here may be another server's, and links and addresses are those of the one that runs.
                self.environment = msgspec.structs.replace(self.environment, urls=Urls(served))
            result = unit(Work(connection, self.environment))
            connection.execute("COMMIT")
            if begin != "BEGIN":
                note_command(connection, self.settings.database)
        return result

    @contextmanager
    def _connection(self, path: str, connect: Connect = connect_writer) -> Iterator[sqlite3.Connection]:
        """A connection for the block; for writing, the file is created or migrated as needed."""
        connection = None
        try:
            connection = connect(path)
            yield connection
        except sqlite3.Error as error:
            busy = getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY")
            reason = "another program holds it; try again" if busy else str(error)
            reason = explain_database_denial(error, path) or reason
            raise click.ClickException(f"The database {path} cannot be used: {reason}") from error
        finally:
            if connection is not None:
                connection.close()  # undoes what was not committed


def _emit_return_payment(*what: Any) -> None:
    from payres.people.refund_events import emit_return_payment  # which most commands need not load

    emit_return_payment(*what)


def place(path: str) -> str:
    """The whole path of a database, and why it is looked for there."""
    named, config = _named_by(path), settings_file()
    if named is not None:
        why = f"{named} names it"
    elif config is not None:
        why = f"{config} names none, so it is looked for in the working directory"
    elif os.path.isfile(SYSTEM_CONFIG) and not may_read(SYSTEM_CONFIG):
        why = f"nothing names one that may be read: {explain_denial(SYSTEM_CONFIG)}"
    else:
        why = f"nothing names one: no {CONFIG} is in {Path.cwd()} or in {SYSTEM_CONFIG.parent}"
    return f"{Path(path).absolute()} ({why})"


def _named_by(database: str) -> str | None:
    """The flag, variable or settings file that names this database; None if it is the default. Raises SettingsError."""
    found = load_settings()
    return dict(found.origins).get("database") if found.database == database else "--database"


class CommandContext:
    """The environment of a command in place of a server's context, with services for one operation."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.idempotency_slots = Slots(None, None, 1)

    def part(self, kind: type[T]) -> T:
        return kind()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.environment, name)


class _Steps(NamedTuple):
    """Runs units of work one by one."""

    session: Session
    changes: bool

    @property
    def context(self) -> CommandContext:
        return CommandContext(self.session.environment)

    async def read(self, unit: Callable[[Work], T]) -> T:
        return self.session.read(unit)

    async def write(self, unit: Callable[[Work], T]) -> T:
        if self.changes:
            return self.session.write(unit)
        noted = list[T]()
        self.session.write_if_possible(lambda work: noted.append(unit(work)))
        if not noted:
            raise Unavailable("Nothing can be noted now")
        return noted[0]


def warn(sentence: str | None) -> None:
    """Prints a warning, if there is one, on standard error: standard output is for the resource."""
    if sentence is not None:
        print_text(f"Warning: {sentence}", err=True)


def print_text(text: str, err: bool = False) -> None:
    """Prints a text, in which others may have written for a terminal."""
    click.echo(visible_lines(text), err=err)


def with_session(command: Callable[Concatenate[Session, P], None]) -> Callable[..., None]:
    """Gives a command its session, and the options --database and --json that every command has."""

    @click.option("--database", metavar="PATH", help="The database file.")
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
    @click.pass_context
    @wraps(command)
    def run(ctx: click.Context, /, *args: Any, as_json: bool, **options: Any) -> None:
        flags = {name: options.pop(name, None) for name in SETTING_FLAGS}
        flags["database"] = flags["database"] or ctx.find_root().params.get("database")
        with errors_in_sentences():
            session = Session(load_settings(flags), as_json)
            command(session, *args, **options)

    return run


@contextmanager
def errors_in_sentences() -> Iterator[None]:
    """Turns an error into one sentence for the user (exit code 1)."""
    try:
        yield
    except DomainError as error:
        said = filter(None, (str(error), error.advice))
        raise click.ClickException("; ".join(said) + _denial(error.__cause__)) from error
    except (SettingsError, UnusableDatabase) as error:
        raise click.ClickException(str(error) + _denial(error.__cause__)) from error
    except FailStop as error:
        raise click.ClickException(f"The stored data is invalid ({error}); run `payres ledger check`") from error
    except UnicodeEncodeError as error:
        raise click.ClickException(f"{error.object!r} is not text in {error.encoding.upper()}") from error
    except BrokenPipeError:
        raise  # the reader has closed our output; click ends silently
    except OSError as error:
        sentence = f"{error.filename or 'The system'}: {error.strerror or error}"
        raise click.ClickException(sentence + _denial(error)) from error


def _denial(error: BaseException | None) -> str:
    """The explanation that follows the error if a file may not be used; empty for other errors."""
    if isinstance(error, PermissionError) and error.filename is not None:
        return f"; {explain_denial(error.filename)}"
    return ""


def explain_denial(path: str | Path) -> str:
    """Who owns the file that may not be used, or the directory that prevents it from being found or created."""
    nearest, found = _nearest(Path(path).absolute())
    if os.statvfs(nearest).f_flag & os.ST_RDONLY and os.access(nearest, os.R_OK, effective_ids=True):
        return f"{nearest} is on a file system that is mounted read-only: remount it for writing"
    owner, user = user_name(found.st_uid), user_name(os.geteuid())
    mode = f"{stat.S_IMODE(found.st_mode):04o}"
    facts = f"{nearest} belongs to {owner} and has mode {mode}, and this command runs as {user}"
    if owner == user:
        return f"{facts}: change the mode with chmod"
    if nearest == Path.cwd() and not os.access(nearest, os.X_OK, effective_ids=True):  # as after `sudo -u` at home
        return f"{facts}: change to a folder that {user} may use, or name the file with its whole path"
    for_sudo = f"'#{owner}'" if owner == str(found.st_uid) else owner
    return f"{facts}: run it as {owner}, for example with `sudo -u {for_sudo}`, or give the file to {user} with chown"


def explain_database_denial(error: sqlite3.Error, database: str) -> str | None:
    """The same for the file of the database that SQLite could not use, or that its disk is full; None if that is not
    the reason."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return "no space left on the disk"
    if code not in DENIED:
        return None
    files = (database + suffix for suffix in BESIDE)
    for path in (*files, str(Path(database).absolute().parent)):
        if not _may_use(path):
            return explain_denial(path)
    return None


def _may_use(path: str) -> bool:
    """Whether a file may be read and written; for a missing one, whether this user can see that it is missing."""
    try:
        is_directory = stat.S_ISDIR(os.stat(path).st_mode)
    except FileNotFoundError:
        return True
    except PermissionError:
        return False
    return os.access(path, os.R_OK | os.W_OK | (os.X_OK if is_directory else 0), effective_ids=True)


def _nearest(path: Path) -> tuple[Path, os.stat_result]:
    """The path, or the nearest directory above it that is visible."""
    try:
        return path, path.stat()
    except OSError:
        return _nearest(path.parent)


def user_name(uid: int) -> str:
    """The name of a user, or the number if the system has no name for it, as in a container."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
