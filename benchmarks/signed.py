"""Signed requests, as the bytes that go over the wire."""

from collections.abc import Iterator
from random import Random
from time import time
from urllib.parse import quote as percent_encoded

import msgspec

from benchmarks.population import KID, Caller, Population
from payres.signatures.sign import Message, sign

CREATIONS = 500


def reads(population: Population) -> Iterator[bytes]:
    """GET /incoming-payments/{id}, each by the client that made the payment."""
    payments = list(population.payments)
    Random(2).shuffle(payments)  # neighbours in time lie on one page of the file, and would help each other
    for payment_id, caller in payments:
        yield signed_request(population.urls.base, "GET", f"/incoming-payments/{payment_id}", caller)


def creations(population: Population) -> Iterator[bytes]:
    """POST /incoming-payments, into every wallet and by every client in turn."""
    for number in range(CREATIONS):
        body = {
            "walletAddress": population.wallet_addresses[number % len(population.wallet_addresses)],
            "incomingAmount": {"value": "1500", "assetCode": "USD", "assetScale": 2},
            "metadata": {"description": "Order", "externalRef": f"INV-{number:06}"},
        }
        caller = population.callers[number % len(population.callers)]
        yield signed_request(population.urls.base, "POST", "/incoming-payments", caller, body)


def lists(population: Population) -> Iterator[bytes]:
    """GET /incoming-payments of the busiest wallet address: the newest page of each client's own."""
    target = f"/incoming-payments?wallet-address={percent_encoded(population.busy_wallet_address, safe='')}"
    for caller in population.callers:
        yield signed_request(population.urls.base, "GET", target, caller)


def quotes(population: Population) -> Iterator[bytes]:
    """POST /quotes, for one receiver after the other, and by every client in turn."""
    for number, (payment_id, _) in enumerate(population.payments[:CREATIONS]):
        receiver = population.urls.resource("incoming-payments", payment_id)
        yield quote(population, population.callers[number % len(population.callers)], receiver)


def quote(population: Population, caller: Caller, receiver: str) -> bytes:
    """POST /quotes, of one amount for any receiver."""
    body = {
        "walletAddress": population.paying_wallet_address,
        "receiver": receiver,
        "method": "ilp",
        "debitAmount": {"value": "125", "assetCode": "USD", "assetScale": 2},
    }
    return signed_request(population.urls.base, "POST", "/quotes", caller, body)


def payment(population: Population, caller: Caller, quote_id: str) -> bytes:
    """POST /outgoing-payments, for a quote."""
    body = {
        "walletAddress": population.paying_wallet_address,
        "quoteId": quote_id,
        "metadata": {"description": "Order"},
    }
    return signed_request(population.urls.base, "POST", "/outgoing-payments", caller, body)


def signed_request(base_url: str, method: str, target: str, caller: Caller, body: object = None) -> bytes:
    """One HTTP/1.1 request, signed and complete; `body` is sent as JSON."""
    content = b"" if body is None else msgspec.json.encode(body)
    headers = {"authorization": f"GNAP {caller.token}"}
    if content:
        headers["content-type"] = "application/json"
    lines = [(name.encode(), value.encode()) for name, value in headers.items()]
    message = Message(method, base_url + target, lines, content)
    headers |= sign(message, caller.private_key.sign, KID, int(time()))
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{method} {target} HTTP/1.1\r\nhost: benchmark\r\n{head}\r\n".encode() + content
