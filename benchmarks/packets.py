"""Packets from a peer to one incoming payment, as the bytes that go over the wire; no two are alike."""

import base64
import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from benchmarks.peering import Node, add_peer
from benchmarks.population import Population
from payres.amounts import Asset
from payres.clock import DAY, SystemClock
from payres.identifiers import new_id, new_secret
from payres.interledger.credentials import CredentialSource
from payres.interledger.packets import Prepare, encode
from payres.interledger.stream import PacketType, SharedSecret, StreamMoney, StreamPacket
from payres.settings import Settings
from payres.store.connections import connect_writer
from payres.store.secrets import ensure_secret

AMOUNT = 100


class PacketSource:
    """A peer of a server, which pays into one of the server's incoming payments."""

    def __init__(self, population: Population) -> None:
        self._database = population.path
        own_address = Settings().ilp_address
        self._peer = Node(Path(), f"{own_address}-peer", "https://peer.example/ilp", new_secret())
        add_peer(Node(population.path, own_address, "", "unused"), self._peer)
        with closing(connect_writer(str(population.path))) as connection:
            secret = ensure_secret(connection, "stream")
        payment_id, _ = population.payments[-1]
        found = CredentialSource(secret, own_address).for_payment(payment_id, Asset("USD", 2))
        self._destination = found.ilp_address
        self._secret = SharedSecret(base64.urlsafe_b64decode(found.shared_secret + "="))
        self._sequence = 0

    def requests(self, count: int) -> Iterator[bytes]:
        """So many packets that were never sent."""
        expires_at = SystemClock().now() + DAY
        for _ in range(count):
            self._sequence += 1
            money = StreamPacket(self._sequence, PacketType.PREPARE, AMOUNT, (StreamMoney(1, 1),))
            data = self._secret.encrypt_packet(money)
            condition = hashlib.sha256(self._secret.fulfillment(data)).digest()
            yield self._request(encode(Prepare(AMOUNT, expires_at, condition, self._destination, data)))

    def fulfilled(self) -> int:
        """How many were new to the server and brought their money."""
        with closing(sqlite3.connect(f"file:{self._database}?mode=ro", uri=True)) as reader:
            found: int = reader.execute("SELECT sum(packets_received) FROM peer").fetchone()[0]
            return found

    def _request(self, prepare: bytes) -> bytes:
        head = (
            f"POST /ilp HTTP/1.1\r\nhost: benchmark\r\nauthorization: Bearer {self._peer.token}\r\n"
            "content-type: application/octet-stream\r\naccept: application/octet-stream\r\n"
            f"request-id: {new_id()}\r\ncontent-length: {len(prepare)}\r\n\r\n"
        )
        return head.encode() + prepare
