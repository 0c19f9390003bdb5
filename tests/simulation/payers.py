"""A payer by SPSP: a peer of a server that keeps addresses of wallets for as long as it likes, and pays by them;
wallets that are opened meanwhile, which a restore may lose; and the oracle over what each got."""

import asyncio
import base64
import hashlib
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import Final

import httpx2
import msgspec

from payres.core.store.rows import number
from payres.interledger.packets import Fulfill, Prepare, decode_reply, encode_packet
from payres.interledger.stream import PacketType, SharedSecret, StreamMoney, StreamPacket
from payres.operator.peers import add_peer
from payres.operator.wallets import create_wallet
from tests.simulation.currencies import minor
from tests.simulation.resident import Caller
from tests.simulation.server import REFUSED, Server
from tests.simulation.town import Town, Wallet, decimal, peer_terms
from tests.simulation.world import Violation

HAVE_ONE: Final = 0.25  # of the towns, and each in which a server is restored
OPENED: Final = 0.3  # of the doings, where wallets are opened
TRIES: Final = 6
MOST: Final = 100  # cents of a packet
LIFETIME: Final = 20_000_000  # microseconds
SPSP: Final = {"Accept": "application/spsp4+json"}
# What wallets got without a request, and without the operator.
GOT: Final = (
    "SELECT w.path, sum(t.amount) FROM transfer t JOIN wallet_address w ON w.account_id = t.credit_account_id"
    " LEFT JOIN movement m ON m.transfer_id = t.id WHERE t.incoming_payment_id IS NULL AND t.refund_id IS NULL"
    " AND m.id IS NULL GROUP BY w.id"
)
OWED: Final = "SELECT -balance FROM account a JOIN peer p ON p.account_id = a.id WHERE p.ilp_address = ?"


class Sent(msgspec.Struct):
    """A packet to a wallet, which is repeated until it is answered: then it `arrived`, or has brought 0."""

    to: Wallet
    amount: int
    request_id: str
    packet: bytes
    secret: SharedSecret
    arrived: int | None = None
    tries: int = 0


class Payer(Caller):
    """Pays wallets of the town through one of its servers, by the addresses that it has."""

    pause, refusals = 4.0, (*REFUSED, httpx2.HTTPError)

    def __init__(self, town: Town) -> None:
        super().__init__(town, "payer", "payer", "10.0.9.1", 8.0)
        self.entry, self.sent = self.draws.choice(town.servers), list[Sent]()
        self._known, self._opened = list[tuple[Wallet, str, SharedSecret]](), list[Wallet]()
        restored = [one for one in town.servers if one.keeps_backups]
        self._opens_at: Server = self.draws.choice(restored or town.servers)
        self._token = self.draws.randbytes(24).hex()

    async def prepare(self) -> None:
        asset = self.town.assets[0]
        asked = peer_terms("payer", asset, decimal(10_000_000, asset), self._token[::-1], self._token)
        await self.entry.write(partial(add_peer, **asked))
        self.node.boot()

    async def act(self) -> None:
        draws = self.draws
        if draws.random() < OPENED:
            await self._open()
        elif not self._known or draws.random() < 0.3:
            await self._ask(draws.choice([*self.town.wallets, *self._opened]))
        else:
            await self._pay(draws.choice(self._known[-6:]))

    async def _open(self) -> None:
        wallet = Wallet(self._opens_at, f"new{len(self._opened)}", self.town.assets[0])
        about = wallet.asset.code, wallet.asset.scale, None, None
        await wallet.server.write(lambda work: create_wallet(work, wallet.path, *about))
        self._opened.append(wallet)
        self.world.counts["payers: wallets opened"] += 1
        await self._ask(wallet)

    async def _ask(self, wallet: Wallet) -> None:
        answer = await self.http.get(wallet.url, headers=SPSP)
        if answer.status_code == 200:
            told = answer.json()
            secret = SharedSecret(base64.b64decode(told["shared_secret"]), self.draws.randbytes)
            self._known.append((wallet, told["destination_account"], secret))

    async def _pay(self, known: tuple[Wallet, str, SharedSecret]) -> None:
        (wallet, address, secret), amount = known, minor(self.draws.randint(1, MOST), self.town.assets[0])
        data = secret.encrypt_packet(StreamPacket(1, PacketType.PREPARE, 0, (StreamMoney(1, 1),)))
        condition = hashlib.sha256(secret.fulfillment(data)).digest()
        prepare = Prepare(amount, self.world.microseconds + LIFETIME, condition, address, data)
        self.sent.append(Sent(wallet, amount, f"payer-{len(self.sent)}", encode_packet(prepare), secret))
        await self.post(self.sent[-1])

    async def post(self, sent: Sent) -> None:
        head = {"Authorization": f"Bearer {self._token}", "Request-Id": sent.request_id}
        url, head = f"{self.entry.base_url}/ilp", head | {"Content-Type": "application/octet-stream"}
        for _ in range(TRIES):
            sent.tries += 1
            with suppress(httpx2.HTTPError):
                answer = await self.http.post(url, content=sent.packet, headers=head)
                if answer.status_code == 200:
                    reply = decode_reply(answer.content)
                    is_paid = isinstance(reply, Fulfill)
                    sent.arrived = sent.secret.decrypt_packet(reply.data).prepare_amount if is_paid else 0
                    self.world.counts[f"payers: {'paid' if is_paid else getattr(reply, 'code', '')}"] += 1
                    return
            await asyncio.sleep(self.draws.uniform(0.5, 4))


async def meant(town: Town) -> None:
    """SPSP: each wallet got what payers meant for it, and the address of one that was lost pays nobody; the payer owes
    what it was told to have arrived."""
    payer, meant, unknown = town.payer, Counter[str](), Counter[str]()
    if payer is None:
        return
    for sent in payer.sent:
        if sent.arrived is None:
            await payer.node.run(payer.post(sent))
        meant[sent.to.url] += sent.arrived or 0
        again = sent.tries - 1 if payer.entry.archive.losses else 0  # which a server in between may not have known
        unknown[sent.to.url] += sent.amount * (again + (sent.arrived is None))
    for server in town.servers:
        got = {f"{server.base_url}/{path}": amount for path, amount in await server.rows(GOT)}
        for url in {**got, **{one: 0 for one in meant if one.startswith(f"{server.base_url}/")}}:
            amount, least = got.get(url, 0), 0 if server.archive.losses else meant[url]
            if not least <= amount <= meant[url] + unknown[url]:
                raise Violation(f"SPSP: {url} got {amount}, meant were {meant[url]}, unknown {unknown[url]}")
    paid = sum(sent.amount for sent in payer.sent if sent.arrived)
    doubt = sum(sent.amount for sent in payer.sent if sent.arrived is None)
    owed = await payer.entry.read(lambda work: number(work, OWED, "test.payer"))
    if not paid <= owed <= paid + doubt and not payer.entry.archive.losses:
        raise Violation(f"the SPSP payer owes {owed}, of which {paid} arrived")
