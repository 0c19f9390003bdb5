"""`payres sandbox`: a throw-away server that tests in any language start and control."""

import asyncio
import json
import os
import selectors
import shutil
import signal
import socket
import stat
import sys
import threading
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp

import click
import uvicorn

from payres import logs
from payres.cli.commands import Command
from payres.http.server import settings_of
from payres.testing.sandbox import Sandbox

POLL_SECONDS = 0.2


@click.command(cls=Command, example="payres sandbox --consent approve")
@click.option("--port", type=click.IntRange(0, 65_535), default=0, metavar="PORT", help="0, the default: a free one.")
@click.option(
    "--consent",
    type=click.Choice(["ask", "approve", "deny"]),
    default="ask",
    show_default=True,
    help="How grants are decided on for which no rule is.",
)
@click.option("--keep", is_flag=True, help="Do not end with the parent process and standard input.")
def sandbox(port: int, consent: str, keep: bool) -> None:
    """It listens on loopback and prints one line of JSON: where it is, its wallets, a client with its key, and the
    token of its control API. It ends, and its data with it, when its standard input closes or its parent process ends.
    No settings and no database are read.
    """
    parent = os.getppid()
    logs.configure("text", "info")
    folder = Path(mkdtemp(prefix="payres-sandbox-"))
    wake, woken = socket.socketpair()
    for one in (wake, woken):
        one.setblocking(False)
    signal.set_wakeup_fd(woken.fileno())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    status = 0
    try:
        with socket.create_server(("127.0.0.1", port)) as listener:
            _start(listener, folder, consent)
            _wait(wake, parent, keep)
    except (OSError, RuntimeError) as error:
        click.echo(f"Error: The sandbox did not start: {error}", err=True)
        status = 2
    shutil.rmtree(folder, ignore_errors=True)
    sys.stdout.flush()
    os._exit(status)  # what is under way is cut: nothing of it is kept


def _start(listener: socket.socket, folder: Path, consent: str) -> None:
    """Serves on a thread, and prints the line once it answers. Raises RuntimeError when it does not come up."""
    app = Sandbox(folder, f"http://127.0.0.1:{listener.getsockname()[1]}", consent)
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", server_header=False, **settings_of()))
    ready, why = threading.Event(), ["its log says why"]

    async def serve() -> None:
        async with app.run():
            ready.set()
            await server.serve([listener])

    def run() -> None:
        try:
            asyncio.run(serve())
        except Exception as error:
            why[0] = str(error)
        finally:
            ready.set()

    threading.Thread(target=run, name="payres", daemon=True).start()
    ready.wait()
    if not app.line:
        raise RuntimeError(why[0])
    click.echo(json.dumps(app.line))


def _wait(wake: socket.socket, parent: int, keep: bool) -> None:
    """Returns when a signal came, and unless `keep` when the parent process ended or standard input was closed."""
    with selectors.DefaultSelector() as selector:
        selector.register(wake, selectors.EVENT_READ)
        if not keep and _is_leash():
            selector.register(0, selectors.EVENT_READ)
        while keep or os.getppid() == parent:
            for key, _ in selector.select(POLL_SECONDS):
                if key.fileobj is wake:
                    return
                with suppress(BlockingIOError):
                    if not _read():
                        return


def _read() -> bytes:
    try:
        return os.read(0, 65_536)
    except ConnectionError:
        return b""


def _is_leash() -> bool:
    """Whether standard input is open, and something that whoever started this can close."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
