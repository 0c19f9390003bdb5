"""Local payments: each is a quote and an outgoing payment, whose money has arrived with the answer."""

import asyncio
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import cycle
from time import monotonic, perf_counter
from typing import NamedTuple

import msgspec
import uvloop

from benchmarks import CannotMeasure
from benchmarks.population import Population
from benchmarks.signed import payment, quote, quotes

UNPAID = """
SELECT id, client_id FROM quote
WHERE incoming_payment_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM outgoing_payment WHERE quote_id = quote.id)
ORDER BY id DESC LIMIT ?
"""


class Made(msgspec.Struct):
    """The one member of an answer that the next request needs."""

    id: str


def payments(population: Population, most: int) -> Iterator[bytes]:
    """Quotes and payments in turn, so many of each at most.

    A payment's body names its quote and is signed, so it cannot be of the quote before it: it is of one that an earlier
    replay has made. Each is good once.
    """
    callers = {caller.client_id: caller for caller in population.callers}
    with closing(sqlite3.connect(f"file:{population.path}?mode=ro", uri=True)) as database:
        unpaid = database.execute(UNPAID, (most,)).fetchall()
    for asked, (quote_id, client_id) in zip(cycle(list(quotes(population))), unpaid, strict=False):
        yield asked
        yield payment(population, callers[client_id], population.urls.resource("quotes", quote_id))


def payment_milliseconds(population: Population, port: int, seconds: float) -> Sequence[float]:
    """How long payments take that are made one after the other over one connection, with nothing else going on.

    A payment's time is that of its two requests. Signing them is the client's own, and is not counted.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_pay_one_by_one(population, port, monotonic() + seconds))


class Connection(NamedTuple):
    """An open connection to the server."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def create(self, request: bytes) -> str:
        """Sends the request; the id of what it made. Raises CannotMeasure unless that is answered 201."""
        self.writer.write(request)
        head = await self.reader.readuntil(b"\r\n\r\n")
        lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
        body = await self.reader.readexactly(int(lines[b"content-length"]))
        if not head.startswith(b"HTTP/1.1 201"):
            raise CannotMeasure(body.decode())
        return msgspec.json.decode(body, type=Made).id


async def connect(port: int) -> Connection:
    return Connection(*await asyncio.open_connection("127.0.0.1", port))


async def _pay_one_by_one(population: Population, port: int, until: float) -> Sequence[float]:
    connection = await connect(port)
    milliseconds: list[float] = []
    for payment_id, caller in cycle(population.payments):
        asked = quote(population, caller, population.urls.resource("incoming-payments", payment_id))
        began = perf_counter()
        quote_id = await connection.create(asked)
        quoted = perf_counter()
        paid = payment(population, caller, quote_id)
        signed = perf_counter()
        await connection.create(paid)
        milliseconds.append((perf_counter() - signed + quoted - began) * 1e3)
        if monotonic() > until:  # after the first, however slow the machine is
            break
    connection.writer.close()
    return milliseconds
