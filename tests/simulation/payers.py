"""A payer by SPSP: a peer of a server that keeps addresses of wallets for as long as it likes, and pays by them;
wallets that are opened meanwhile, which a restore may lose; and the oracle over what each got."""

import base64
import hashlib
from collections import Counter
from functools import partial
from typing import Final

import httpx2

from payres.interledger.oer import decode_reply, encode_packet
from payres.interledger.packets import Fulfill, Prepare
from payres.interledger.stream import PacketType, SharedSecret, StreamMoney, StreamPacket
from payres.operator.peers import add_peer
from payres.operator.wallets import create_wallet
from tests.simulation.currencies import converted, minor
from tests.simulation.resident import Caller
from tests.simulation.server import REFUSED, Server
from tests.simulation.town import Town, Wallet, decimal, peer_terms
from tests.simulation.world import Violation

HAVE_ONE: Final = 0.25  # of the towns, and each in which a server is restored
OPENED: Final = 0.3  # of the doings, where wallets are opened
MOST: Final = 100  # cents of a packet
LIFETIME: Final = 20_000_000  # microseconds
SPSP: Final = {"Accept": "application/spsp4+json"}
# What wallets got without a request, and without the operator.
GOT: Final = (
    "SELECT w.path, sum(t.amount) FROM transfer t JOIN wallet_address w ON w.account_id = t.credit_account_id"
    " LEFT JOIN movement m ON m.transfer_id = t.id WHERE t.incoming_payment_id IS NULL AND t.refund_id IS NULL"
    " AND m.id IS NULL GROUP BY w.id"
)


class Payer(Caller):
    """Pays wallets of the town through one of its servers, by the addresses that it has. By wallet, what it has `meant`
    that arrived, and what is `unknown` since it had no answer."""

    pause, refusals = 4.0, (*REFUSED, httpx2.HTTPError)

    def __init__(self, town: Town) -> None:
        super().__init__(town, "payer", "payer", "10.0.9.1", 8.0)
        self.entry, self.meant, self.unknown = self.draws.choice(town.servers), Counter[str](), Counter[str]()
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
        packet = encode_packet(Prepare(amount, self.world.microseconds + LIFETIME, condition, address, data))
        head = {"Authorization": f"Bearer {self._token}", "Request-Id": self.world.next_of("payer")}
        head["Content-Type"] = "application/octet-stream"
        most = converted(amount, self.town.assets[0], wallet.asset) * 101 // 100 + 1  # as rates go
        self.unknown[wallet.url] += most
        answer = await self.http.post(f"{self.entry.base_url}/ilp", content=packet, headers=head)
        if answer.status_code == 200:
            reply, self.unknown[wallet.url] = decode_reply(answer.content), self.unknown[wallet.url] - most
            if isinstance(reply, Fulfill):
                self.meant[wallet.url] += secret.decrypt_packet(reply.data).prepare_amount
            self.world.counts[f"payers: {getattr(reply, 'code', 'paid')}"] += 1


async def meant(town: Town) -> None:
    """SPSP: each wallet got what payers meant for it, and the address of one that was lost pays nobody."""
    if (payer := town.payer) is None:
        return
    for server in town.servers:
        got = Counter({f"{server.base_url}/{path}": amount for path, amount in await server.rows(GOT)})
        for url in {*got, *(one for one in payer.meant if one.startswith(f"{server.base_url}/"))}:
            least = 0 if server.archive.losses else payer.meant[url]
            if not least <= got[url] <= payer.meant[url] + payer.unknown[url]:
                about = f"meant were {payer.meant[url]}, unknown are {payer.unknown[url]}"
                raise Violation(f"SPSP: {url} got {got[url]}, {about}")
