"""Requests as the bytes that go over the wire: signed ones, and packets of a peer."""

import base64
import hashlib
from collections.abc import Iterator
from itertools import cycle
from random import Random
from time import time
from urllib.parse import quote as percent_encoded

import msgspec

from benchmarks.population import KID, Caller, Population, reading, unit
from payres.core.protocol.amounts import Asset
from payres.core.protocol.clock import DAY, SystemClock
from payres.core.protocol.identifiers import new_id
from payres.core.signatures.sign import Message, sign
from payres.core.store.server_secrets import ensure_secret
from payres.interledger.credentials import CredentialSource
from payres.interledger.oer import encode_packet
from payres.interledger.packets import Prepare
from payres.interledger.settings import InterledgerSettings
from payres.interledger.stream import PacketType, SharedSecret, StreamMoney, StreamPacket
from payres.operator.peers import add_peer
from payres.settings import settings_with
from payres.testing.peering import peers_of

ASSET = Asset("USD", 2)
CREDIT_LIMIT = "10000000000000.00"
PACKET_AMOUNT = 100
CREATIONS = 500
UNPAID = """
SELECT id, client_id FROM quote
WHERE incoming_payment_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM outgoing_payment WHERE quote_id = quote.id)
ORDER BY id DESC LIMIT ?
"""


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
    target = f"/incoming-payments?wallet-address={percent_encoded(population.wallet_addresses[0], safe='')}"
    for caller in population.callers:
        yield signed_request(population.urls.base, "GET", target, caller)


def quotes(population: Population) -> Iterator[bytes]:
    """POST /quotes, for one receiver after the other, and by every client in turn."""
    for number, (payment_id, _) in enumerate(population.payments[:CREATIONS]):
        receiver = population.urls.resource("incoming-payments", payment_id)
        yield quote(population, population.callers[number % len(population.callers)], receiver)


def payments(population: Population, most: int) -> Iterator[bytes]:
    """Quotes and payments in turn, so many of each at most.

    A payment's body names its quote and is signed, so it cannot be of the quote before it: it is of one that an earlier
    replay has made. Each is good once.
    """
    callers = {caller.client_id: caller for caller in population.callers}
    with reading(population.path) as database:
        unpaid = database.execute(UNPAID, (most,)).fetchall()
    for asked, (quote_id, client_id) in zip(cycle(list(quotes(population))), unpaid, strict=False):
        yield asked
        yield payment(population, callers[client_id], population.urls.resource("quotes", quote_id))


def quote(population: Population, caller: Caller, receiver: str) -> bytes:
    """POST /quotes, of one amount for any receiver."""
    body = {
        "walletAddress": population.wallet_addresses[-1],
        "receiver": receiver,
        "method": "ilp",
        "debitAmount": {"value": "125", "assetCode": "USD", "assetScale": 2},
    }
    return signed_request(population.urls.base, "POST", "/quotes", caller, body)


def payment(population: Population, caller: Caller, quote_id: str) -> bytes:
    """POST /outgoing-payments, for a quote."""
    body = {
        "walletAddress": population.wallet_addresses[-1],
        "quoteId": quote_id,
        "metadata": {"description": "Order"},
    }
    return signed_request(population.urls.base, "POST", "/outgoing-payments", caller, body)


class PacketSource:
    """A peer of a server, which pays into one of the server's incoming payments."""

    def __init__(self, population: Population) -> None:
        self._database = population.path
        own, peer = settings_with({}), settings_with({"ilp_address": "test.peer"})
        added, _ = peers_of(own, peer, ASSET, CREDIT_LIMIT)
        with unit(population.path, own) as work:
            add_peer(work, **added)
            secret = ensure_secret(work, "stream")
        payment_id, _ = population.payments[-1]
        found = CredentialSource(secret, own.of(InterledgerSettings).ilp_address).for_payment(payment_id, ASSET)
        self._token = added["incoming_token"]
        self._destination = found.ilp_address
        self._secret = SharedSecret(base64.urlsafe_b64decode(found.shared_secret + "="))
        self._sequence = 0

    def requests(self, count: int) -> Iterator[bytes]:
        """So many packets that were never sent."""
        expires_at = SystemClock().now() + DAY
        for _ in range(count):
            self._sequence += 1
            money = StreamPacket(self._sequence, PacketType.PREPARE, PACKET_AMOUNT, (StreamMoney(1, 1),))
            data = self._secret.encrypt_packet(money)
            condition = hashlib.sha256(self._secret.fulfillment(data)).digest()
            yield self._request(encode_packet(Prepare(PACKET_AMOUNT, expires_at, condition, self._destination, data)))

    def fulfilled(self) -> int:
        """How many were new to the server and brought their money."""
        with reading(self._database) as connection:
            return int(connection.execute("SELECT sum(packets_received) FROM peer").fetchone()[0])

    def _request(self, prepare: bytes) -> bytes:
        head = (
            f"POST /ilp HTTP/1.1\r\nhost: benchmark\r\nauthorization: Bearer {self._token}\r\n"
            "content-type: application/octet-stream\r\naccept: application/octet-stream\r\n"
            f"request-id: {new_id()}\r\ncontent-length: {len(prepare)}\r\n\r\n"
        )
        return head.encode() + prepare


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
