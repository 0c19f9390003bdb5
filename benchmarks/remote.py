"""Payments from one payres process to another beside it, over Interledger: both on the cores of this machine."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from itertools import cycle, islice
from pathlib import Path
from time import monotonic

import msgspec
import uvloop

from benchmarks import CannotMeasure
from benchmarks.paying import connect
from benchmarks.peering import Node, add_peer
from benchmarks.population import Caller, Population, populate
from benchmarks.servers import Server, free_port, payres_command, running
from benchmarks.signed import payment, quote
from payres.identifiers import new_secret

# One server reads from another at four places at a time, with a short queue: more payers than that would be told so.
PAYERS = 8
POLL_SECONDS = 0.005


class Paid(msgspec.Struct, frozen=True):
    """Payments completed per second, and microseconds of both servers' processor time for each."""

    rate: float
    processor: float


class Pair(msgspec.Struct, frozen=True):
    """Two servers that are peers: the one that pays, and the other."""

    payer: Population
    payee: Population
    servers: Sequence[Server]

    def pay(self, payments: int) -> Paid:
        """So many payments, eight at a time; their quotes are made before anything begins to count.

        Raises CannotMeasure when not all of them arrive.
        """
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(self._measure(payments))

    async def _measure(self, payments: int) -> Paid:
        unquoted, quote_ids = islice(cycle(self.payee.payments), payments), list[str]()
        await _together(lambda: self._quote(unquoted, quote_ids))
        unpaid = iter(quote_ids)
        began, before = monotonic(), self._processor_seconds()
        await _together(lambda: self._pay(unpaid))
        used = self._processor_seconds() - before
        return Paid(payments / (monotonic() - began), used / payments * 1e6)

    def _processor_seconds(self) -> float:
        return sum(server.processor_seconds() for server in self.servers)

    async def _quote(self, unquoted: Iterator[tuple[str, Caller]], quote_ids: list[str]) -> None:
        """Makes a quote for one receiver after the other."""
        connection = await connect(self.servers[0].port)
        for payment_id, _ in unquoted:
            receiver = self.payee.urls.resource("incoming-payments", payment_id)
            quote_ids.append(await connection.create(quote(self.payer, self.payer.callers[0], receiver)))
        connection.writer.close()

    async def _pay(self, unpaid: Iterator[str]) -> None:
        """Makes a payment from one quote after the other, each when the one before has arrived."""
        connection = await connect(self.servers[0].port)
        with closing(sqlite3.connect(f"file:{self.payer.path}?mode=ro", uri=True)) as database:
            for quote_id in unpaid:
                made = await connection.create(payment(self.payer, self.payer.callers[0], quote_id))
                await _arrival(database, made.rpartition("/")[2])
        connection.writer.close()


@contextmanager
def running_pair(directory: Path, payments: int) -> Iterator[Pair]:
    """Runs both servers for the block, each with so many incoming payments. Raises CannotMeasure."""
    payer, payee = _prepared("payer", directory, payments), _prepared("payee", directory, payments)
    add_peer(payer.node, payee.node)
    add_peer(payee.node, payer.node)
    with ExitStack() as stack:
        servers = [stack.enter_context(side.running()) for side in (payer, payee)]
        pair = Pair(payer.population, payee.population, servers)
        pair.pay(1)  # the first one fetches keys and a token, and imports the HTTP client on both sides
        yield pair


class _Side(msgspec.Struct, frozen=True):
    population: Population
    node: Node
    port: int

    def running(self) -> AbstractContextManager[Server]:
        settings = {"PAYRES_ILP_ADDRESS": self.node.ilp_address, "PAYRES_ALLOW_PRIVATE_HOSTS": "true"}
        command = payres_command(self.node.database, self.port, self.population.urls.base)
        return running(command, self.port, self.node.database.with_suffix(".log"), settings)


def _prepared(name: str, directory: Path, payments: int) -> _Side:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    population = populate(directory / f"{name}.db", url, payments)
    return _Side(population, Node(population.path, f"test.{name}", f"{url}/ilp", new_secret()), port)


async def _together(work: Callable[[], Awaitable[None]]) -> None:
    """Does the work eight times at once."""
    await asyncio.gather(*(work() for _ in range(PAYERS)))


async def _arrival(database: sqlite3.Connection, payment_id: str) -> None:
    """Waits until the payment is completed. Raises CannotMeasure when it fails."""
    state = "sending"
    while state == "sending":
        await asyncio.sleep(POLL_SECONDS)
        query = "SELECT state, failure FROM outgoing_payment WHERE id = ?"
        state, failure = database.execute(query, (payment_id,)).fetchone()
    if state != "completed":
        raise CannotMeasure(f"a payment to the other server failed: {failure}")
