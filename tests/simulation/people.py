"""People who use the servers: each lives through a storm as if it were an ordinary day."""

import asyncio
from typing import Final, Protocol

import msgspec

from payres.core.protocol.amounts import format_decimal
from payres.core.store.wallets import find_wallet
from payres.people import sending
from tests.simulation import colleagues, payers, rights
from tests.simulation.apps import APPS, App
from tests.simulation.bills import ask_for, complete_bill
from tests.simulation.foreign_people import Foreigners
from tests.simulation.mails import Post
from tests.simulation.operators import Operator
from tests.simulation.server import REFUSED
from tests.simulation.standing_orders import Planner
from tests.simulation.town import BALANCES, Bill, Sent, Town, Wallet
from tests.simulation.visitors import Visitor
from tests.simulation.webhooks import Hooks
from tests.simulation.world import moments

PACKETS_AT_MOST: Final = 60
BILL_SECONDS: Final = (6, 20, 10_800, 10_800)  # until a bill expires
VISITORS: Final = 2
PAUSE: Final = 12.0  # seconds between two of an owner's doings, on average
PAUSES: Final = (0.0, 0.0, 0.3, 4.0)  # seconds between the price and the payer's word


class Person(Protocol):
    """Someone in the town. `prepare` is called in peace, once; `live` in each storm, and returns after its seconds."""

    async def prepare(self) -> None: ...
    async def live(self, seconds: float) -> None: ...


class Owner:
    """Sends money to bills and to wallets, in both fixed amounts, here and elsewhere. `shared` are the bills that any
    owner pays, several at once too."""

    def __init__(self, town: Town, wallet: Wallet, shared: list[Bill]) -> None:
        self._town, self._wallet, self._shared = town, wallet, shared
        self._draws = town.world.dice(f"owner {wallet.url}")

    async def prepare(self) -> None:
        """Needs nothing."""

    async def live(self, seconds: float) -> None:
        """Sends now and then."""
        async for _ in moments(self._town.world, self._draws, PAUSE, seconds):
            try:
                await self._send()
            except REFUSED as refused:
                self._town.world.counts[f"refused: {type(refused).__name__}"] += 1

    async def _send(self) -> None:
        draws, payee = self._draws, self._draws.choice([one for one in self._town.wallets if one is not self._wallet])
        value = draws.randint(1, PACKETS_AT_MOST * 10)
        if self._town.balance == BALANCES[-1] and draws.random() < 0.3:
            await self._spend_twice(sending.Wish(to=payee.url, fixed="send"), draws.randint(400, 850))
        elif self._town.foreign is not None and draws.random() < 0.4:
            await self._pay_abroad(value)
        elif draws.random() < (0.6 if self._town.servers[0].is_forgetful else 0.15):
            await self._give(value)
        elif draws.random() < 0.15:
            await self._close()
        elif draws.random() < 0.6:
            bill = self._bill_of_another()
            if bill is None:
                bill = await ask_for(self._town, payee, value, draws.choice(BILL_SECONDS))
                self._shared.append(bill)
            others = [one for one in self._town.wallets if one not in (self._wallet, bill.wallet)]
            payers = [self._wallet, *([draws.choice(others)] if draws.random() < 0.5 else [])]
            wish, pause = sending.Wish(to=bill.url), draws.choice(PAUSES)
            await asyncio.gather(*(pay(self._town, one, wish, None, pause) for one in payers))
        else:
            wish = sending.Wish(to=payee.url, fixed=draws.choice(("send", "receive")))
            await pay(self._town, self._wallet, wish, value)

    async def _spend_twice(self, wish: sending.Wish, value: int) -> None:
        """Sends most of what there is twice at once."""
        made = await asyncio.gather(
            *(pay(self._town, self._wallet, wish, value) for _ in range(2)), return_exceptions=True
        )
        if failed := [one for one in made if one is not None]:
            raise failed[0]

    async def _pay_abroad(self, value: int) -> None:
        """Into a wallet or a bill of the foreign server."""
        draws, payee = self._draws, self._draws.choice(self._town.abroad)
        wish = sending.Wish(to=payee.url, fixed=draws.choice(("send", "receive")))
        if draws.random() < 0.5:
            wish = sending.Wish(to=payee.server.ask_for(payee, value).shown["id"])
        await pay(self._town, self._wallet, wish, None if wish.to != payee.url else value, draws.choice(PAUSES))

    def _bill_of_another(self) -> Bill | None:
        """A bill that others may be paying too."""
        shared = [one for one in self._shared[-4:] if one.wallet is not self._wallet]
        return self._draws.choice(shared) if shared and self._draws.random() < 0.4 else None

    async def _close(self) -> None:
        """Completes the last bill of its own, whoever is paying it."""
        own = [one for one in self._shared if one.wallet is self._wallet]
        if own:
            await complete_bill(self._town, own[-1])

    async def _give(self, value: int) -> None:
        """Pays into a collection, as others do: what it has received does not say whose payment arrived."""
        others = [one for one in self._town.wallets if one is not self._wallet]
        open_bills = [one for one in self._town.bills[-8:] if one.value is None and one.wallet in others]
        bill = self._draws.choice([*open_bills[-2:], None])
        if bill is None:
            forgetful = [one for one in others if one.server.is_forgetful]
            bill = await ask_for(self._town, self._draws.choice(forgetful or others), None)
        await pay(self._town, self._wallet, sending.Wish(to=bill.url, fixed="send"), value)


async def pay(town: Town, wallet: Wallet, wish: sending.Wish, value: int | None, pause: float = 0.0) -> None:
    """Pays as the page Send does, with a pause before it is confirmed. Raises one of REFUSED."""
    server = wallet.server

    async def send() -> tuple[str, tuple[int, int]]:
        database, node = server.context.database, server.interledger
        payer = await database.read(lambda work: find_wallet(work, wallet.path))
        assert payer is not None
        payee = await sending.find_payee(database, node.quotes, payer, wish.to)
        amount = "" if value is None else format_decimal(value, payer.asset if wish.fixed == "send" else payee.asset)
        kept = sending.kept(msgspec.structs.replace(wish, amount=amount), payee)
        quote = await sending.ask_price(database, node.quotes, payer, payee, kept, value)
        shown = (await database.read(lambda work: sending.find_price(work, payer, quote))).quote.terms
        await asyncio.sleep(pause)
        payment = await database.write(lambda work: sending.confirm_payment(work, payer, quote))
        node.send(payment)
        return payment, (shown.debit, shown.receive)

    payment, terms = await server.ask(send)
    town.sent.append(Sent(wallet, payment, wish.to, terms))
    town.world.counts["payments of owners"] += 1


def move_in(town: Town) -> list[Person]:
    """All people of the town."""
    town.operators = [Operator(town, server) for server in town.servers]
    town.hooks, town.post = Hooks(town), Post(town)
    servers, others = town.servers, list[Person]()
    is_restored, draw = servers[-1].keeps_backups, town.world.draw
    if not servers[0].is_forgetful and (is_restored or draw("payer") < payers.HAVE_ONE):
        town.payer = payers.Payer(town)
        others.append(town.payer)
    if is_restored or draw("keepers") < rights.HAVE_ONE:
        town.keepers = rights.Keepers(town)
        others.append(town.keepers)
    if draw("colleagues") < colleagues.HAVE_ONE:
        town.colleagues = colleagues.Colleagues(town)
        others.append(town.colleagues)
    town.apps = [App(town, number) for number in range(APPS)]
    shared = list[Bill]()
    owners: list[Person] = [Owner(town, wallet, shared) for wallet in town.wallets]
    planners = [Planner(town, wallet) for wallet in town.wallets]
    visitors = [Visitor(town, number) for number in range(VISITORS)]
    foreigners = [Foreigners(town, town.foreign, pay)] if town.foreign else []
    return [*foreigners, *owners, *planners, *town.operators, town.hooks, town.post, *town.apps, *visitors, *others]
