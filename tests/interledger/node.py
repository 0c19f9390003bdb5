"""An Interledger node without a server around it, STREAM senders, and peers that do as they are told."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from payres.core.process.rate_limiter import RateLimiter
from payres.core.process.settings import Settings
from payres.core.protocol.amounts import Asset, format_decimal
from payres.core.protocol.clock import SECOND, Clock
from payres.core.protocol.identifiers import new_id
from payres.core.remote.http import GuardedClient
from payres.core.store import clients
from payres.core.store.accounts import ACCOUNTS
from payres.core.store.database import Database
from payres.core.store.incoming_payments import INCOMING, IncomingRecord
from payres.core.store.wallets import require_wallet
from payres.core.store.work import Environment, Transaction, Work
from payres.interledger.carrier import BOUNDS, Carrier, Link, NoReply, PacketCounts
from payres.interledger.connector import Connector
from payres.interledger.credentials import CredentialSource
from payres.interledger.oer import decode_reply, encode_packet
from payres.interledger.packets import Fulfill, Prepare, Reject, Reply
from payres.interledger.store import packets
from payres.interledger.store.packets import PacketRecord
from payres.interledger.store.peers import PeerRecord
from payres.interledger.stream import Frame, PacketType, SharedSecret, StreamMoney, StreamPacket
from payres.operator import wallets
from payres.operator.peers import require_peer
from payres.operator.upkeep import invariant_checks
from payres.testing.clock import MovableClock
from tests.core.remote.conftest import Request, open_servers, read_request
from tests.works import add_usd_peer

T = TypeVar("T")
OWN = "test.node"
START = 1_800_000_000_000_000
LIFETIME = 20 * SECOND
FULFILLMENT = bytes(range(32))
THANKS = Fulfill(FULFILLMENT, b"thanks")  # the reply to what `far_prepare` makes with FULFILLMENT


class Node:
    """The parts of a node over a database of its own; its clock stands still until it is moved."""

    def __init__(self, database: Database, link: Link, clock: MovableClock, own: str, secret: bytes) -> None:
        self.database = database
        self.link = link
        self.clock = clock
        self.credentials = CredentialSource(secret, own)
        self.carrier = Carrier(database, link, clock, own)
        self.connector = Connector(self.carrier, self.credentials, RateLimiter(0, clock))

    async def write(self, unit: Callable[[Work], T]) -> T:
        return await self.database.write(unit)

    async def peer(
        self, name: str, code: str = "USD", scale: int = 2, credit: int = 10**15, **terms: Any
    ) -> PeerRecord:
        """A new peer at `test.NAME` whose credit limit does not bother."""
        tokens = {"outgoing_token": f"out-{name}", "incoming_token": f"in-{name}"}
        terms = {"asset_code": code, "asset_scale": scale, "url": "http://127.0.0.1:9/"} | tokens | terms
        limit = format_decimal(credit, Asset(code, scale))
        return await self.write(lambda tx: add_usd_peer(tx, name, limit, **terms))

    async def wallet(self, path: str = "alice", code: str = "USD", scale: int = 2) -> int:
        """A new wallet; its id."""
        made = await self.write(lambda tx: wallets.create_wallet(tx, path, code, scale, None, None))
        return made.id

    async def payment(self, wallet_id: int, wanted: int | None = None, payment_id: str | None = None) -> str:
        """A new incoming payment that is open for a day; its id."""
        now, payment_id = self.clock.now(), payment_id or new_id()

        def unit(tx: Transaction) -> None:
            client = clients.ensure_client(tx, "https://shop.example/shop", "https://shop.example/shop", None, now)
            value = None if wanted is None else str(wanted)
            expires_at = now + 86_400 * SECOND
            record = IncomingRecord(payment_id, wallet_id, client.id, value, 0, None, now, expires_at, None)
            INCOMING.insert(tx, record)

        await self.write(unit)
        return payment_id

    def sender(self, payment_id: str, asset: Asset | None = None) -> "Sender":
        """One who has the credentials of an incoming payment."""
        made = self.credentials.for_payment(payment_id, asset or Asset("USD", 2))
        return sender_to(made.ilp_address, self.credentials, self.clock)

    async def send(self, peer: PeerRecord, prepare: Prepare, request_id: str | None = None) -> Reply:
        """The node's reply to a peer."""
        reply = await self.answer(peer, prepare, request_id)
        assert not isinstance(reply, NoReply)
        return reply

    async def answer(self, peer: PeerRecord, prepare: Prepare, request_id: str | None = None) -> Reply | NoReply:
        """The node's reply to a peer, or why there is none."""
        answer = await self.connector.handle(peer, encode_packet(prepare), request_id)
        return decode_reply(answer) if isinstance(answer, bytes) else answer

    async def balance(self, name: str) -> int:
        """What we owe a peer."""
        return (await self.database.read(lambda tx: require_peer(tx, name))).balance

    async def wallet_balance(self, path: str = "alice") -> int:
        def unit(tx: Work) -> int:
            return ACCOUNTS.by_id(tx, require_wallet(tx, path).account_id).balance

        return await self.database.read(unit)

    async def last_error(self, name: str = "far") -> str:
        """What went wrong with a peer last, or nothing."""
        return (await self.database.read(lambda tx: require_peer(tx, name))).last_error or ""

    async def received(self, payment_id: str) -> IncomingRecord:
        found = await self.database.read(lambda tx: INCOMING.get(tx, payment_id))
        assert found is not None
        return found

    async def under_way(self) -> list[PacketRecord]:
        return list(await self.database.read(lambda tx: packets.prepared_packets(tx, 1000)))

    async def check_books(self) -> None:
        findings = await self.database.read(invariant_checks.check)
        assert invariant_checks.first_broken(findings) is None, invariant_checks.first_broken(findings)


@asynccontextmanager
async def open_node(path: Path, own: str = OWN, secret: bytes = bytes(range(32))) -> AsyncIterator[Node]:
    """A node over the database file at `path`; what it holds is closed at the end."""
    async with AsyncExitStack() as stack:
        clock = MovableClock(START, frozen=True)
        database = await Database.open(str(path), Environment.of(Settings(), clock))
        stack.push_async_callback(database.close)
        http = await stack.enter_async_context(GuardedClient(True, BOUNDS))
        yield Node(database, Link(http, database, PacketCounts()), clock, own, secret)


class Sender:
    """The sending end of a STREAM connection, one packet at a time."""

    def __init__(self, address: str, secret: SharedSecret, clock: Clock) -> None:
        self.address = address
        self.secret = secret
        self.clock = clock
        self.sequence = 0

    def prepare(
        self,
        amount: int,
        minimum: int = 0,
        *frames: Frame,
        fulfillable: bool = True,
        lifetime: int = LIFETIME,
        kind: PacketType = PacketType.PREPARE,
    ) -> Prepare:
        self.sequence += 1
        packet = StreamPacket(self.sequence, kind, minimum, frames or (StreamMoney(1, 1),))
        data = self.secret.encrypt_packet(packet)
        condition = hashlib.sha256(self.secret.fulfillment(data)).digest() if fulfillable else os.urandom(32)
        return Prepare(amount, self.clock.now() + lifetime, condition, self.address, data)

    def read(self, reply: Reply) -> StreamPacket:
        """The receiver's words. Raises CodecError when there are none."""
        return self.secret.decrypt_packet(reply.data)


def sender_to(address: str, source: CredentialSource, clock: Clock) -> Sender:
    """One who was given the address by the server whose source this is."""
    opened = source.open(address)
    assert opened is not None
    return Sender(address, opened.shared_secret, clock)


def code(reply: Reply) -> str:
    """The code of a reject, or FULFILL."""
    return reply.code if isinstance(reply, Reject) else "FULFILL"


def far_prepare(node: Node, amount: int, fulfillment: bytes, destination: str = "test.far.receiver") -> Prepare:
    """A packet for somebody else, which `fulfillment` fulfills."""
    condition = hashlib.sha256(fulfillment).digest()
    return Prepare(amount, node.clock.now() + LIFETIME, condition, destination, b"for others")


Behaviour = Callable[[Request], Awaitable[bytes]]


def answered(reply: Reply | bytes, request_id: str | None = None, status: str = "200 OK") -> bytes:
    """The HTTP answer with a reply, with a Request-Id if the peer repeats answers."""
    body = reply if isinstance(reply, bytes) else encode_packet(reply)
    number = f"Request-Id: {request_id}\r\n" if request_id else ""
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/octet-stream\r\n{number}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class FakePeer:
    """An HTTP server that keeps what it is asked and answers as `behaviour` says."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.requests: list[Request] = []
        self._servers = open_servers()

    async def __aenter__(self) -> "FakePeer":
        start = await self._servers.__aenter__()
        self.url = f"http://127.0.0.1:{await start(self._talk, None)}/ilp"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._servers.__aexit__(None, None, None)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            request = await read_request(reader)
            self.requests.append(request)
            answer = await self.behaviour(request)
            if not answer:
                return
            writer.write(answer)
            await writer.drain()


def replying(reply: Reply, *, numbered: bool = True) -> Behaviour:
    async def behave(request: Request) -> bytes:
        return answered(reply, request.number if numbered else None)

    return behave


def with_status(status: str, body: bytes = b"") -> Behaviour:
    async def behave(request: Request) -> bytes:
        return answered(body, None, status)

    return behave


async def hanging_up(request: Request) -> bytes:
    """Takes the request and closes the connection."""
    return b""


async def silent(request: Request) -> bytes:
    """Takes the request and says nothing."""
    await asyncio.Event().wait()
    return b""
