"""People who use the servers: each lives through a storm as if it were an ordinary day."""

import asyncio
from typing import Final

import msgspec

from payres.core.protocol.amounts import format_decimal
from payres.core.store.wallets import require_wallet
from payres.people import payee_lookup, sending
from tests.simulation import payers, rights
from tests.simulation.apps import APPS, App
from tests.simulation.bills import ask_for, complete_bill
from tests.simulation.currencies import minor
from tests.simulation.foreign_people import Foreigners
from tests.simulation.mails import Post
from tests.simulation.operators import Operator
from tests.simulation.resident import Resident
from tests.simulation.standing_orders import Planner
from tests.simulation.town import BALANCES, Bill, Sent, Town, Wallet
from tests.simulation.visitors import Visitor
from tests.simulation.webhooks import Hooks

PACKETS_AT_MOST: Final = 60
BILL_SECONDS: Final = (6, 20, 10_800, 10_800)  # until a bill expires
VISITORS: Final = 2
PAUSES: Final = (0.0, 0.0, 0.3, 4.0)  # seconds between the price and the payer's word
CLOSED_AFTER: Final = (0.1, 0.3, 0.5, 1.0, 5.0)  # seconds after the payers have begun


class Owner(Resident):
    """Sends money to bills and to wallets, in both fixed amounts, here and elsewhere. `shared` are the bills that any
    owner pays, several at once too."""

    pause = 12.0

    def __init__(self, town: Town, wallet: Wallet, shared: list[Bill]) -> None:
        super().__init__(town, f"owner {wallet.url}")
        self._wallet, self._shared = wallet, shared

    async def act(self) -> None:
        draws, payee = self.draws, self.draws.choice([one for one in self.town.wallets if one is not self._wallet])
        value = draws.randint(1, PACKETS_AT_MOST * 10)
        if self.town.balance == BALANCES[-1] and draws.random() < 0.3:
            wish, most = sending.Wish(to=payee.url, fixed="send"), draws.randint(400, 850)
            await asyncio.gather(*(pay(self.town, self._wallet, wish, most) for _ in range(2)))
        elif self.town.foreign is not None and draws.random() < 0.4:
            await self._pay_abroad(value)
        elif draws.random() < 0.15:
            await self._give(value)
        elif draws.random() < 0.65:
            shared = [one for one in self._shared[-4:] if one.wallet is not self._wallet]
            bill = draws.choice(shared) if shared and draws.random() < 0.4 else None
            if bill is None:
                bill = await ask_for(self.town, payee, value, draws.choice(BILL_SECONDS))
                self._shared.append(bill)
            others = [one for one in self.town.wallets if one not in (self._wallet, bill.wallet)]
            payers = [self._wallet, *([draws.choice(others)] if draws.random() < 0.5 else [])]
            doings = [pay(self.town, one, sending.Wish(to=bill.url), None, draws.choice(PAUSES)) for one in payers]
            closing = [self._close(bill)] if draws.random() < 0.25 else []
            await asyncio.gather(*doings, *closing)
        else:
            wish = sending.Wish(to=payee.url, fixed=draws.choice(("send", "receive")))
            await pay(self.town, self._wallet, wish, value)

    async def _pay_abroad(self, value: int) -> None:
        draws, payee = self.draws, self.draws.choice(self.town.abroad)
        wish = sending.Wish(to=payee.url, fixed=draws.choice(("send", "receive")))
        if draws.random() < 0.5:
            wish = sending.Wish(to=payee.server.ask_for(payee, minor(value, payee.asset)).shown["id"])
        await pay(self.town, self._wallet, wish, None if wish.to != payee.url else value, draws.choice(PAUSES))

    async def _close(self, bill: Bill) -> None:
        """Its payee completes it, perhaps while packets for it are under way."""
        await asyncio.sleep(self.draws.choice(CLOSED_AFTER))
        await complete_bill(self.town, bill)

    async def _give(self, value: int) -> None:
        """Pays into a collection, as others do: what it has received does not say whose payment arrived."""
        others = [one for one in self.town.wallets if one is not self._wallet]
        open_bills = [one for one in self.town.bills[-8:] if one.value is None and one.wallet in others]
        bill = self.draws.choice([*open_bills[-2:], None])
        if bill is None:
            bill = await ask_for(self.town, self.draws.choice(others), None)
        await pay(self.town, self._wallet, sending.Wish(to=bill.url, fixed="send"), value)


async def pay(town: Town, wallet: Wallet, wish: sending.Wish, cents: int | None, pause: float = 0.0) -> None:
    """Pays about so many cents as the page Send does, with a pause before it is confirmed. Raises one of REFUSED."""
    server = wallet.server

    async def send() -> tuple[str, tuple[int, int]]:
        database, node = server.context.database, server.interledger
        payer = await database.read(lambda work: require_wallet(work, wallet.path))
        payee = await payee_lookup.find_payee(database, node.quotes, payer, wish.to)
        asset = payer.asset if wish.fixed == "send" else payee.asset
        value = None if cents is None else minor(cents, asset)
        amount = "" if value is None else format_decimal(value, asset)
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


def move_in(town: Town) -> list[Resident]:
    town.operators = [Operator(town, server) for server in town.servers]
    town.hooks, town.post = Hooks(town), Post(town)
    is_restored, draw = town.servers[-1].keeps_backups, town.world.draw
    if is_restored or draw("payer") < payers.HAVE_ONE:
        town.payer = payers.Payer(town)
    if is_restored or draw("keepers") < rights.HAVE_ONE:
        town.keepers = rights.Keepers(town)
    town.apps = [App(town, number) for number in range(APPS)]
    shared = list[Bill]()
    owners = [Owner(town, wallet, shared) for wallet in town.wallets]
    planners = [Planner(town, wallet) for wallet in town.wallets]
    visitors = [Visitor(town, number) for number in range(VISITORS)]
    foreigners = [Foreigners(town, town.foreign, pay)] if town.foreign else []
    others = filter(None, (town.payer, town.keepers))
    return [*foreigners, *owners, *planners, *town.operators, town.hooks, town.post, *town.apps, *visitors, *others]
