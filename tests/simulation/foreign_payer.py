"""How the foreign server pays: it asks as a client of Open Payments or by SPSP, and sends over STREAM.

A packet without an answer counts as not sent, and its amount is sent again. It delivers what it promised and no more,
and promises 99 of 100.
"""

import asyncio
import os
from base64 import b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode
from fractions import Fraction
from hashlib import sha256, sha512
from itertools import count
from math import ceil, floor
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import httpx2
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.simulation import foreign_packets as wire
from tests.simulation.foreign_book import Account, Json, Link, Payment, Posted, converted
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from tests.simulation.foreign import Abroad, Foreign

SLIPPAGE: Final = Fraction(99, 100)
PROBE: Final = 10**9
AT_ONCE: Final = 3  # packets
ATTEMPTS, PAUSE, IDLE = 3, 5, 3  # tries, and seconds between them and without progress
LIFETIME: Final = 20  # seconds of a packet
CONDITION, MINIMUM = "foreign: false condition", "foreign: false minimum"
LIES: Final = {CONDITION: 0.03, MINIMUM: 0.03}


class Unpayable(Exception):
    """For now, or if `is_final` for good."""

    def __init__(self, why: str, *, is_final: bool = False) -> None:
        super().__init__(why)
        self.is_final = is_final


class Receiver(NamedTuple):
    """`missing` is None if it takes any amount; `code` is "" if only its server knows."""

    address: str
    secret: bytes
    asset: Json
    missing: int | None


class Payer:
    def __init__(self, server: "Foreign") -> None:
        self._server, self.running = server, set[str]()
        self._key = Ed25519PrivateKey.from_private_bytes(server.draws.randbytes(32))
        x = urlsafe_b64encode(self._key.public_key().public_bytes_raw()).decode().rstrip("=")
        self.jwk = {"kid": server.name, "x": x, "alg": "EdDSA", "kty": "OKP", "crv": "Ed25519"}

    @property
    def is_busy(self) -> bool:
        return any(one.state == "sending" for one in self._server.payments.values())

    def paid_to(self, url: str) -> list[int]:
        """What each payment for a bill has delivered."""
        made = (one for one in self._server.payments.values() if one.state != "quoted")
        return [one.delivered for one in made if one.shown["receiver"] == url]

    # As a client

    async def _ask(self, method: str, url: str, body: Json | None = None, token: str = "", **headers: str) -> Json:
        """The answer to a signed request. Raises Unpayable."""
        http, signed = self._server.http, {"@method": method, "@target-uri": url}
        request = http.build_request(method, url, json=body, headers={"Accept": "application/json", **headers})
        if token:
            request.headers["Authorization"] = signed["authorization"] = f"GNAP {token}"
        if body is not None:
            digest = b64encode(sha512(request.content).digest()).decode()
            request.headers["Content-Digest"] = signed["content-digest"] = f"sha-512=:{digest}:"
            signed |= {name: request.headers[name] for name in ("content-length", "content-type")}
        names = " ".join(f'"{name}"' for name in signed)
        created = self._server.now() // 1_000_000
        parameters = f'({names});created={created};keyid="{self._server.name}"'
        base = "".join(f'"{name}": {value}\n' for name, value in signed.items())
        signature = self._key.sign(f'{base}"@signature-params": {parameters}'.encode())
        request.headers["Signature-Input"] = f"sig1={parameters}"
        request.headers["Signature"] = f"sig1=:{b64encode(signature).decode()}:"
        try:
            answer = await http.send(request)
            content: Json = answer.json()
        except (httpx2.HTTPError, ValueError) as error:
            raise Unpayable(repr(error)) from error
        if answer.status_code not in (200, 201):
            raise Unpayable(f"{url}: {answer.status_code} {content}")
        return content

    async def _find(self, url: str) -> Receiver:
        """A bill, or a wallet. Raises Unpayable."""
        if "/incoming-payments/" not in url:
            spsp = await self._ask("GET", url, Accept="application/spsp4+json")
            return Receiver(spsp["destination_account"], b64decode(spsp["shared_secret"]), {}, None)
        server = (await self._ask("GET", url))["authServer"]
        access = {"access": [{"type": "incoming-payment", "actions": ["read-all"]}]}
        client = f"{self._server.base_url}/.well-known/pay"
        granted = await self._ask("POST", server, {"access_token": access, "client": client})
        bill = await self._ask("GET", url, token=granted["access_token"]["value"])
        if bill["completed"] or not bill.get("methods"):
            raise Unpayable(f"{url} is closed", is_final=True)
        [method], received = bill["methods"], bill["receivedAmount"]
        wanted = bill.get("incomingAmount")
        missing = int(wanted["value"]) - int(received["value"]) if wanted else None
        return Receiver(method["ilpAddress"], urlsafe_b64decode(method["sharedSecret"] + "="), received, missing)

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
        amounts = {
            "receiveAmount": receiver.asset | {"value": str(receive)},
            "debitAmount": _amount(debit, wallet.asset),
        }
        shown = server.shown("quotes", id, wallet) | amounts | {"receiver": url}
        account = Account("payment", id, wallet.asset)
        quote = server.payments[id] = Payment(shown, account, wallet.account, receive, server.now(), debit=debit)
        return quote

    # As a sender

    def pay(self, payment: Payment) -> None:
        """Begins a payment, for which its payer has the money."""
        payment.state = "sending"
        self._server.book.move(payment.payer, payment.account, payment.debit)
        self.go_on()

    def go_on(self) -> None:
        """Goes on with what nothing is running for."""
        for id, payment in self._server.payments.items():
            if payment.state == "sending" and id not in self.running:
                self.running.add(id)
                self._server.start(self._pay(payment))

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
        asset, loop = payment.payer.asset, asyncio.get_running_loop()
        largest, rate = await self._probe(asset, receiver)
        numbers, idle_at = count(), loop.time() + IDLE
        while (missing := payment.receive - payment.delivered) > 0:
            left, packets = payment.debit - payment.sent, list[tuple[int, int]]()
            while left > 0 and missing > 0 and len(packets) < AT_ONCE:
                amount = min(left, largest, ceil(missing / rate))
                packets.append((amount, floor(amount * rate)))
                left, missing = left - amount, missing - ceil(amount * rate)
            if not packets or loop.time() > idle_at:
                raise Unpayable("nothing passes, or nothing is left")
            before = payment.sent
            await asyncio.gather(*(self._send(payment, receiver, *one, rate, next(numbers)) for one in packets))
            if payment.sent > before:
                idle_at = loop.time() + IDLE
            else:
                await asyncio.sleep(1)

    async def _send(
        self, payment: Payment, receiver: Receiver, amount: int, least: int, rate: Fraction, number: int
    ) -> None:
        """Raises Unpayable."""
        server, link, url = self._server, self._route(receiver), payment.shown["receiver"]
        lie, name = (
            server.world.drawn("foreign lies", LIES) if server.lies and server.world.network.shares else ("", "")
        )
        lie = lie if lie and server.world.happens(lie, name) else ""
        minimum = least + 1000 if lie == MINIMUM else least
        data = wire.Message(wire.PREPARE, number, minimum).sealed(receiver.secret)
        proof, on_link = wire.proof_of(receiver.secret, data), converted(amount, payment.payer.asset, link.asset)
        posted = Posted(link.name, url, on_link, ceil(amount * rate * 2) + 2, lie)
        server.posted.append(posted)
        condition = os.urandom(32) if lie == CONDITION else sha256(proof).digest()
        reply = await self._post(link, receiver, on_link, condition, data)
        posted.is_known = reply is not None
        if reply and not reply.code and sha256(reply.proof).digest() == condition:
            if lie:
                raise Violation(f"{link.name} has fulfilled a packet for {url} with a {lie}")
            posted.arrived = wire.opened(receiver.secret, reply.data).amount
            server.book.move(payment.account, link.account, amount)
            payment.sent, payment.delivered = payment.sent + amount, payment.delivered + posted.arrived
            if server.book.balances[link.account] > link.credit:
                raise Violation(f"{link.name} is owed {server.book.balances[link.account]}, and allows {link.credit}")
        elif reply and reply.code[0] != "T" and reply.code not in ("F99", "F08", "R01"):
            raise Unpayable(reply.code)

    async def _probe(self, asset: Any, receiver: Receiver) -> tuple[int, Fraction]:
        """The largest packet, and the least that arrives for each unit of it. Raises Unpayable."""
        amount, link = PROBE, self._route(receiver)
        for number in range(5):
            on_link = converted(amount, asset, link.asset)
            data = wire.Message(wire.PREPARE, number, 0).sealed(receiver.secret)
            reply = await self._post(link, receiver, on_link, os.urandom(32), data)
            if reply and reply.code == "F08":
                received, largest = int.from_bytes(reply.data[:8]), int.from_bytes(reply.data[8:16])
                amount = amount * largest // received
            elif reply and reply.code == "F99" and (arrived := wire.opened(receiver.secret, reply.data).amount):
                return amount, Fraction(arrived, amount)
        raise Unpayable("no path")

    async def _post(self, link: Link, to: Receiver, amount: int, condition: bytes, data: bytes) -> wire.Reply | None:
        """The answer; None if there is none that says anything."""
        expires_at = self._server.now() + LIFETIME * 1_000_000
        body = wire.Prepare(amount, expires_at - expires_at % 1000, condition, to.address, data).encoded()
        headers = {"Authorization": f"Bearer {link.outgoing}", "Content-Type": "application/octet-stream"}
        try:
            answer = await self._server.http.post(link.url, content=body, headers=headers, timeout=LIFETIME)
            return wire.reply_of(answer.content) if answer.status_code == 200 else None
        except (httpx2.HTTPError, ValueError, LookupError):
            return None

    def _route(self, receiver: Receiver) -> Link:
        return self._server.links[receiver.address.split(".")[1]]


def _amount(value: int, asset: Any) -> Json:
    return {"value": str(value), "assetCode": asset.code, "assetScale": asset.scale}
