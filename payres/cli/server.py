"""`payres init` and `payres serve`: set a server up, and run it until a signal stops it."""

import asyncio
import errno
import gc
import json
import os
import resource
import shlex
import shutil
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import SplitResult, urlsplit

import click
import msgspec

from payres import __version__
from payres.accounts.passwords import hash_password, verify_password
from payres.accounts.store.owners import owner_at
from payres.cli.commands import Command
from payres.cli.options import WholeNumber
from payres.cli.session import JsonObject, Session, place, warn, with_session
from payres.core.grants.requests import request_grant
from payres.core.process import logs
from payres.core.process.logs import RequestLog
from payres.core.process.settings import CONFIG, SYSTEM_CONFIG, Settings, local_url, may_read, settings_file
from payres.core.protocol.clock import format_time_if_any
from payres.core.protocol.gnap import GrantRequest
from payres.core.protocol.limits import BACKLOG, MAX_CONNECTIONS, SPARE_FILES
from payres.core.protocol.urls import canonical, is_loopback
from payres.core.store.clients import Client
from payres.core.store.connections import server_lock
from payres.core.store.migrations import FIRST, UnusableDatabase, migrations
from payres.core.store.runs import LostCommits
from payres.core.store.wallets import count_wallets, find_wallet
from payres.core.store.work import Work
from payres.operator import wallets
from payres.operator.store.backups import last_restore
from payres.operator.upkeep.takeover import record_takeover, require_current
from payres.settings import load_settings

if TYPE_CHECKING:  # it loads slowly, and only `serve` needs it
    from payres.core.http.server import HttpServer
    from payres.operator.upkeep.takeover import OtherServer

DEMO_WALLETS = {"alice": "1000.00", "bob": None}


class StaysStopped(click.ClickException):
    """An operator must act first: another server has taken over, or commits are missing. The exit code is its own, so
    that systemd does not start this one again: see deploy/payres.service."""

    exit_code = 3


@click.command(cls=Command, example="payres init --database shop.db")
@with_session
def init(session: Session) -> None:
    """Safe to repeat: existing files are kept."""
    database = session.settings.database
    is_new = not Path(database).exists()
    session.create_database()
    # In another folder, the settings of a service on this database count.
    is_service = settings_file() == SYSTEM_CONFIG and load_settings().database == database
    config = str(SYSTEM_CONFIG) if is_service else CONFIG
    is_written = not is_service and _write_config(Path(CONFIG), database)
    named = load_settings().database
    if Path(named).absolute() != Path(database).absolute():
        warn(
            f"other commands use {named}, as {config} or the environment says: give --database to each, or change that"
        )
    resource = {"config": config, "configWritten": is_written, "database": database, "databaseCreated": is_new}
    lines = [
        f"{config}: {'written, with every setting explained' if is_written else 'there already, left as it is'}",
        f"{database}: {'created' if is_new else 'there already, left as it is'}",
        "Next: payres wallet create alice --asset USD --scale 2; payres wallet password alice; then: payres serve",
    ]
    session.show(resource, "\n".join(lines))


@click.command(cls=Command, example="payres serve --port 8080 --demo")
@click.option("--host", metavar="HOST", help="The address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=WholeNumber(0, 65535), metavar="PORT", help="The port; 0 finds one.  [default: 8080]")
@click.option("--base-url", metavar="URL", help="The public origin, when it is not http://HOST:PORT.")
@click.option("--demo", is_flag=True, help="In a database without wallets, open alice and bob to try payments with.")
@click.option("--quiet", is_flag=True, help="Log no line for each request.")
@click.option("--read-only", is_flag=True, help="Serve a standby's database, which Litestream writes: store nothing.")
@with_session
def serve(session: Session, demo: bool, quiet: bool, read_only: bool) -> None:
    """It stops on SIGTERM or Ctrl-C, after finishing the requests in progress; Ctrl-C again cuts them. It does not
    start when another payres takes payments at the base URL, with a later or earlier state of the database."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    if read_only:
        session = Session(msgspec.structs.replace(session.settings, read_only=True), session.as_json)
    if demo:
        _require_loopback(session)
    elif not session.settings.read_only:
        _require_database(session)
    _require_address(session)  # before it listens: otherwise it would ask itself
    with _bound(session.settings) as listener:
        if not session.settings.read_only:
            with server_lock(session.settings.database):
                pass  # a second server fails here with one sentence; the application takes the lock when it starts
        session = Session(_with_real_port(session.settings, listener), session.as_json)
        if session.settings.base_url.startswith("http:") and not is_loopback(session.environment.urls.host):
            warn(f"base_url is {session.settings.base_url}: clients expect https, and passwords are sent as they are")
        _allow_connections()
        server = _build(session.settings, quiet)
        _announce(session, demo, listener)
        # What is loaded now stays to the end; full garbage collections skip it once it is frozen.
        gc.freeze()
        server.run(sockets=[listener])


def _require_database(session: Session) -> None:
    """Raises ClickException if there is none, with where others are: only `init` and `--demo` make one."""
    database = Path(session.settings.database)
    if not database.exists() or database.stat().st_size == 0:
        others = _others_beside(session.settings.database)
        session.database("name another with --database PATH" + (f", such as {', '.join(others)}" if others else ""))


def _require_address(session: Session) -> None:
    """Raises ClickException if another server takes payments at the base URL: both would spend the same money. It is
    StaysStopped if the other has taken over from this one, now or in an earlier check, which is stored."""
    settings = session.settings
    database = Path(settings.database)
    if settings.read_only or not database.exists() or database.stat().st_size == 0:
        return
    try:
        session.create_database()  # it is there, and is migrated if an older payres made it
    except LostCommits as error:
        raise StaysStopped(str(error)) from error
    session.read(_require_current)
    if settings.base_url == local_url(settings.host, settings.port):
        return
    from payres.core.remote.http import GuardedClient
    from payres.core.remote.transport import Bounds
    from payres.operator.upkeep.takeover import find_other

    restored_at = session.read(last_restore)

    async def ask() -> "OtherServer | None":
        async with GuardedClient(True, Bounds(untrusted_hosts=False)) as http:
            return await find_other(http, settings.base_url, restored_at)

    other = asyncio.run(ask())
    if other is None:
        return
    times = (other.restored_at, format_time_if_any(restored_at))
    there, here = ("never" if one is None else f"at {one}" for one in times)
    said = f"Another payres takes payments at {settings.base_url}, whose database was restored {there}, this one {here}"
    if other.is_later:
        session.write(partial(record_takeover, base_url=settings.base_url, restored_at=other.restored_at))
        raise StaysStopped(f"{said}. It has taken this one's place, so leave this one stopped")
    raise click.ClickException(
        f"{said}. Stop that one for good before this one takes its place; to try a backup, choose another base_url"
    )


def _require_current(work: Work) -> None:
    try:
        require_current(work)
    except UnusableDatabase as error:
        raise StaysStopped(str(error)) from error


def _require_loopback(session: Session) -> None:
    """Raises ClickException if other machines could reach wallets whose passwords are in the README."""
    settings = session.settings
    for name, host in (("host", settings.host), ("base_url", session.environment.urls.host)):
        if not is_loopback(host):
            raise click.ClickException(
                f"--demo opens wallets whose passwords everyone knows, and {name} = {getattr(settings, name)} is"
                " reached from other machines; choose 127.0.0.1, or serve without --demo"
            )


def _allow_connections() -> None:
    """Raises the limit of open files to what the connections may need, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


def _write_config(path: Path, database: str) -> bool:
    """Writes the settings file if there is none, readable only by this user, since it may come to hold a secret.
    Returns whether it was written."""
    text = Path(__file__).with_name("payres.toml").read_text(encoding="utf-8")
    default = Settings().database
    if database != default:  # so that the next command finds the same file; a JSON string is a TOML string too
        text = text.replace(f'# database = "{default}"', f"database = {json.dumps(database, ensure_ascii=False)}")
    try:
        with open(path, "x", encoding="utf-8", opener=partial(os.open, mode=0o600)) as file:
            file.write(text)
    except FileExistsError:
        return False
    return True


def _bound(settings: Settings) -> socket.socket:
    """A socket bound to the port before anything else, so that a port in use gives one sentence. It does not listen
    yet: the server is set up completely before the first connection."""
    host, port = settings.host, settings.port
    try:
        family, kind, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with ExitStack() as failure:
            listener = failure.enter_context(socket.socket(family, kind))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family is socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(address)
            failure.pop_all()
    except (socket.gaierror, ValueError) as error:  # ValueError: it is not a valid host name
        why = error.strerror if isinstance(error, OSError) else error
        raise click.ClickException(f"The host {host} is not an address of this machine: {why}") from error
    except OSError as error:
        reasons = {
            errno.EADDRINUSE: f"Port {port} of {host} is in use; choose another with --port or PAYRES_PORT",
            errno.EACCES: f"Port {port} of {host} needs more rights than this user has; choose one above 1023",
            errno.EADDRNOTAVAIL: f"The host {host} is not an address of this machine; choose another with --host",
        }
        sentence = reasons.get(error.errno or 0, f"Port {port} of {host} cannot be opened: {error.strerror}")
        raise click.ClickException(sentence) from error
    return listener


def _with_real_port(settings: Settings, listener: socket.socket) -> Settings:
    """With port 0 the system has chosen one; a base URL that is made from the port follows it here."""
    if settings.port != 0:
        return settings
    port: int = listener.getsockname()[1]
    base_url = f"{settings.base_url[:-1]}{port}" if settings.base_url.endswith(":0") else settings.base_url
    return msgspec.structs.replace(settings, port=port, base_url=base_url)


def _announce(session: Session, demo: bool, listener: socket.socket) -> None:
    """Listens and prints the URLs, once the database and the demo wallets exist."""
    settings = session.settings
    is_new = demo and not os.path.exists(settings.database)
    if is_new and (others := _others_beside(settings.database)):
        said = f"there was no database at {place(settings.database)}, so this is a NEW one"
        warn(f"{said}. Others are at {', '.join(others)}: to serve one, stop this and name it with --database")
    if not settings.read_only:
        session.create_database()
    found = session.write(_open_demo_wallets) if demo else []
    count = session.read(count_wallets)
    resource: dict[str, object] = {"baseUrl": settings.base_url, "database": settings.database, "wallets": count}
    resource["databaseCreated"] = is_new
    how = "serves, as a read-only standby," if settings.read_only else "serves"
    lines = [f"payres {__version__} {how} {settings.base_url} from {settings.database} (wallets: {count})"]
    pages = f"The operator's pages, from another terminal: {_in_another_terminal(settings, 'admin link')}"
    if demo:
        consent = session.write(_ask_for_consent) if found else ""
        resource |= {"demoWallets": found, "consent": consent}
        lines += _introduced(found, consent, pages)
    elif count == 0 and not settings.read_only:
        command = _in_another_terminal(settings, "wallet create alice --asset USD --scale 2")
        lines.append(f"Open a first wallet from another terminal: {command}")
    if not settings.read_only and not demo:
        lines.append(pages)
    listener.listen(BACKLOG)
    session.show(resource, "\n".join(lines))


def _others_beside(path: str) -> Sequence[str]:
    """Databases that may be meant where there is none: the folder may be the wrong one."""
    folder, service = Path(path).absolute().parent, SYSTEM_CONFIG.parent
    candidates = [*folder.glob("*.db"), *folder.glob("*/*.db"), *folder.parent.glob("*.db")]
    if may_read(SYSTEM_CONFIG):
        named = load_settings(environment={"PAYRES_CONFIG": str(SYSTEM_CONFIG)}).database
        candidates.append(service / named)  # in whose folder the unit runs
    return sorted({str(one) for one in candidates if _is_database(one)})


def _is_database(path: Path) -> bool:
    """Whether a file may be a database of payres; it is not opened, because that would make files beside it."""
    with suppress(OSError), open(path, "rb") as file:
        head = file.read(100)
        # SQLite's magic number, and the version of the schema in its user_version.
        return head.startswith(b"SQLite format 3\0") and FIRST <= int.from_bytes(head[60:64], "big") <= max(
            migrations()
        )
    return False


def _in_another_terminal(settings: Settings, words: str) -> str:
    """The command line for another terminal, without the variables and flags of this one."""
    there = load_settings(environment={})
    is_found = shutil.which("payres") or not Path(sys.argv[0]).name.startswith("payres")  # such as __main__.py
    program = "payres" if is_found else sys.argv[0]
    variable = "" if there.base_url == settings.base_url else f"PAYRES_BASE_URL={settings.base_url} "
    flag = "" if there.database == settings.database else f" --database {shlex.quote(settings.database)}"
    return f"{variable}{program} {words}{flag}"


def _open_demo_wallets(work: Work) -> Sequence[JsonObject]:
    """Opens the demo wallets if the database has no wallets; returns those that still have their first password, with
    it."""
    if count_wallets(work) == 0:
        for path, balance in DEMO_WALLETS.items():
            wallets.create_wallet(work, path, "USD", 2, path.capitalize(), hash_password(f"{path}-demo"))
            if balance is not None:
                wallets.deposit(work, path, balance)
    found = [record for path in DEMO_WALLETS if (record := find_wallet(work, path))]
    return [
        {**msgspec.to_builtins(wallets.wallet(work, one)), "password": f"{one.path}-demo"}
        for one in found
        if verify_password(owner_at(work, one.path), f"{one.path}-demo")
    ]


def _ask_for_consent(work: Work) -> str:
    """The consent page of a grant request for money of the first demo wallet, by the second as client."""
    payer, app = (work.urls.wallet(path) for path in DEMO_WALLETS)
    limits = {"debitAmount": {"value": "500", "assetCode": "USD", "assetScale": 2}}
    item = {"type": "outgoing-payment", "actions": ["create", "read"], "identifier": payer, "limits": limits}
    asked = {"client": app, "access_token": {"access": [item]}, "interact": {"start": ["redirect"]}}
    answer = request_grant(work, msgspec.convert(asked, GrantRequest), Client(canonical(app), app, None), "Demo shop")
    assert not isinstance(answer.interact, msgspec.UnsetType), "money needs consent"
    return answer.interact.redirect


def _introduced(found: Sequence[JsonObject], consent: str, pages: str) -> Sequence[str]:
    """What a newcomer needs: what the addresses are, how to sign in, and what to try."""
    if not found:
        return ["There are no demo wallets: this database has other wallets", pages]
    line = "  {walletAddress}  {assetCode} {balance}, password {password}"
    return [
        "Wallet addresses:",
        *(line.format(**one) for one in found),
        f"Their owners sign in at {urlsplit(consent)._replace(path='/account').geturl()}",
        *_where_passkeys_work(urlsplit(consent)),
        f"A consent page to try, open for some minutes: {consent}",
        pages,
        f"Try next: curl {found[0]['walletAddress']}",
    ]


def _where_passkeys_work(url: SplitResult) -> Sequence[str]:
    """Browsers take passkeys at `localhost`, and at no IP address of this machine."""
    if url.hostname == "localhost":
        return []
    return [f"Passkeys need a name: set PAYRES_BASE_URL=http://localhost:{url.port or 80} to try them there"]


def _build(settings: Settings, quiet: bool) -> "HttpServer":
    from payres.application import create_app
    from payres.core.http.server import HttpServer

    logs.configure(settings.log_format, settings.log_level)
    request_log = None if quiet else RequestLog(settings.log_format)
    return HttpServer(create_app(settings, request_log=request_log), settings.trusted_proxies)


def _stop(*_: object) -> NoReturn:
    # The server catches the signal while it runs and raises it again when it has finished; both ways end here.
    raise SystemExit(0)
