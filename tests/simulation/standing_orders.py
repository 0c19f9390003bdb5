"""Owners with standing orders, which the servers pay as days are skipped; and their oracle."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, Literal
from zoneinfo import ZoneInfo

import msgspec

from payres.core.protocol.amounts import format_decimal
from payres.core.protocol.clock import CORRECTION, DAY, SECOND
from payres.core.store.payments import INCOMING, OUTGOING, OutgoingRecord
from payres.core.store.wallets import find_wallet
from payres.core.store.work import Work
from payres.people import payees as payees_of
from payres.people import sending
from payres.people import standing_orders as rules
from payres.people.store.standing_orders import LASTING, ORDERS, RUNS, OrderRecord, RunRecord
from tests.simulation.currencies import minor
from tests.simulation.foreign import Abroad
from tests.simulation.periods import PERIODS, Period
from tests.simulation.resident import Resident
from tests.simulation.town import Town, Wallet, moment_of
from tests.simulation.world import Violation

MOST: Final = 300  # cents of a payment
EVERY: Final = ("P1D", "P1W", "P1M")
LATE: Final = 3 * DAY  # after a window has begun it is no longer paid
CHANGES: Final = ("pause", "pause", "resume", "end")
UTC: Final = ZoneInfo("UTC")
SLACK: Final = 30 * SECOND  # a clock may have been put back since a window began, and a server looks every five seconds
NOTED: Final = "SELECT count(*) FROM outgoing_payment WHERE metadata = ?"


class Order(msgspec.Struct):
    """A standing order whose setting up was acknowledged. It `is_plain` while nobody asked for a change of it.
    `stopped_at` (microseconds of the world) is set while the last change is one after which nothing is paid."""

    wallet: Wallet
    payee: Wallet | Abroad
    id: str
    value: int
    fixed: Literal["send", "receive"]
    first: int  # microseconds of the server's clock
    period: Period
    note: str
    is_plain: bool = True
    stopped_at: int | None = None


class Planner(Resident):
    """The owner of a wallet, who sets up orders, and changes some."""

    def __init__(self, town: Town, wallet: Wallet) -> None:
        super().__init__(town, f"orders {wallet.url}")
        self._wallet, self._mine, self._number = wallet, list[Order](), 0

    async def live(self, seconds: float) -> None:
        if self.draws.random() < 0.5:
            await asyncio.sleep(self.draws.uniform(0, seconds))
            await self.try_to(self._act())

    async def _act(self) -> None:
        if self._mine and self.draws.random() < 0.5:
            await self._change(self.draws.choice(self._mine))
        else:
            await self._set_up()

    async def _set_up(self) -> None:
        draws, server, self._number = self.draws, self._wallet.server, self._number + 1
        others = [one for one in self.town.wallets if one is not self._wallet]
        payees: list[Wallet | Abroad] = [*others, *self.town.abroad]
        payee = draws.choice(payees)
        fixed: Literal["send", "receive"] = draws.choice(("send", "receive"))
        asset = self._wallet.asset if fixed == "send" else payee.asset
        value, every = minor(draws.randint(1, MOST), asset), draws.choice(EVERY)
        begins = draws.choice((draws.uniform(3, 12), draws.uniform(3, 12), DAY / SECOND + draws.uniform(60, 130)))
        note = f"order {self._number} of {self._wallet.path} at {server.name}"
        amount = format_decimal(value, asset)
        plan = rules.OrderWish(to=payee.url, amount=amount, fixed=fixed, note=note, every=every)
        first = (server.now() // SECOND + round(begins)) * SECOND

        async def make() -> str:
            database, quotes = server.context.database, server.interledger.quotes
            payer = await database.read(lambda work: find_wallet(work, self._wallet.path))
            assert payer is not None
            found = await payees_of.find_payee(database, quotes, payer, payee.url)
            windows = rules.windows_of(rules.wall_time(first, UTC), every, None)
            draft = rules.draft_of(plan, found, windows, UTC)
            quote = await sending.ask_price(database, quotes, payer, found, draft, value, is_plan=True)
            return await database.write(lambda work: rules.set_up(work, payer, quote))

        made = await server.ask(make)
        order = Order(self._wallet, payee, made, value, fixed, first, PERIODS[every], note)
        self._mine.append(order)
        self.town.orders.append(order)
        self.town.world.counts["standing orders"] += 1

    async def _change(self, order: Order) -> None:
        name = self.draws.choice(CHANGES)
        order.is_plain, order.stopped_at = False, None

        def change(work: Work) -> None:
            wallet = find_wallet(work, self._wallet.path)
            assert wallet is not None
            getattr(rules, name)(work, wallet, order.id)

        await self._wallet.server.write(change)
        order.stopped_at = None if name == "resume" else self.town.world.microseconds
        self.town.world.counts[f"standing orders: {name}"] += 1


async def kept_orders(town: Town) -> None:
    """Standing orders: each window that was due has one run, which is paid once, as ordered, or says why not; nothing
    is paid that was stopped."""
    for order in town.orders:
        await _check(town, order)


async def _check(town: Town, order: Order) -> None:
    server = order.wallet.server

    def find(work: Work) -> tuple[OrderRecord | None, list[RunRecord], list[OutgoingRecord], int]:
        runs = list(RUNS.list(work, "WHERE order_id = ? ORDER BY window", order.id))
        paid = [OUTGOING.by_id(work, one.outgoing_payment_id) for one in runs if one.outgoing_payment_id]
        [noted] = work.execute(NOTED, (f'{{"description":"{order.note}"}}',)).fetchone()
        return ORDERS.get(work, order.id), runs, paid, noted

    record, runs, paid, noted = await server.read(find)
    if record is None:
        if town.may_be_lost(server, order.id):
            return
        raise Violation(f"the standing order {order.note} was acknowledged and is gone")
    if not len({one.id for one in paid}) == len(paid) == noted:
        raise Violation(f"the standing order {order.note} has {len(paid)} runs that are paid, and {noted} payments")
    problem = next(_problems(order, record, runs), "")
    if problem:
        raise Violation(f"the standing order {order.note} {problem}: {record}, {runs}")
    for run, payment in zip([one for one in runs if one.outgoing_payment_id], paid, strict=True):
        town.world.counts[f"standing orders {payment.state}"] += 1
        if wrong := await _wrong(town, order, payment):
            raise Violation(f"the payment of {order.note} for {run}: {wrong}: {payment}")
    town.world.counts.update(Counter(f"standing orders: run {one.state}" for one in runs))


def _problems(order: Order, record: OrderRecord, runs: Sequence[RunRecord]) -> Iterator[str]:
    windows = order.period.number(order.first, order.wallet.server.now() - SLACK) + 1
    if order.is_plain and record.state == "active" and len(runs) < windows:
        yield f"has had {windows} windows"
    if order.is_plain and record.state not in {"active", "paused"}:
        yield f"is {record.state}"
    for run in runs:
        if (run.state == "paid") != (run.outgoing_payment_id is not None):
            yield "has a run that is paid without a payment"
        if run.state != "paid" and not run.problem:
            yield "has a run that is not paid and does not say why"
        if run.window_at != order.period.begin(order.first, run.window):
            yield "has a run at another time"
        yield from _problems_of_time(order, run)


def _problems_of_time(order: Order, run: RunRecord) -> Iterator[str]:
    server = order.wallet.server
    over_at = min(order.period.begin(order.first, run.window + 1), run.window_at + LATE)
    is_given_up = run.state in {"missed", "failed"} and run.problem not in {"stopped", "restored", *LASTING}
    if is_given_up and over_at > server.now() + CORRECTION + SLACK:
        yield "has given up a window that is not over"
    paid_at = moment_of(run.outgoing_payment_id) if run.outgoing_payment_id else 0
    if paid_at > over_at + SLACK and not server.was_wrong(paid_at):
        yield "has paid a window that was over"
    if order.stopped_at is not None and paid_at > order.stopped_at and not server.has_lost(order.stopped_at):
        yield "was paid after it was stopped"


async def _wrong(town: Town, order: Order, payment: OutgoingRecord) -> str:
    terms = payment.terms
    if (terms.debit if order.fixed == "send" else terms.receive) != order.value:
        return f"not {order.value}"
    payee = order.payee
    if not terms.receiver.startswith(f"{payee.server.base_url}/incoming-payments/"):
        return "another server"
    id = terms.receiver.rpartition("/")[2]
    if isinstance(payee, Abroad):
        return "" if payee.server.bills[id].payee == payee.account else "another payee"

    def is_right(work: Work) -> bool | None:
        made, wallet = INCOMING.get(work, id), find_wallet(work, payee.path)
        return None if made is None or wallet is None else made.wallet_address_id == wallet.id

    found = await payee.server.read(is_right)
    is_known = found is not None or not town.may_be_lost(payee.server, id)
    return "another payee" if is_known and not found else ""
