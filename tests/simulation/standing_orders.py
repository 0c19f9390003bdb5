"""Owners with standing orders, which the servers pay as days are skipped; and their oracle."""

import asyncio
from typing import Final, Literal
from zoneinfo import ZoneInfo

import msgspec

from payres.core.protocol.amounts import format_decimal
from payres.core.protocol.clock import CORRECTION, DAY, SECOND
from payres.core.store.outgoing_payments import OUTGOING, OutgoingRecord
from payres.core.store.wallets import require_wallet
from payres.core.store.work import Work
from payres.people import payee_lookup, sending
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
PAYEE: Final = (
    "SELECT w.path FROM incoming_payment i JOIN wallet_address w ON w.id = i.wallet_address_id WHERE i.id = ?"
)


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
        note, amount = f"order {self._number} of {self._wallet.path} at {server.name}", format_decimal(value, asset)
        plan = rules.OrderWish(to=payee.url, amount=amount, fixed=fixed, note=note, every=every)
        first = (server.now() // SECOND + round(begins)) * SECOND

        async def make() -> str:
            database, quotes = server.context.database, server.interledger.quotes
            payer = await database.read(lambda work: require_wallet(work, self._wallet.path))
            found = await payee_lookup.find_payee(database, quotes, payer, payee.url)
            windows = rules.windows_of(rules.wall_time(first, UTC), every, None)
            draft = rules.draft_of(plan, found, windows, UTC)
            quote = await sending.ask_price(database, quotes, payer, found, draft, value, is_plan=True)
            return await database.write(lambda work: rules.set_up(work, payer, quote))

        order = Order(self._wallet, payee, await server.ask(make), value, fixed, first, PERIODS[every], note)
        self._mine.append(order)
        self.town.orders.append(order)
        self.town.world.counts["standing orders"] += 1

    async def _change(self, order: Order) -> None:
        name = self.draws.choice(CHANGES)
        order.is_plain, order.stopped_at = False, None

        def change(work: Work) -> None:
            getattr(rules, name)(work, require_wallet(work, self._wallet.path), order.id)

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
    windows = order.period.number(order.first, server.now() - SLACK) + 1
    is_short = record.state == "active" and len(runs) < windows
    if order.is_plain and (is_short or record.state not in {"active", "paused"}):
        raise Violation(f"the standing order {order.note} has had {windows} windows: {record}, {runs}")
    for run in runs:
        if problem := _problem(order, run):
            raise Violation(f"a run of the standing order {order.note} {problem}: {record}, {runs}")
        town.world.counts[f"standing orders: run {run.state}"] += 1
    for payment in paid:
        town.world.counts[f"standing orders {payment.state}"] += 1
        if not await _is_right(town, order, payment):
            raise Violation(f"the standing order {order.note} of {order.value} to {order.payee.url} paid {payment}")


def _problem(order: Order, run: RunRecord) -> str:
    """What is wrong with a run; empty if nothing is."""
    server, begins = order.wallet.server, order.period.begin(order.first, run.window)
    over_at = min(order.period.begin(order.first, run.window + 1), run.window_at + LATE)
    is_given_up = run.state in {"missed", "failed"} and run.problem not in {"stopped", "restored", *LASTING}
    paid_at = moment_of(run.outgoing_payment_id) if run.outgoing_payment_id else 0
    stopped_at = order.stopped_at if order.stopped_at and not server.has_lost(order.stopped_at) else paid_at
    problems = {
        "is paid without a payment": (run.state == "paid") != bool(paid_at),
        "is not paid and does not say why": run.state != "paid" and not run.problem,
        "is at another time": run.window_at != begins,
        "is given up and not over": is_given_up and over_at > server.now() + CORRECTION + SLACK,
        "has paid a window that was over": paid_at > over_at + SLACK and not server.was_wrong(paid_at),
        "was paid after it was stopped": paid_at > stopped_at,
    }
    return next((text for text, is_so in problems.items() if is_so), "")


async def _is_right(town: Town, order: Order, payment: OutgoingRecord) -> bool:
    """Whether a payment has the amount and the payee of its order."""
    payee, terms = order.payee, payment.terms
    start, _, id = terms.receiver.rpartition("/")
    if (terms.debit if order.fixed == "send" else terms.receive) != order.value:
        return False
    if start != f"{payee.server.base_url}/incoming-payments":
        return False
    if isinstance(payee, Abroad):
        return payee.server.bills[id].payee == payee.account
    found = await payee.server.rows(PAYEE, id)
    return found == [(payee.path,)] or (not found and town.may_be_lost(payee.server, id))
