"""The people of the foreign server, who pay into payres, and those of payres who pay there; and its peers."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final

from payres.core.protocol.amounts import format_decimal
from payres.core.protocol.clock import SECOND
from payres.operator.peers import add_peer
from payres.people.sending import Wish
from tests.simulation.bills import ask_for
from tests.simulation.currencies import minor
from tests.simulation.foreign import Abroad, Foreign
from tests.simulation.foreign_book import Account, Link
from tests.simulation.resident import Resident
from tests.simulation.server import REFUSED, Server
from tests.simulation.town import Town, peer_terms

Pay = Callable[..., Awaitable[None]]

MOST: Final = 500  # cents of a payment
BALANCE: Final = 1_000_000
LARGEST: Final = (50, 100, 1000)  # packet, either way
CREDITS: Final = (10**8, 10**8, 10**8, 300)  # cents that one may owe the other
DIES, LOSES, TRIES = 0.06, 0.8, 3
DOWN: Final = (0.1, 1.0, 8.0)  # seconds
BACK: Final = 20  # seconds by which a clock is set back
RIGHT: Final = (10.0, 60.0)  # seconds until it is right again


class Foreigners(Resident):
    """All of them; `pay` is what owners of payres do."""

    pause = 2.5

    def __init__(self, town: Town, foreign: Foreign, pay: Pay) -> None:
        super().__init__(town, "foreigners")
        self._foreign, self._pay = foreign, pay

    async def prepare(self) -> None:
        for path, asset in zip(("ann", "bob", "cid"), self.town.assets * 2, strict=False):
            wallet = self._foreign.wallets[path] = Abroad(self._foreign, path, asset)
            self._foreign.book.move(Account("outside", "", asset), wallet.account, minor(BALANCE, asset))
        for server in self.town.servers:
            await self._make_peers(server)
        self._foreign.begin()

    async def _make_peers(self, server: Server) -> None:
        draws, foreign, asset = self.draws, self._foreign, self.draws.choice((self.town.assets[0], *self.town.assets))
        coming, going = (draws.randbytes(16).hex() for _ in range(2))
        limit, credit, largest = (minor(draws.choice(few), asset) for few in (CREDITS, CREDITS, LARGEST))
        link = Link(server.name, asset, f"{server.base_url}/ilp", coming, going, largest, limit, credit)
        foreign.links[server.name] = link
        asked = peer_terms(foreign.name, asset, format_decimal(credit, asset), coming, going, max_packet=largest)
        await server.write(partial(add_peer, **asked))
        self.town.currencies[frozenset((server.name, foreign.name))] = asset

    async def act(self) -> None:
        dies = self.draws.random() < DIES
        if dies and self._foreign.is_up and self.world.happens("foreign: kill", self.world.next_of("foreign kill")):
            self._foreign.die(self.draws.choice(DOWN))
        await (self._pay_payres() if self.draws.random() < 0.6 else self._pay_at_once())

    async def _pay_payres(self) -> None:
        draws, foreign, payee = self.draws, self._foreign, self.draws.choice(self.town.wallets)
        wallet, value = draws.choice([*foreign.wallets.values()]), draws.randint(2, MOST)
        bill = await ask_for(self.town, payee, draws.choice((None, value, value)))
        debit, receive = draws.choice((0, minor(value, wallet.asset))), minor(value, payee.asset)

        async def pay() -> None:
            if quote := await foreign.payer.quote(wallet, bill.url, debit, receive):
                foreign.payer.pay(quote)

        if foreign.is_up:
            foreign.start(pay())

    async def _pay_at_once(self) -> None:
        """Two of one server pay as much into the same open bill, which may lose a packet, and a clock is set back."""
        draws, foreign, server = self.draws, self._foreign, self.draws.choice(self.town.servers)
        one, other = (wallet for wallet in self.town.wallets if wallet.server is server)
        bill = foreign.ask_for(draws.choice([*foreign.wallets.values()]), None)
        wish = Wish(to=bill.shown["id"], fixed="receive")
        value = draws.randint(2, min(LARGEST) // 2)
        if draws.random() < LOSES:
            foreign.doomed.add(f"{foreign.ilp}.{bill.account.name}")

        for payer in (one, other):
            for _ in range(TRIES):
                with suppress(*REFUSED):
                    await self._pay(self.town, payer, wish, value)
                    break
            if payer is one:
                await asyncio.sleep(draws.uniform(0.3, 1.5))
                if self.world.happens("clock back", self.world.next_of(f"at once {server.name}")):
                    server.set_wrong(-BACK * SECOND, draws.uniform(*RIGHT))
