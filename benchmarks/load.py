"""Load: wrk replays a file of requests; payers make payments, one after the other or to another server."""

import asyncio
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import cycle, islice
from pathlib import Path
from time import monotonic, perf_counter
from typing import Self

import msgspec
import uvloop

from benchmarks import CannotMeasure
from benchmarks.population import Node, Population, add_peer, populate, reading
from benchmarks.raw_requests import payment, quote
from benchmarks.servers import PAYRES, Server, free_port, running
from payres.core.protocol.identifiers import new_secret

SCRIPT = Path(__file__).with_name("replay.lua")
CONNECTIONS = 32
TIMEOUT = "30s"  # an answer that comes late is late, and not broken
# One server reads from another at four places at a time, with a short queue: more payers than that would be told so.
PAYERS = 8
POLL_SECONDS = 0.005


class Replay(msgspec.Struct, frozen=True):
    """What wrk counted. Times are microseconds; `median` and `slowest_hundredth` are of the answers' latency."""

    requests: int
    microseconds: int
    refused: int
    broken: int
    median: int
    slowest_hundredth: int

    @property
    def per_second(self) -> float:
        return self.requests / self.microseconds * 1e6


def require_wrk() -> None:
    """Raises CannotMeasure, saying how to install it, when there is no wrk."""
    if shutil.which("wrk") is None:
        raise CannotMeasure("wrk is not installed. On Debian and Ubuntu: sudo apt install wrk")


def write_requests(file: Path, requests: Iterable[bytes]) -> None:
    """Writes requests in the form that replay.lua reads."""
    file.write_bytes(b"".join(b"%d\n%b" % (len(request), request) for request in requests))


def replay(port: int, requests: Path, seconds: int, connections: int = CONNECTIONS) -> Replay:
    """Replays the file for whole seconds. Raises CannotMeasure unless every answer was 2xx."""
    options = ("-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", TIMEOUT, "-s", str(SCRIPT))
    command = ("wrk", *options, f"http://127.0.0.1:{port}", "--", str(requests))
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    last = finished.stdout.strip().rpartition("\n")[2]
    if finished.returncode != 0 or not last.startswith("{"):
        raise CannotMeasure(f"wrk failed on {requests.name}: {finished.stdout}{finished.stderr}")
    counted = msgspec.json.decode(last, type=Replay)
    if counted.requests == 0 or counted.refused or counted.broken:
        raise CannotMeasure(f"{requests.name} was not answered as it should be: {last}")
    return counted


class Payer(msgspec.Struct, frozen=True):
    """Who makes payments over a connection of its own to a server with this population."""

    population: Population
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def connect(cls, population: Population, port: int) -> Self:
        return cls(population, *await asyncio.open_connection("127.0.0.1", port))

    async def create(self, request: bytes) -> str:
        """Sends the request; the id of what it made. Raises CannotMeasure unless that is answered 201."""
        self.writer.write(request)
        head = await self.reader.readuntil(b"\r\n\r\n")
        lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
        body = await self.reader.readexactly(int(lines[b"content-length"]))
        if not head.startswith(b"HTTP/1.1 201"):
            raise CannotMeasure(body.decode())
        return str(msgspec.json.decode(body)["id"])

    async def pay_until_they_arrive(self, quote_ids: Iterator[str]) -> None:
        """Makes a payment from one quote after the other, each when the one before has arrived.

        Raises CannotMeasure when one fails.
        """
        query = "SELECT state, failure FROM outgoing_payment WHERE id = ?"
        with reading(self.population.path) as database:
            for quote_id in quote_ids:
                url = await self.create(payment(self.population, self.population.callers[0], quote_id))
                state = "sending"
                while state == "sending":
                    await asyncio.sleep(POLL_SECONDS)
                    state, failure = database.execute(query, (url.rpartition("/")[2],)).fetchone()
                if state != "completed":
                    raise CannotMeasure(f"a payment to the other server failed: {failure}")


async def payment_milliseconds(population: Population, port: int, seconds: float) -> Sequence[float]:
    """How long payments take that are made one after the other over one connection, with nothing else going on.

    A payment's time is that of its two requests. Signing them is the client's own, and is not counted.
    """
    payer, until = await Payer.connect(population, port), monotonic() + seconds
    milliseconds: list[float] = []
    for payment_id, caller in cycle(population.payments):
        asked = quote(population, caller, population.urls.resource("incoming-payments", payment_id))
        began = perf_counter()
        quote_id = await payer.create(asked)
        quoted = perf_counter()
        paid = payment(population, caller, quote_id)
        signed = perf_counter()
        await payer.create(paid)
        milliseconds.append((perf_counter() - signed + quoted - began) * 1e3)
        if monotonic() > until:  # after the first, however slow the machine is
            break
    payer.writer.close()
    return milliseconds


class Pair(msgspec.Struct, frozen=True):
    """Two servers that are peers: the one that pays, and the other. Both run on the cores of this machine."""

    payer: Population
    payee: Population
    servers: Sequence[Server]

    async def pay(self, payments: int) -> tuple[float, float]:
        """Completes so many payments, eight at a time; their quotes are made before anything begins to count.

        Returns payments per second, and microseconds of both servers' processor time for each. Raises CannotMeasure.
        """
        payers = [await Payer.connect(self.payer, self.servers[0].port) for _ in range(PAYERS)]
        quote_ids: list[str] = []
        for payment_id, _ in islice(cycle(self.payee.payments), payments):
            receiver = self.payee.urls.resource("incoming-payments", payment_id)
            quote_ids.append(await payers[0].create(quote(self.payer, self.payer.callers[0], receiver)))
        unpaid = iter(quote_ids)
        began, before = monotonic(), self._processor_seconds()
        await asyncio.gather(*(payer.pay_until_they_arrive(unpaid) for payer in payers))
        seconds, used = monotonic() - began, self._processor_seconds() - before
        for payer in payers:
            payer.writer.close()
        return payments / seconds, used / payments * 1e6

    def _processor_seconds(self) -> float:
        return sum(server.processor_seconds() for server in self.servers)


@contextmanager
def running_pair(directory: Path, payments: int) -> Iterator[Pair]:
    """Runs both servers for the block, each with so many incoming payments. Raises CannotMeasure."""
    ports = {name: free_port() for name in ("payer", "payee")}
    urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    payer, payee = (populate(directory / f"{name}.db", url, payments) for name, url in urls.items())
    own, other = (Node(f"test.{name}", f"{url}/ilp", new_secret()) for name, url in urls.items())
    add_peer(payer.path, own, other)
    add_peer(payee.path, other, own)
    with ExitStack() as stack:
        servers = [
            stack.enter_context(
                running(PAYRES, side.path, side.urls.base, ilp_address=node.ilp_address, allow_private_hosts="true")
            )
            for side, node in ((payer, own), (payee, other))
        ]
        pair = Pair(payer, payee, servers)
        uvloop.run(pair.pay(1))  # the first one fetches keys and a token, and imports the HTTP client on both sides
        yield pair
