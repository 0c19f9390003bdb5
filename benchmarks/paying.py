"""Local payments: clients that quote and pay, one payment after the other."""

import asyncio
import sqlite3
from collections.abc import Iterator
from itertools import count
from time import monotonic

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
    """Payments per second: a quote and an outgoing payment each, whose money has arrived with the answer.

    They are counted in the database, over the time from the first request to the last answer.
    """
    reader = sqlite3.connect(f"file:{population.path}?mode=ro", uri=True)
    try:
        before = count_payments(reader)
        began = monotonic()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_pay(population, port, began + seconds))
        elapsed = monotonic() - began
        return (count_payments(reader) - before) / elapsed
    finally:
        reader.close()


async def _pay(population: Population, port: int, until: float) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(PAYERS):
            caller = population.callers[number % len(population.callers)]
            group.create_task(_pay_one_by_one(population, caller, port, until))


async def _pay_one_by_one(population: Population, caller: Caller, port: int, until: float) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for receiver in receivers(population):
        if monotonic() > until:
            break
        writer.write(quote_request(population, caller, receiver))
        quote = await made(reader)
        writer.write(payment_request(population, caller, quote.id))
        await made(reader)
    writer.close()
    await writer.wait_closed()


def quote_request(population: Population, caller: Caller, receiver: str) -> bytes:
    """POST /quotes, of one amount for any receiver."""
    asked = {
        "walletAddress": population.paying_wallet_address,
        "receiver": receiver,
        "method": "ilp",
        "debitAmount": {"value": "125", "assetCode": "USD", "assetScale": 2},
    }
    return signed_request(population.urls.base, "POST", "/quotes", caller, asked)


def payment_request(population: Population, caller: Caller, quote_id: str) -> bytes:
    """POST /outgoing-payments, for a quote."""
    body = {
        "walletAddress": population.paying_wallet_address,
        "quoteId": quote_id,
        "metadata": {"description": "Order"},
    }
    return signed_request(population.urls.base, "POST", "/outgoing-payments", caller, body)


def receivers(population: Population) -> Iterator[str]:
    """Incoming payments to pay, one after another and over again."""
    for number in _numbers:
        payment_id, _ = population.payments[number % len(population.payments)]
        yield population.urls.resource("incoming-payments", payment_id)


async def made(reader: asyncio.StreamReader) -> Made:
    """The body of the next answer, which must be 201."""
    head = await reader.readuntil(b"\r\n\r\n")
    lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
    body = await reader.readexactly(int(lines[b"content-length"]))
    if not head.startswith(b"HTTP/1.1 201"):
        raise CannotMeasure(body.decode())
    return msgspec.json.decode(body, type=Made)


def count_payments(reader: sqlite3.Connection) -> int:
    """How many outgoing payments have arrived."""
    found: int = reader.execute("SELECT count(*) FROM outgoing_payment WHERE state = 'completed'").fetchone()[0]
    return found
