"""Local payments: clients that quote and pay, each with one payment under way at a time."""

import asyncio
import sqlite3
from collections.abc import Iterator
from itertools import count
from time import monotonic, sleep

import msgspec
import uvloop

from benchmarks import CannotMeasure
from benchmarks.population import Caller, Population
from benchmarks.signed import signed_request

PAYERS = 32

_numbers = count()  # over all runs, so that each payment goes to another receiver than the last


class Made(msgspec.Struct):
    """The one member of an answer that the next request needs."""

    id: str


def payments_per_second(population: Population, port: int, seconds: float) -> float:
    """Payments settled per second: a quote and an outgoing payment each, until the last one has arrived.

    They are counted in the database, over the time from the first request until none is under way any more.
    """
    reader = sqlite3.connect(f"file:{population.path}?mode=ro", uri=True)
    try:
        before = _count(reader, "completed")
        began = monotonic()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_pay(population, port, began + seconds))
        while _count(reader, "sending"):
            sleep(0.001)
        elapsed = monotonic() - began
        return (_count(reader, "completed") - before) / elapsed
    finally:
        reader.close()


async def _pay(population: Population, port: int, until: float) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(PAYERS):
            caller = population.callers[number % len(population.callers)]
            group.create_task(_pay_one_by_one(population, caller, port, until))


async def _pay_one_by_one(population: Population, caller: Caller, port: int, until: float) -> None:
    base, sender = population.urls.base, population.paying_wallet_address
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for receiver in _receivers(population):
        if monotonic() > until:
            break
        asked = {
            "walletAddress": sender,
            "receiver": receiver,
            "method": "ilp",
            "debitAmount": {"value": "125", "assetCode": "USD", "assetScale": 2},
        }
        writer.write(signed_request(base, "POST", "/quotes", caller, asked))
        quote = await _made(reader)
        body = {"walletAddress": sender, "quoteId": quote.id, "metadata": {"description": "Order"}}
        writer.write(signed_request(base, "POST", "/outgoing-payments", caller, body))
        await _made(reader)
    writer.close()
    await writer.wait_closed()


def _receivers(population: Population) -> Iterator[str]:
    """Incoming payments to pay, one after another and over again."""
    for number in _numbers:
        payment_id, _ = population.payments[number % len(population.payments)]
        yield population.urls.resource("incoming-payments", payment_id)


async def _made(reader: asyncio.StreamReader) -> Made:
    """The body of the next answer, which must be 201."""
    head = await reader.readuntil(b"\r\n\r\n")
    lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
    body = await reader.readexactly(int(lines[b"content-length"]))
    if not head.startswith(b"HTTP/1.1 201"):
        raise CannotMeasure(body.decode())
    return msgspec.json.decode(body, type=Made)


def _count(reader: sqlite3.Connection, state: str) -> int:
    found: int = reader.execute("SELECT count(*) FROM outgoing_payment WHERE state = ?", (state,)).fetchone()[0]
    return found
