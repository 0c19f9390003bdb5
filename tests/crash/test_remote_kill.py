"""Two and three `payres serve` that pay each other, killed in the middle of a payment of many packets.

REMOTE_SEED replays the moments that a failure names, REMOTE_KILLS prolongs the series, REMOTE_PACKETS the payments.
"""

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path
from random import Random, SystemRandom
from time import monotonic, sleep
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from payres.cli import main
from payres.clock import SystemClock
from payres.signatures.jwk import jwk_from_pem
from payres.store.database import connect_reader
from payres.testing.client import Client
from tests.crash.test_kill import free_port

Json = dict[str, Any]

KILLS = int(os.environ.get("REMOTE_KILLS", "1"))
PACKETS = int(os.environ.get("REMOTE_PACKETS", "600"))
PACKET = 5  # cents
VALUE = PACKETS * PACKET
FEE = 10
DEPOSIT = 10_000_00
PATIENCE_SECONDS = 20
PAYMENT_SECONDS = 60 + 60 * KILLS  # packets in doubt are asked about when they have expired, 20 seconds on
SERVE = (sys.executable, "-m", "payres", "serve", "--json")

pytestmark = pytest.mark.timeout(PAYMENT_SECONDS + 60)


class Server:
    """A database made by commands, and the server on it: a shop, and the wallet `till` with some money."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.address = f"test.{name}"
        self.base_url = ""
        self.till = ""
        self._folder = folder / name
        self._folder.mkdir()
        self._key = self._folder / "shop.pem"
        self._process: subprocess.Popen[str] | None = None
        self._environment: dict[str, str] = {}

    def prepare(self) -> None:
        """Chooses a port and makes the wallets."""
        port = free_port()
        self.base_url = f"http://127.0.0.1:{port}"
        self.till = f"{self.base_url}/till"
        self._environment = {
            "PAYRES_DATABASE": str(self._folder / "payres.db"),
            "PAYRES_PORT": str(port),
            "PAYRES_ILP_ADDRESS": self.address,
            "PAYRES_ALLOW_PRIVATE_HOSTS": "true",
        }
        for wallet in ("till", "shop"):
            self.command("wallet", "create", wallet, "--asset", "USD", "--scale", "2", "--name", wallet.title())
        self.command("wallet", "deposit", "till", f"{DEPOSIT // 100}.00")
        self.command("key", "generate", "shop", "--out", str(self._key), "--kid", "key-1")
        self.command("fee", "set", "USD", "2", "--fixed", f"0.{FEE}")

    def peer(self, other: "Server", shown: str, seen: str, *routes: str) -> None:
        """Makes the other server a peer, which may send packets of a few cents each."""
        terms = ["--asset", "USD", "--scale", "2", "--credit-limit", "100000.00", "--max-packet", str(PACKET)]
        tokens = ["--outgoing-token", shown, "--incoming-token", seen]
        beyond = [word for route in routes for word in ("--route", route)]
        where = ["--ilp-address", other.address, "--url", f"{other.base_url}/ilp"]
        self.command("peer", "add", other.name, *where, *terms, *tokens, *beyond)

    def command(self, *arguments: str) -> Json:
        """What a command that must succeed prints. It has no part in the server but the file."""
        result = CliRunner().invoke(main, [*arguments, "--json"], catch_exceptions=False, env=self._environment)
        assert result.exit_code == 0, result.output
        printed: Json = json.loads(result.stdout)
        return printed

    def start(self) -> None:
        """Starts the server and returns when it answers."""
        environment = os.environ | self._environment
        with self.log.open("a") as log:
            self._process = subprocess.Popen(SERVE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        assert self._process.stdout is not None
        announced = any(line == "}\n" for line in self._process.stdout)
        assert announced, self.log.read_text()
        assert httpx2.get(f"{self.base_url}/healthz", timeout=PATIENCE_SECONDS).json() == {"status": "ok"}

    def kill(self) -> None:
        """Ends the server where it stands, if it runs."""
        if self._process is not None:
            with self._process as process:
                process.kill()
                process.wait(PATIENCE_SECONDS)
            self._process = None

    def client(self) -> Client:
        """The shop, which gets its users' consent from the command line."""
        pem = self._key.read_bytes()
        private_key = load_pem_private_key(pem, password=None)
        assert isinstance(private_key, Ed25519PrivateKey)
        jwk, clock = jwk_from_pem("key-1", pem), SystemClock()
        return Client(f"{self.base_url}/shop", private_key, jwk, self.base_url, clock, self._approve)

    def select(self, query: str) -> list[Any]:
        """Rows of the database, as another program sees them."""
        with closing(connect_reader(self._environment["PAYRES_DATABASE"])) as connection:
            return connection.execute(query).fetchall()

    def till_money(self) -> tuple[int, int]:
        """What the till holds, and how much of it is reserved, in cents."""
        wallet = self.command("wallet", "show", "till")
        return int(wallet["balance"].replace(".", "")), int(wallet["reserved"].replace(".", ""))

    @property
    def log(self) -> Path:
        """What the server has written to standard error."""
        return self._folder / "server.log"

    def _approve(self, redirect: str) -> str | None:
        finished: str | None = self.command("grant", "approve", redirect)["redirect"]
        return finished


class Payment:
    """A payment of many packets from the first server of a row to the last."""

    def __init__(self, payer: Server, payee: Server) -> None:
        self.payer = payer
        self.payee = payee

    def begin(self) -> None:
        with closing(self.payee.client()) as shop:
            amount = {"value": str(VALUE), "assetCode": "USD", "assetScale": 2}
            receiver = shop.create_incoming_payment(self.payee.till, amount)["id"]
        with closing(self.payer.client()) as shop:
            shop.pay(self.payer.till, receiver)

    @property
    def state(self) -> str:
        ((state,),) = self.payer.select("SELECT state FROM outgoing_payment")
        return str(state)

    def wait_until_fulfilled(self, packets: int) -> None:
        """Returns when so many packets have been fulfilled, or the payment has ended."""
        query = "SELECT count(*) FROM packet WHERE state = 'fulfilled'"
        self._wait(lambda: self.payer.select(query)[0][0] >= packets or self.state != "sending")

    def wait_until_ended(self) -> None:
        self._wait(lambda: self.state != "sending")

    def check(self, row: list[Server]) -> None:
        """It was sent, delivered and received once, and every server says the same of it."""
        assert self.payer.select("SELECT state, sent - fee, delivered, fee, failure FROM outgoing_payment") == [
            ("completed", VALUE, VALUE, FEE, None)
        ]
        assert self.payee.select("SELECT received, completed_at IS NULL FROM incoming_payment") == [(VALUE, 0)]
        assert self.payer.till_money() == (DEPOSIT - VALUE - FEE, 0)
        assert self.payee.till_money() == (DEPOSIT + VALUE, 0)
        for left, right in pairwise(row):
            ours, theirs = left.command("peer", "show", right.name), right.command("peer", "show", left.name)
            assert ours["balance"] == f"{VALUE // 100}.{VALUE % 100:02}"
            assert theirs["balance"] == f"-{ours['balance']}"
            assert (ours["packetsSent"], theirs["reserved"]) == (theirs["packetsReceived"], "0.00")
        for server in row:
            assert server.command("ledger", "check")["ok"]
            assert server.select("SELECT count(*) FROM packet WHERE state IN ('prepared', 'doubtful')") == [(0,)]

    def _wait(self, done: Callable[[], bool]) -> None:
        deadline = monotonic() + PAYMENT_SECONDS
        while not done():
            assert monotonic() < deadline, "the payment gets no further"
            sleep(0.02)  # between looks at the database, so that the servers have the machine to themselves


def row_of(folder: Path, names: str, stack: ExitStack) -> list[Server]:
    """Servers in a row, each the peer of the next, running until the stack is closed."""
    row = [Server(folder, name) for name in names]
    for server in row:
        server.prepare()
    for place, (left, right) in enumerate(pairwise(row)):
        there, back = secrets.token_urlsafe(), secrets.token_urlsafe()
        left.peer(right, there, back, *(server.address for server in row[place + 2 :]))
        right.peer(left, back, there, *(server.address for server in row[:place]))
    for server in row:
        stack.callback(server.kill)
        server.start()
    return row


@pytest.mark.parametrize(
    ("names", "killed"),
    [("ab", "a"), ("ab", "b"), ("ab", "ab"), ("abc", "b")],
    ids=["payer", "payee", "both", "middle of three"],
)
def test_kill_in_the_middle_of_a_payment_neither_loses_nor_repeats_a_packet(
    names: str, killed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = int(os.environ.get("REMOTE_SEED") or SystemRandom().getrandbits(32))
    chance = Random(seed)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.chdir(tmp_path)
    try:
        with ExitStack() as stack:
            row = row_of(tmp_path, names, stack)
            payment = Payment(row[0], row[-1])
            payment.begin()
            for moment in sorted(chance.sample(range(PACKETS // 20, PACKETS * 19 // 20), KILLS)):
                payment.wait_until_fulfilled(moment)
                for server in chance.sample([server for server in row if server.name in killed], len(killed)):
                    server.kill()
                for server in row:
                    if server.name in killed:
                        server.start()
            payment.wait_until_ended()
            payment.check(row)
    except BaseException as error:
        error.add_note(f"REMOTE_SEED={seed} draws the same moments again")
        raise
