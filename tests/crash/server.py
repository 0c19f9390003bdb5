"""`payres serve` in a process of its own, on a database made by commands, to be ended in every way there is."""

import json
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from payres.cli import main
from payres.core.protocol.clock import SystemClock
from payres.core.signatures.jwk import jwk_from_pem
from payres.core.store.connections import connect_reader, connect_writer
from tests.crash.forked import Forked
from tests.crash.serve import serve
from tests.helpers import TIMEOUT, Json, free_of_settings, kill, spawn, wait_until
from tests.http_server import free_port
from tests.signing_client import Client

PAYRES = (sys.executable, "-m", "payres")
SERVE = ("serve", "--json", "--quiet")
# Commands run in this process, which has one standard output. And SQLite's locks are a process's: whoever closes a file
# of the database by himself takes them away from the connections to it.
FILES = threading.Lock()
# Every server that this process has started, for the fixture that leaves none running.
STARTED: list["Server"] = []


class CommandFailed(Exception):
    """A command that should have succeeded did not; the text is what it said."""


class Server:
    """A folder with a database, and the server on it. `settings` are PAYRES_* variables; `program` is what is run.

    A node has an ILP address, with the name of its folder.

    It is a process of its own, forked from one that has loaded payres, or started as a command where it needs
    `variables`.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        program: Callable[[], None] = serve,
        port: int | None = None,
        is_node: bool = False,
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.port = port or free_port()
        self.base_url = f"http://127.0.0.1:{self.port}"
        self.database = folder / "payres.db"
        self.folder, self.name = folder, folder.name
        self.variables: dict[str, str] = {}  # for the server alone, besides its settings
        self._settings = {"PAYRES_DATABASE": str(self.database), "PAYRES_PORT": str(self.port), **(settings or {})}
        if is_node:
            self._settings |= {"PAYRES_ILP_ADDRESS": f"test.{self.name}", "PAYRES_ALLOW_PRIVATE_HOSTS": "true"}
        self._program = program
        self._process: subprocess.Popen[str] | Forked | None = None

    def wallet(self, path: str) -> str:
        """A wallet address of this server."""
        return f"{self.base_url}/{path}"

    def open_wallet(self, path: str, asset: str, deposit: int = 0) -> None:
        """A wallet with some money, in whole units."""
        self.command("wallet", "create", path, "--asset", asset, "--scale", "2", "--name", path.title(), "--create")
        if deposit:
            self.command("wallet", "deposit", path, f"{deposit}.00")

    def open_client(self, path: str) -> None:
        """The wallet and the key of a client."""
        self.open_wallet(path, "USD")
        self.command("key", "generate", path, "--out", str(self.folder / f"{path}.pem"), "--kid", "key-1")

    def client(self, path: str = "shop") -> Client:
        """A client that was opened before; it gets its users' consent from the command line."""
        pem = (self.folder / f"{path}.pem").read_bytes()
        private_key = load_pem_private_key(pem, password=None)
        assert isinstance(private_key, Ed25519PrivateKey)
        jwk, clock = jwk_from_pem("key-1", pem), SystemClock()
        return Client(self.wallet(path), private_key, jwk, self.base_url, clock, self.approve)

    def approve(self, redirect: str) -> str | None:
        """Consents in the owner's name; the finish URL."""
        finished: str | None = self.command("grant", "approve", redirect)["redirect"]
        return finished

    def command(self, *arguments: str) -> Json:
        """What a command that must succeed prints. It has no part in the server but the file."""
        others: dict[str, str | None] = {name: None for name in os.environ if name.startswith("PAYRES_")}
        with FILES:
            result = CliRunner().invoke(
                main, [*arguments, "--json"], catch_exceptions=False, env=others | self._settings
            )
        if result.exit_code:
            raise CommandFailed(result.output)
        printed: Json = json.loads(result.stdout)
        return printed

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command that comes to its end, as a program of its own."""
        options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": TIMEOUT}
        return subprocess.run((*PAYRES, *arguments), cwd=self.folder, env=self.environment, check=False, **options)

    def refuses_to(self, *arguments: str) -> str:
        """The one line that a command ends with which cannot do what it should."""
        refused = self.run(*arguments)
        assert (refused.returncode, refused.stdout, len(refused.stderr.splitlines())) == (1, "", 1), refused.stderr
        return refused.stderr

    def start(self) -> None:
        """Starts the server and returns when it answers."""
        if self.variables:
            program = f"from {serve.__module__} import {self._program.__name__} as serve; serve()"
            options: dict[str, Any] = {"cwd": self.folder, "env": self.environment, "stdout": subprocess.PIPE}
            with self.log.open("a") as log:
                self._process = spawn((sys.executable, "-c", program), stderr=log, **options)
        else:
            self._process = Forked(self._program, self.folder, self.environment, self.log)
        STARTED.append(self)
        assert self._process.stdout is not None
        announced = any(line == "}\n" for line in self._process.stdout)  # by then it listens, and requests may queue
        assert announced, self.log.read_text()
        health = httpx2.get(f"{self.base_url}/healthz", timeout=TIMEOUT, verify=False)
        assert health.json() == {"status": "ok"}

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal and returns at once."""
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self) -> int:
        """The exit code, once the server has ended."""
        assert self._process is not None
        with self._process as process:  # which closes its pipe
            return process.wait(TIMEOUT)

    def stop(self) -> None:
        """Ends the server as an operator does."""
        self.signal(signal.SIGTERM)
        assert self.wait() == 0
        assert self.side_files == []

    def wait_for_payments(self) -> None:
        """Returns when no payment to another server is in progress."""
        query = "SELECT 1 FROM outgoing_payment WHERE state = 'sending' LIMIT 1"
        wait_until(lambda: not self.select(query), lambda: self.log.read_text()[-4000:])

    def kill(self) -> None:
        """Ends the server where it stands, if it runs."""
        if self._process is not None:
            kill(self._process)
            self.wait()

    def balance(self, path: str) -> tuple[int, int]:
        """What a wallet holds, and how much of it is reserved, in cents."""
        wallet = self.command("wallet", "show", path)
        return int(wallet["balance"].replace(".", "")), int(wallet["reserved"].replace(".", ""))

    def select(self, query: str, *values: object, database: Path | None = None) -> list[Any]:
        """Rows of the database or a copy of it, as another program sees them."""
        with FILES, closing(connect_reader(str(database or self.database))) as connection:
            return connection.execute(query, values).fetchall()

    def execute(self, statement: str) -> None:
        """Changes the database from outside, and commits."""
        with FILES, closing(connect_writer(str(self.database))) as connection:
            connection.execute(statement)

    @property
    def environment(self) -> dict[str, str]:
        """What the server's process gets, of the environment of the tests whatever is not a setting."""
        return free_of_settings() | self._settings | self.variables

    @property
    def log(self) -> Path:
        """What the server has written to standard error."""
        return self.folder / "server.log"

    @property
    def side_files(self) -> list[str]:
        """Files that SQLite keeps beside the database, and removes when its last user closes it well."""
        return sorted(file.name for file in self.folder.glob("payres.db-*"))


def make_peers(left: Server, right: Server, max_packet: int) -> None:
    """Makes two nodes each other's peers, for packets of so many cents at most."""
    there, back = secrets.token_urlsafe(), secrets.token_urlsafe()
    for here, other, shown, seen in ((left, right, there, back), (right, left, back, there)):
        where = ("--ilp-address", f"test.{other.name}", "--url", f"{other.base_url}/ilp")
        tokens = ("--outgoing-token", shown, "--incoming-token", seen)
        terms = ("--asset", "USD", "--scale", "2", "--credit-limit", "1000000.00", "--max-packet", str(max_packet))
        here.command("peer", "add", other.name, *where, *tokens, *terms)


def check_link(left: Server, right: Server) -> Json:
    """Two peers have counted the same, and nothing is unresolved; returns what the first says of the second."""
    ours = left.command("peer", "show", right.name)
    theirs = right.command("peer", "show", left.name)
    assert ours["balance"].lstrip("-") == theirs["balance"].lstrip("-")
    assert (ours["reserved"], theirs["reserved"]) == ("0.00", "0.00")
    assert ours["packetsSent"] == theirs["packetsReceived"]
    for server in (left, right):
        assert server.select("SELECT count(*) FROM packet WHERE state IN ('prepared', 'doubtful')") == [(0,)]
    return ours
