"""How the foreign server pays: it asks as a client of Open Payments, and sends over STREAM.

A packet without an answer counts as not sent, and its amount is sent again. It delivers what it promised and no more,
and promises 99 of 100.
"""

import asyncio
import os
from fractions import Fraction
from hashlib import sha256
from itertools import count
from math import ceil, floor
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import httpx2
import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from payres.client import AsyncClient, OpenPaymentsError, access
from payres.core.protocol.amounts import Asset
from payres.core.protocol.clock import SECOND
from payres.core.protocol.identifiers import base64url_decoded
from payres.core.signatures.jwk import jwk_from_public_bytes
from payres.interledger import oer, packets
from payres.interledger.packets import Fulfill, Prepare, Reject
from payres.interledger.stream import PacketType, SharedSecret, StreamPacket
from tests.simulation.currencies import converted
from tests.simulation.foreign_book import Account, Link, Payment, Posted, amount_of

if TYPE_CHECKING:
    from tests.simulation.foreign import Abroad, Foreign

PATIENCE: Final = 5  # seconds until an answer is lost
SLIPPAGE: Final = Fraction(99, 100)
PROBE: Final = 10**9
AT_ONCE: Final = 3  # packets
ATTEMPTS, PAUSE, IDLE = 3, 5, 3  # tries, and seconds between them and without progress
LIFETIME: Final = 20  # seconds of a packet
CONDITION, MINIMUM = "foreign: false condition", "foreign: false minimum"
LIES: Final = {CONDITION: 0.05, MINIMUM: 0.08}


class Unpayable(Exception):
    """For now, or if `is_final` for good."""

    def __init__(self, why: str, *, is_final: bool = False) -> None:
        super().__init__(why)
        self.is_final = is_final


class Receiver(NamedTuple):
    """A bill; `missing` is None if it takes any amount."""

    address: str
    secret: SharedSecret
    asset: Asset
    missing: int | None


class Payer:
    def __init__(self, server: "Foreign") -> None:
        self._server, self._running = server, set[str]()
        self._key = Ed25519PrivateKey.from_private_bytes(server.draws.randbytes(32))
        self.jwk = msgspec.to_builtins(jwk_from_public_bytes(server.name, self._key.public_key().public_bytes_raw()))
        self._client: AsyncClient

    def begin(self) -> None:
        """In a new process."""
        about = f"{self._server.base_url}/.well-known/pay", self._key, self._server.name
        http: dict[str, Any] = {"transport": httpx2.AsyncHTTPTransport(verify=False), "timeout": PATIENCE}
        self._client = AsyncClient(*about, max_retries=0, clock=self._server, **http)
        self._running = set()

    @property
    def is_busy(self) -> bool:
        return any(one.state == "sending" for one in self._server.payments.values())

    def paid_to(self, url: str) -> list[int]:
        """What each payment for a bill has delivered."""
        made = (one for one in self._server.payments.values() if one.state != "quoted")
        return [one.delivered for one in made if one.shown["receiver"] == url]

    async def quote(self, wallet: "Abroad", url: str, debit: int = 0, receive: int = 0) -> Payment | None:
        """What is to be paid for a debit, or to receive so much, or what is missing; None if it cannot be paid."""
        try:
            receiver = await self._find(url)
            _, rate = await self._probe(wallet.asset, receiver)
        except Unpayable:
            return None
        least = rate * SLIPPAGE
        receive = ceil((debit - 1) * least) if debit else receive or receiver.missing or 0
        debit = debit or floor(receive / least) + 1
        if receive < 1:
            return None
        server, id = self._server, self._server.new_id()
        amounts = {"receiveAmount": amount_of(receive, receiver.asset), "debitAmount": amount_of(debit, wallet.asset)}
        shown = server.shown("quotes", id, wallet) | amounts | {"receiver": url}
        account = Account("payment", id, wallet.asset)
        quote = server.payments[id] = Payment(shown, account, wallet.account, receive, server.now(), debit=debit)
        return quote

    def pay(self, payment: Payment) -> None:
        payment.state = "sending"
        self._server.book.move(payment.payer, payment.account, payment.debit)
        self.go_on()

    def go_on(self) -> None:
        """Goes on with what nothing is running for."""
        for id, payment in self._server.payments.items():
            if payment.state == "sending" and id not in self._running:
                self._running.add(id)
                self._server.start(self._pay(payment))

    async def _find(self, url: str) -> Receiver:
        """Raises Unpayable."""
        incoming = self._client.incoming_payment
        try:
            server = (await incoming.get_public(url)).auth_server
            grant = await self._client.grant.obtain(server, access.incoming_payment("read-all"))
            bill = await incoming.get(url, grant)
        except OpenPaymentsError as error:
            raise Unpayable(repr(error)) from error
        if bill.completed or not bill.methods:
            raise Unpayable(f"{url} is closed", is_final=True)
        [method], received = bill.methods, bill.received_amount
        missing = int(bill.incoming_amount.value) - int(received.value) if bill.incoming_amount else None
        secret = SharedSecret(base64url_decoded(method.shared_secret))
        return Receiver(method.ilp_address, secret, received.asset, missing)

    async def _pay(self, payment: Payment) -> None:
        while payment.state == "sending":
            try:
                await self._attempt(payment, await self._find(payment.shown["receiver"]))
                payment.state = "completed"
            except Unpayable as why:
                payment.attempts += 1
                if why.is_final or payment.attempts >= ATTEMPTS:
                    payment.state = "completed" if why.is_final else "failed"
                else:
                    await asyncio.sleep(PAUSE * payment.attempts)
        self._server.world.counts[f"abroad: payments {payment.state}"] += 1
        book = self._server.book
        book.move(payment.account, payment.payer, book.balances[payment.account])

    async def _attempt(self, payment: Payment, receiver: Receiver) -> None:
        """Returns when all has arrived. Raises Unpayable."""
        loop = asyncio.get_running_loop()
        largest, rate = await self._probe(payment.payer.asset, receiver)
        numbers, idle_at = count(), loop.time() + IDLE
        while (missing := ceil((payment.receive - payment.delivered) / rate)) > 0:
            left, before = payment.debit - payment.sent, payment.sent
            amount = min(left, largest, missing)
            if not amount or loop.time() > idle_at:
                raise Unpayable("nothing passes, or nothing is left")
            some = range(min(AT_ONCE, left // amount, missing // amount))
            await asyncio.gather(*(self._send(payment, receiver, amount, rate, next(numbers)) for _ in some))
            if payment.sent > before:
                idle_at = loop.time() + IDLE
            else:
                await asyncio.sleep(1)

    async def _send(self, payment: Payment, to: Receiver, amount: int, rate: Fraction, number: int) -> None:
        """Raises Unpayable."""
        server, link, url, lie = self._server, self._route(to), payment.shown["receiver"], ""
        if server.lies and server.world.network.shares:
            lie, _ = server.world.strikes("foreign lies", LIES)
        least = floor(amount * rate)
        data = _sealed(to, number, 2 * least + 1000 if lie == MINIMUM else least)
        condition = os.urandom(32) if lie == CONDITION else sha256(to.secret.fulfillment(data)).digest()
        posted = Posted(link.name, url, converted(amount, payment.payer.asset, link.asset), lie)
        server.posted.append(posted)
        reply = await self._post(to, posted.amount, condition, data)
        posted.is_known = reply is not None
        if isinstance(reply, Fulfill) and reply.fits(condition):
            if lie:
                server.world.trouble.append(f"{link.name} has fulfilled a packet for {url} with a {lie}")
            posted.arrived = to.secret.decrypt_packet(reply.data).prepare_amount
            server.book.move(payment.account, link.account, amount)
            payment.sent, payment.delivered = payment.sent + amount, payment.delivered + posted.arrived
            if (owed := server.book.balances[link.account]) > link.credit:
                server.world.trouble.append(f"{link.name} is owed {owed}, and allows {link.credit}")
        elif isinstance(reply, Reject) and reply.code[0] != "T" and reply.code not in ("F99", "F08", "R01"):
            raise Unpayable(reply.code)

    async def _probe(self, asset: Asset, receiver: Receiver) -> tuple[int, Fraction]:
        """The largest packet, and the least that arrives for each unit of it. Raises Unpayable."""
        amount, link = PROBE, self._route(receiver)
        for number in range(5):
            on_link = converted(amount, asset, link.asset)
            reply = await self._post(receiver, on_link, os.urandom(32), _sealed(receiver, number, 0))
            if not isinstance(reply, Reject):
                continue
            if reply.code == "F08" and (found := reply.too_large):
                amount = amount * found[1] // found[0]
            elif reply.code == "F99" and (arrived := receiver.secret.decrypt_packet(reply.data).prepare_amount):
                return amount, Fraction(arrived, amount)
        raise Unpayable("no path")

    async def _post(self, to: Receiver, amount: int, condition: bytes, data: bytes) -> packets.Reply | None:
        """The answer; None if there is none that says anything."""
        link, expires_at = self._route(to), self._server.now() + LIFETIME * SECOND
        body = oer.encode_packet(Prepare(amount, expires_at, condition, to.address, data))
        headers = {"Authorization": f"Bearer {link.outgoing}", "Content-Type": "application/octet-stream"}
        try:
            answer = await self._server.http.post(link.url, content=body, headers=headers, timeout=LIFETIME)
            return oer.decode_reply(answer.content) if answer.status_code == 200 else None
        except (httpx2.HTTPError, ValueError):
            return None

    def _route(self, receiver: Receiver) -> Link:
        return self._server.links[receiver.address.split(".")[1]]


def _sealed(to: Receiver, sequence: int, least: int) -> bytes:
    return to.secret.encrypt_packet(StreamPacket(sequence, PacketType.PREPARE, least))
