"""`payres sandbox`: a temporary server that tests in any language start and control."""

import asyncio
import fcntl
import json
import os
import selectors
import shutil
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from typing import Any
from urllib.parse import urlsplit

import click
import msgspec
import uvicorn

from payres.cli.commands import Command
from payres.core.http.server import STOP_SIGNALS, settings_of
from payres.core.process import logs
from payres.core.process.logs import RequestLog
from payres.core.process.settings import local_url
from payres.core.protocol.identifiers import is_bearer_token
from payres.testing.control import Control
from payres.testing.sandbox import Sandbox, SandboxOptions

POLL_SECONDS = 0.5
FOLDER = "payres-sandbox-"
STOP_SECONDS = 5  # until the servers have ended, else their files go while they are used
YOUNG_SECONDS = 10  # the age of a folder that may not be locked yet
MOST_PEERS = 9


def _pairs(_: click.Context, __: click.Parameter, texts: Sequence[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    if wrong := [name for name, mark, _ in pairs if not mark]:
        raise click.BadParameter(f"{wrong[0]}: write NAME=VALUE, such as quote_lifetime=60")
    return {name: value for name, _, value in pairs}


def _token(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    if text is not None and not is_bearer_token(text):
        raise click.BadParameter("a token has letters, digits and -._~+/ only")
    return text


@click.command(
    cls=Command, example="payres sandbox --consent approve\npayres sandbox --peers 2 --set quote_lifetime=60"
)
@click.option("--host", default="127.0.0.1", show_default=True, metavar="HOST", help="The address to listen on.")
@click.option(
    *("--port", "first_port"),
    type=click.IntRange(0, 65_535 - MOST_PEERS),
    default=0,
    metavar="PORT",
    help="0, the default: a free one. Peers have the ports after it.",
)
@click.option("--base-url", metavar="URL", help="The origin that clients call, when it is not http://HOST:PORT.")
@click.option(
    *("--peers", "count"),
    type=click.IntRange(1, MOST_PEERS),
    default=1,
    metavar="N",
    help="The number of servers, each a peer of the others.",
)
@click.option(
    "--consent",
    type=click.Choice(["ask", "approve", "deny"]),
    default="ask",
    show_default=True,
    help="The decision on grants without a rule.",
)
@click.option("--webhook", metavar="URL", help="Where all events go.")
@click.option("--token", metavar="TEXT", callback=_token, help="The token of the control API.  [default: a new one]")
@click.option(
    "--control-from", default="", metavar="NETWORK", help="Networks besides this machine that may control it."
)
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", callback=_pairs, help="A setting. May be repeated."
)
@click.option("--log", "level", type=click.Choice(["warning", "info", "debug"]), default="warning", show_default=True)
@click.option("--keep", is_flag=True, help="Do not end with the parent process and standard input.")
def sandbox(host: str, first_port: int, base_url: str | None, count: int, level: str, keep: bool, **given: Any) -> None:
    """It listens on loopback and prints one line of JSON: its URL, its wallets, a client with its key, and the token of
    its control API. It ends, and its data with it, when its standard input closes or its parent process ends. Neither
    payres.toml nor PAYRES_* is read."""
    parent, has_leash = os.getppid(), _is_leash()
    logs.configure("text", level)
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)  # in all threads, which start later
    status = 0
    try:
        with _folder() as folder:
            ports = [first_port + number if first_port else 0 for number in range(count)]
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listeners = [socket.create_server((host, port), family=family) for port in ports]
            names = _origins(host, base_url, [one.getsockname()[1] for one in listeners])
            request_log = None if level == "warning" else RequestLog("text")
            started = Sandbox(folder, names, SandboxOptions(**given), request_log)
            loop = _start(started, listeners)
            if not keep:
                threading.Thread(target=_watch, args=(parent, has_leash), daemon=True).start()
            signal.sigwait(STOP_SIGNALS)
            with suppress(TimeoutError):  # a database that is written when its file goes would cry for an operator
                asyncio.run_coroutine_threadsafe(started.close(), loop).result(STOP_SECONDS)
    except Exception as error:
        click.echo(f"Error: The sandbox did not start: {str(error) or type(error).__name__}", err=True)
        status = 2
    sys.stdout.flush()
    os._exit(status)  # requests in progress are cut: nothing is kept anyway


@contextmanager
def _folder() -> Iterator[Path]:
    """A new folder, which is locked as long as this process lives; those of killed processes are removed."""
    for left in Path(gettempdir()).glob(f"{FOLDER}*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > YOUNG_SECONDS:
                with _locked(left):
                    shutil.rmtree(left)
    folder = Path(mkdtemp(prefix=FOLDER))
    with _locked(folder):
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Raises OSError if another process has the lock."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _origins(host: str, base_url: str | None, ports: Sequence[int]) -> list[str]:
    """The origins at which clients reach the servers on these ports."""
    if base_url is None:
        return [local_url(host, port) for port in ports]
    named = urlsplit(base_url)
    first = named.port or (443 if named.scheme == "https" else 80)
    return [base_url, *(f"{named.scheme}://{named.hostname}:{first + number}" for number in range(1, len(ports)))]


def _start(sandbox: Sandbox, listeners: Sequence[socket.socket]) -> asyncio.AbstractEventLoop:
    """Serves on a thread, whose loop it returns, and prints the line once the server answers. Raises what keeps it from
    starting."""
    apps = [Control(sandbox, server) for server in sandbox.servers]
    served = [uvicorn.Server(uvicorn.Config(app, lifespan="off", server_header=False, **settings_of())) for app in apps]
    ready = Future[asyncio.AbstractEventLoop]()

    async def serve() -> None:
        async with sandbox.run():
            ready.set_result(asyncio.get_running_loop())
            await asyncio.gather(*(one.serve([listener]) for one, listener in zip(served, listeners, strict=True)))

    def run() -> None:
        try:
            asyncio.run(serve())
        except Exception as error:
            if not ready.done():
                ready.set_exception(error)

    threading.Thread(target=run, name="payres", daemon=True).start()
    loop = ready.result()
    click.echo(json.dumps(msgspec.to_builtins(sandbox.servers[0].line)))
    return loop


def _watch(parent: int, has_leash: bool) -> None:
    """Stops this process when its parent ends or standard input closes."""
    with selectors.DefaultSelector() as selector:
        if has_leash:
            selector.register(0, selectors.EVENT_READ)
        seconds: float | None = POLL_SECONDS
        with suppress(AttributeError, OSError):  # not on Linux, or the parent is outside of the container
            selector.register(os.pidfd_open(parent), selectors.EVENT_READ)
            seconds = None
        while os.getppid() == parent:
            if any(key.fileobj != 0 or not _read() for key, _ in selector.select(seconds)):
                break
    os.kill(os.getpid(), signal.SIGTERM)


def _read() -> bytes:
    try:
        return os.read(0, 65_536)
    except BlockingIOError:
        return b"nothing yet"
    except OSError:
        return b""


def _is_leash() -> bool:
    """Whether standard input is a pipe or socket, which the process that started this one can close."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
